/* The adapters that an engine has loaded: slots of the run's pool of adapters, each the sum of one or more
 * LoRA adapters.
 *
 * The table is guarded by the engine's lock, the pool by its driver token: slots are written between two
 * steps. Slot 0 belongs to ln_options.adapter where there is one. A slot whose handle is closed is free once
 * no open request uses it. */
#ifndef LN_ADAPTERS_H
#define LN_ADAPTERS_H

#include "../base/public_limits.h"
#include "../io/adapter.h"

struct ln_eng;

typedef struct ln_adapter_slot {
    bool used;    /* it is loaded, or being loaded */
    bool closing; /* its handle is closed */
    int n_users;  /* open requests */
    double scale; /* of ln_adapter_set_scale */
    size_t n_parts;
    ln_adapter_file *files[LN_ADAPTER_PARTS];
    double scales[LN_ADAPTER_PARTS];
    char digest[LN_SHA256_HEX]; /* of the parts, their factors and `scale` */
    uint64_t key;               /* of the prefix cache: the beginning of the digest; never 0 */
} ln_adapter_slot;

/* Sets *rank to the largest rank that the sum of these parts has for any matrix, at most, and *experts to
 * whether one of them has modules for experts. Errors: those of ln_adapter_file_open. */
ln_status ln_adapter_parts_rank(const ln_adapter_part *parts, size_t n, int64_t *rank, bool *experts,
                                ln_error *err);
/* Makes the table, and loads ln_run_options.adapter_parts into slot 0. ln_adapters_close frees it. */
ln_status ln_adapters_open(struct ln_eng *e, ln_error *err);
void ln_adapters_close(struct ln_eng *e);
/* The slot of ln_options.adapter; NULL: there is none. */
const ln_adapter_slot *ln_adapters_default(const struct ln_eng *e);

/* What the handle of an adapter stands for. */
typedef struct ln_adapter_ref {
    struct ln_eng *e;
    int slot;
} ln_adapter_ref;
/* The slot plus 1 of the adapter that a prompt names, 0: none. The API has replaced the handle by its object.
 */
static inline int ln_prompt_adapter(const ln_prompt *p) {
    return p->adapter ? ((const ln_adapter_ref *)(const void *)p->adapter)->slot + 1 : 0;
}
/* ln_adapter_open: loads into a free slot. The caller owns *out; ln_adapter_unload. */
ln_status ln_adapter_load(ln_adapter_ref **out, struct ln_eng *e, const ln_adapter_part *parts, size_t n,
                          ln_error *err);
/* How many slots are free. */
int ln_adapters_room(struct ln_eng *e);
/* Frees the slot, when its last user lets go of it. */
void ln_adapter_unload(ln_adapter_ref **l);
ln_status ln_adapter_rescale(ln_adapter_ref *l, double scale, ln_error *err);
/* A request uses a slot from now on; returns the slot's key. With the engine's lock. */
uint64_t ln_adapters_hold(struct ln_eng *e, int slot);
void ln_adapters_let_go(struct ln_eng *e, int slot);

#endif
