/* Reasoning in generated text: its delimiters, and a streaming parser that separates reasoning from the
 * answer. */
#ifndef LN_REASONING_H
#define LN_REASONING_H

#include "../tokenizer/tokenizer.h"
#include "chat_template.h"

/* The strings that a model writes before and after its reasoning, such as <think> and </think>. */
typedef struct ln_reasoning_delims {
    const char *open, *end;
} ln_reasoning_delims;

/* The reasoning delimiters of a model: those that its vocabulary contains as tokens or that its chat
 * template mentions. NULL: the model has none. */
const ln_reasoning_delims *ln_reasoning_delims_of(const ln_tok *tok, const ln_model_template *tmpl_or_null);
/* Sets *opened to whether a prompt of n token ids ends with the opening delimiter, so that generation
 * starts inside the reasoning. LN_EMEMORY. */
ln_status ln_reasoning_opened(const ln_reasoning_delims *delims, const ln_tok *tok, const int32_t *ids,
                              size_t n, bool *opened, ln_error *err);
/* The state of the streaming parser. It owns its strings; free it with ln_reasoning_close. */
typedef struct ln_reasoning {
    const ln_reasoning_delims *delims;
    enum { LN_REASONING_UNDECIDED, LN_REASONING_INSIDE, LN_REASONING_ANSWER } state;
    /* begun: some text of this state was emitted; closed: the closing delimiter was seen. */
    bool begun, closed;
    ln_str held;      /* input not emitted yet, because it may be part of a delimiter */
    ln_str reasoning; /* the reasoning that the last push or flush emitted */
    ln_str answer;    /* the answer that it emitted; both are valid until the next call */
    uint64_t before;  /* bytes of the text so far that do not belong to the answer */
} ln_reasoning;
/* Starts a parser; `opened` as from ln_reasoning_opened. With NULL delimiters the whole text is the
 * answer. */
/* Feeds the next `bytes` bytes of generated text. The text that became certain is in t->reasoning and
 * t->answer. LN_EMEMORY. */
void ln_reasoning_open(ln_reasoning *t, const ln_reasoning_delims *marks_or_null, bool opened);
ln_status ln_reasoning_push(ln_reasoning *t, const char *text, size_t bytes, ln_error *err);
/* Ends the text: what is held back is emitted as reasoning or answer according to the current state.
 * LN_EMEMORY. */
ln_status ln_reasoning_flush(ln_reasoning *t, ln_error *err);
void ln_reasoning_close(ln_reasoning *t);

#endif
