/* A package: a model directory that is open, with configuration, weights, tokenizer and chat template. It is
 * immutable after ln_package_open; engines and inspection share it and must be closed before it. */
#ifndef LN_PACKAGE_H
#define LN_PACKAGE_H

#include <linnet_train.h>

#include "../base/sha256.h"
#include "../chat/reasoning.h"
#include "../chat/tool_text.h"
#include "../io/embedding_files.h"
#include "../run/run.h"

typedef struct ln_digest_slot ln_digest_slot;

typedef struct ln_package {
    char path[4096]; /* of the directory, absolute */
    ln_config config;
    ln_spec spec;
    ln_tensors tensors;
    ln_weights weights;
    ln_tok *tok;
    ln_genconfig gen;
    bool has_template;       /* the directory ships a template, or one was named; it may be unusable */
    ln_model_template *tmpl; /* NULL: there is none, or it cannot be used */
    ln_error template_error; /* why the template cannot be used; reported when a conversation needs it */
    const ln_reasoning_delims *delims; /* of reasoning; NULL: the model has none */
    ln_tool_support tools;             /* how calls of tools are written, and what the template shows */
    ln_controls *controls;             /* control tokens of the built-in template; NULL if tmpl is not */
    ln_emb_files embedding;            /* how texts become embeddings */
    ln_error embedding_error;          /* why these files cannot be used; reported by ln_embed */
    ln_tok *lower_tok; /* the tokenizer of texts that are embedded in lower case; NULL: `tok` is */
    /* [n_changers] the adapters of ln_options.adapter that change tensors of the model itself, with their
     * factors: the weights are loaded with them, whatever adapter a request names */
    struct ln_adapted *changers;
    size_t n_changers;
    /* [n_added] ids of ln_options.add_tokens, ascending, their texts, and the rows beyond the model's */
    int32_t *added;
    size_t n_added;
    char *added_texts;
    struct ln_adapter_file *grown;
    ln_options opt;
    double load_seconds;           /* time that ln_package_open took */
    ln_weight_cache *weight_cache; /* device weights, shared by this model's engines; has its own lock */
    ln_digest_slot *digests;       /* of ln_package_digests */
    ln_ranks *led; /* the group whose ranks have opened this model together, led by this process; or NULL */
    int32_t led_id;
} ln_package;
/* Opens `model` (see ln_model_open for its names and errors). The caller owns *out; NULL after an error. */
ln_status ln_package_open(ln_package **out, const char *model, const ln_options *opt, ln_error *err);
/* follow.c: opens a model in all ranks of the group that this process leads (run/ranks.h), or in this process
 * if it leads none. LN_EUSAGE: a rank has another model. LN_EDEVICE: a rank has failed. */
ln_status ln_package_open_led(ln_package **out, const char *model, const ln_options *opt, ln_error *err);
/* Orders the followers to close it. */
void ln_package_end_led(ln_package *m);
/* A digest of the configuration and of names, types, shapes and some bytes of all tensors. */
uint64_t ln_package_sample_digest(const ln_package *m);
/* Obeys the orders of rank 0 until it ends. LN_EDEVICE: a rank has failed. */
ln_status ln_ranks_follow_all(ln_transport *t, ln_error *err);
/* Frees the package and sets *m to NULL. No engine may use it any more. */
void ln_package_close(ln_package **m);
void ln_package_info(const ln_package *m, ln_info *info);
/* Whether a prompt is rendered by a chat template or built-in template before it is tokenised. */
bool ln_package_uses_template(const ln_package *m, const ln_prompt *p);
/* Whether the template in a file is the one that the model's conversations are rendered with, byte for byte.
 */
ln_status ln_package_is_template(const ln_package *m, const char *path, bool *own, ln_error *err);
/* Appends the token ids of a prompt to *out. Errors: see ln_prompt_ids. LN_EINVALID with out->fewest > 0: the
 * prompt needs more ids than out->most by its length alone; it was neither rendered nor encoded. */
ln_status ln_package_encode_prompt(const ln_package *m, const ln_prompt *p, ln_ids *out, ln_error *err);
/* Returns LN_EINVALID unless the text is UTF-8; `what` names it in the message. */
ln_status ln_package_check_text(const char *what, const char *text, size_t bytes, ln_error *err);
/* embed_text.c: appends the ids of a text that is embedded. *n_prompt: how many of the first ones belong to
 * the prompt and are not pooled. *n_cut: how many ids the text was too long. */
