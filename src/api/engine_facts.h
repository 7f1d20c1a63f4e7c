/* What the clients within the library need of an engine and linnet.h does not give: the names and the
 * identity of what its answers come from. */
#ifndef LN_ENGINE_FACTS_H
#define LN_ENGINE_FACTS_H

#include "../base/base.h"
#include "../base/rank_exchange.h"
#include "../base/sha256.h"

typedef struct ln_engine_facts {
    const ln_engine *engine; /* which cannot be freed before ln_engine_facts_close */
    const char *path;        /* of the model's directory */
    const char *tool_format; /* this and the next three: as in ln_info */
    bool single_tool_call, null_tool_content, text_tool_arguments;
    int64_t n_vocab;
    bool has_template, always_reasons; /* always_reasons: its template has no switch of reasoning */
    ln_numerics numerics;
    int n_parallel;
    ln_sampling sampling;         /* the model's defaults */
    char identity[LN_SHA256_HEX]; /* digest of everything of the model that an answer depends on */
    ln_str conditions;            /* text: what else, in addition to the request, an answer depends on */
    ln_transport *ranks;          /* whose ranks all make the same calls; NULL: this process is alone */
    void *user;                   /* of the functions below */
} ln_engine_facts;

/* Stores the facts of an engine and takes a reference to it. The digest reads all weights once. The caller
 * closes *f unless an error is returned. LN_EUSAGE: the handle is no open engine. LN_ECHANGED, LN_EIO: the
 * model's files cannot be read, or have changed. */
ln_status ln_engine_facts_open(ln_engine_facts *f, const ln_engine *engine, ln_error *err);
void ln_engine_facts_close(ln_engine_facts *f);
/* Whether all ranks of a group that share data have the same model, settings and input, of which `input` is a
 * digest; `what` names the input. Does nothing in a process that is alone. LN_EUSAGE names the rank that
 * differs. */
struct ln_eng;
ln_status ln_facts_agree(ln_transport *ranks, const struct ln_eng *e, uint64_t input, const char *what,
                         ln_error *err);
/* Appends the bytes of a token and sets *special; appends the text of ids. `user`: ln_engine_facts.user. */
void ln_facts_token(void *user, int32_t id, bool *special, ln_str *out);
void ln_facts_text(void *user, const int32_t *ids, size_t n, ln_str *out);

#endif
