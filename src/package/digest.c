/* Digests of a model's files, computed when they are first needed and kept in the package.
 *
 * The digest of the weights covers every byte of every tensor, with names, types and shapes, so that a file
 * whose header is unchanged and whose bytes are not has another one. The bytes are hashed with XXH64, which
 * is about as fast as memory; the list of hashes with SHA-256. Pages of the files are released as they are
 * read, so that the resident memory of the process stays as it was planned. */
#include "package.h"
#include "../base/xxh64.h"

#include <stdatomic.h>

enum { PIECE = 1 << 20, FILE_MOST = 256 << 20 };

struct ln_digest_slot {
    _Atomic(ln_digests *) is; /* NULL: not computed yet; threads that need it at once may compute it twice */
};

ln_status ln_digest_slot_open(ln_digest_slot **out, ln_error *err) {
    *out = ln_zalloc(1, sizeof **out);
    return *out ? LN_OK : LN_OOM(err, "a model");
}

void ln_digest_slot_close(ln_digest_slot **s) {
    if (*s) ln_free(atomic_load(&(*s)->is));
    ln_free(*s);
    *s = NULL;
}

static uint64_t hash_tensor(const ln_tensor *t) {
    ln_xxh64 h;
    ln_xxh64_open(&h);
    for (uint64_t at = 0; at < t->bytes; at += PIECE) {
        const size_t n = (size_t)LN_MIN(t->bytes - at, (uint64_t)PIECE);
        ln_guard_fetch(t->data + at, n);
        ln_xxh64_add(&h, t->data + at, n);
        ln_guard_release(t->data + at, n);
    }
    return ln_xxh64_value(&h);
}

static void hash_weights(const ln_package *m, char out[LN_SHA256_HEX]) {
    ln_sha256 h;
    ln_sha256_open(&h);
    for (size_t i = 0; i < m->tensors.n; i++) {
        const ln_tensor *t = &m->tensors.items[i];
        const uint64_t bytes = hash_tensor(t);
        const int32_t shape[] = {(int32_t)t->dtype, t->n_dims};
        ln_sha256_add_text(&h, t->name, t->name_bytes);
        ln_sha256_add(&h, shape, sizeof shape);
        ln_sha256_add(&h, t->dims, (size_t)t->n_dims * sizeof *t->dims);
        ln_sha256_add(&h, &bytes, sizeof bytes);
    }
    ln_sha256_hex(&h, out);
}

/* The digest of files of the model's directory; one that is missing counts as empty. */
static ln_status hash_files(const ln_package *m, const char *const *names, size_t n, char out[LN_SHA256_HEX],
                            ln_error *err) {
    ln_sha256 h;
    ln_sha256_open(&h);
    for (size_t i = 0; i < n; i++) {
        char path[sizeof m->path + 64], *data = NULL;
        size_t bytes = 0;
        bool there;
        (void)snprintf(path, sizeof path, "%s/%s", m->path, names[i]);
        LN_TRY(ln_look(path, &there, err));
        if (there) LN_TRY(ln_read_file(path, FILE_MOST, &data, &bytes, err));
        ln_sha256_add_text(&h, data ? data : "", bytes);
        ln_free(data);
    }
    ln_sha256_hex(&h, out);
    return LN_OK;
}

ln_status ln_package_digests(const ln_package *m, const ln_digests **out, ln_error *err) {
    static const char *const config[] = {"config.json"}, *const tokenizer[] = {"tokenizer.json",
                                                                               "tokenizer_config.json"};
    *out = atomic_load(&m->digests->is);
    if (*out) return LN_OK;
    ln_status st = LN_OK;
    ln_digests *new = ln_zalloc(1, sizeof *new), *none = NULL;
    if (!new) return LN_OOM(err, "digests of a model");
    LN_GO(hash_files(m, config, LN_COUNT(config), new->config, err));
    LN_GO(hash_files(m, tokenizer, LN_COUNT(tokenizer), new->tokenizer, err));
    hash_weights(m, new->weights);
    LN_GO(ln_tensors_check(&m->tensors, false, err));
    if (atomic_compare_exchange_strong(&m->digests->is, &none, new)) none = new, new = NULL;
    *out = none;
out:
    ln_free(new);
    return st;
}