typedef struct ln_embedded_text {
    const char *text, *prompt;
    size_t bytes, prompt_bytes;
} ln_embedded_text;
ln_status ln_package_encode_embedded(const ln_package *m, const ln_embedded_text *t, ln_ids *out,
                                     int64_t *n_prompt, int64_t *n_cut, ln_error *err);
/* Fills the zeroed *out; see ln_assistant_mask. The caller frees *out's arrays, after an error too. */
ln_status ln_package_assistant_mask(const ln_package *m, const ln_prompt *p, ln_token_mask *out,
                                    ln_error *err);
struct ln_adapter_file;
struct ln_adapter_module;
/* Returns for how many experts of a layer a module of an adapter's file is, at least; 0: for none. */
int64_t ln_package_experts_of(const struct ln_adapter_module *m);
/* Splits the modules of an adapter for tensors of the model that hold several weights (ln_adapter_split). */
ln_status ln_package_split_adapter(const ln_package *m, struct ln_adapter_file *a, ln_error *err);
/* LN_EINVALID unless every module of an adapter has its place in the model. The modules have been split
 * (ln_adapter_split). weights, [modules] or NULL: the index of each one's matrix in m->weights. */
ln_status ln_package_match_adapter(const ln_package *m, const struct ln_adapter_file *a, int *weights,
                                   ln_error *err);
/* changed_model.c: loads the adapters of ln_options.adapter that change tensors of the model itself, and has
 * the weights follow them. */
ln_status ln_package_change(ln_package *m, ln_error *err);
void ln_package_close_changers(ln_package *m);
/* new_tokens.c: reads the ids of ln_options.add_tokens, and adds rows to the tables if these have none for
 * them, each the mean of the others. The tokenizer is open. LN_EUSAGE, LN_EMEMORY, LN_ENUMERIC. */
ln_status ln_package_add_tokens(ln_package *m, ln_error *err);
void ln_package_close_added(ln_package *m);
/* The directory of the tokenizer: the model's, or that of an adapter that has added tokens. */
const char *ln_package_tokenizer_dir(const ln_package *m);
/* LN_EUSAGE unless the n adapters, opened as `files`, that an engine is to apply together change what the
 * model was opened with: those of its own adapter (`own`) what that changes, any other nothing. Compares
 * copies of tables in the files with the model's. */
ln_status ln_package_check_changes(const ln_package *m, struct ln_adapter_file *const *files,
                                   const double *factors, size_t n, bool own, ln_error *err);
/* The bias of the matrix m->weights.items[weight]; NULL: the model has none. */
const ln_weight *ln_package_bias_of(const ln_package *m, size_t weight);
/* kept_weights.c: describes the encodings of the weights in memory, as ln_info.kept. */
void ln_package_kept(const ln_package *m, char out[160]);
/* kept_weights.c: describes the format of the files, as ln_info.stored. */
void ln_package_stored(const ln_package *m, char out[32]);
/* Writes the model's sampling defaults; pointers in *out are borrowed from the package. */
void ln_package_sampling(const ln_package *m, ln_sampling *out);

/* digest.c. What identifies the content of a model's files, as hexadecimal digits: all bytes of its tensors,
 * config.json, and tokenizer.json with tokenizer_config.json. */
typedef struct ln_digests {
    char weights[LN_SHA256_HEX], config[LN_SHA256_HEX], tokenizer[LN_SHA256_HEX];
} ln_digests;
/* Stores the digests, which belong to the package. The first call reads all weights. May be called from any
 * thread. LN_ECHANGED: a weight file changed. LN_EIO: a file cannot be read. */
ln_status ln_package_digests(const ln_package *m, const ln_digests **out, ln_error *err);
ln_status ln_digest_slot_open(ln_digest_slot **out, ln_error *err);
void ln_digest_slot_close(ln_digest_slot **s);

/* list_models.c: calls fn for each model on this machine, without opening a weight file; see ln_list. */
ln_status ln_list_models(const char *dir_or_null, ln_found_fn *fn, void *user, ln_error *err);

#endif
