/* The model-level registry: backends by name (backend_registry.c), and models that one of them has loaded
 * (hosted.c).
 *
 * Backends are added and never removed, so that a pointer to one stays valid and reading the table takes no
 * lock. The native backend (native.c) is an app of the library: it calls the functions of linnet.h.
 *
 * A loaded model turns a backend's reports (ln_backend_sink) into an ln_result, runs one call at a time if
 * the backend asks for that, and has the request to stop. Handles are api/'s. */
#ifndef LN_BACKEND_H
#define LN_BACKEND_H

#include <linnet_backend.h>

#include "../base/base.h"

#include <pthread.h>
#include <stdatomic.h>

enum { LN_BACKENDS_MOST = 64, LN_BACKEND_NAME = 32 };

extern const ln_backend ln_native_backend;

/* As the functions of linnet.h; `b` has the full size of this library's struct. */
ln_status ln_registry_add(const ln_backend *b, ln_error *err);
const ln_backend *ln_registry_find(const char *name);
ln_status ln_registry_default(const ln_backend **out, const ln_backend_options *opt, ln_error *err);
ln_status ln_registry_each(const ln_backend_options *opt, ln_backend_fn *fn, void *user, ln_error *err);

typedef struct ln_hosted {
    const ln_backend *backend;
    void *model;
    pthread_mutex_t turn; /* held during a call, unless the backend is concurrent */
    pthread_mutex_t lock; /* of `last` */
    ln_metrics last;
    /* a stop is requested while *stop == stop_at; set by the owner of the handle */
    const _Atomic(uintptr_t) *stop;
    uintptr_t stop_at;
} ln_hosted;

/* Loads a model; `backend` NULL: the default. The caller owns *out. */
ln_status ln_hosted_open(ln_hosted **out, const char *backend, const char *model,
                         const ln_backend_options *opt, ln_error *err);
void ln_hosted_free(ln_hosted **l);
bool ln_hosted_stopped(const ln_hosted *l);

/* The calls, with the contracts of linnet.h. `how` NULL: the model's defaults. */
ln_status ln_hosted_generate(ln_hosted *l, bool chat, const ln_prompt *prompt, const ln_sampling *how,
                             ln_text_fn *on_text, void *user, ln_result *out, ln_error *err);
ln_status ln_hosted_batch(ln_hosted *l, const ln_prompt *prompts, size_t n, const ln_sampling *how,
                          ln_result *results, ln_error *errors, ln_error *err);
ln_status ln_hosted_classify(ln_hosted *l, const ln_prompt *prompts, size_t n, const ln_classify_options *opt,
                             ln_class_fn *fn, void *user, ln_metrics *metrics, ln_error *err);
ln_status ln_hosted_inspect(ln_hosted *l, const int32_t *ids, size_t n_ids, ln_keys_fn *fn, void *user,
                            ln_error *err);
ln_status ln_hosted_info(ln_hosted *l, ln_info *out, ln_error *err);
ln_status ln_hosted_defaults(ln_hosted *l, ln_sampling *out, ln_error *err);

#endif
