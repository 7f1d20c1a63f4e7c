/* Fuzzes the reader of a model's configuration. The input is config.json, generation_config.json and
 * tokenizer_config.json, separated by bytes 0xFF (which no JSON document contains). The target writes them to
 * a directory of its process. A spec that is returned must be usable for building a model: all sizes are
 * positive, divisions have no remainder, every index is valid, every frequency is finite. */
#include "fuzz.h"

#include "model/spec.h"

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

static const char *const names[] = {"config.json", "generation_config.json", "tokenizer_config.json"};
static char dir[64], path[3][128];

static void remove_dir(void) {
    for (int i = 0; i < 3; i++) (void)unlink(path[i]);
    (void)rmdir(dir);
}

static void fuzz_open(void) {
    (void)snprintf(dir, sizeof dir, "%s/linnet-fuzz-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    must(mkdtemp(dir) != NULL);
    for (int i = 0; i < 3; i++) (void)snprintf(path[i], sizeof path[i], "%s/%s", dir, names[i]);
    (void)atexit(remove_dir);
}

static void put(int i, const uint8_t *data, size_t bytes) {
    int fd = open(path[i], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    must(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    close(fd);
}

static void check(const ln_spec *s) {
    must(s->D > 0 && s->V > 0 && s->L > 0 && s->L <= LN_MAX_LAYERS && s->n_ctx > 0);
    must(s->eps >= 0 && isfinite(s->embed_scale) && s->n_attn > 0 && s->n_ffn > 0 && s->n_ropes > 0);
    for (int i = 0; i < s->n_attn; i++) {
        const ln_attn_spec *a = &s->attn[i];
        must(a->H > 0 && a->K > 0 && a->H % a->K == 0 && a->E > 0 && a->E % 2 == 0);
        must(isfinite(a->scale) && a->scale > 0 && a->window >= 0);
        must(a->rope >= 0 && a->rope < s->n_ropes && s->ropes[a->rope].n == a->E / 2);
    }
    for (int i = 0; i < s->n_ffn; i++) must(s->ffn[i].F > 0);
    for (int l = 0; l < s->L; l++) {
        const ln_layer *here = &s->layers[l];
        must(here->attn >= 0 && here->attn < s->n_attn && here->ffn >= 0 && here->ffn < s->n_ffn);
        must(here->state_from == l);
    }
    for (int r = 0; r < s->n_ropes; r++)
        for (int i = 0; i < s->ropes[r].n; i++) must(isfinite(s->ropes[r].freqs[i]));
}

static int32_t token_id(void *user, const char *text, size_t bytes) {
    (void)user;
    return bytes ? (unsigned char)text[0] : -1;
}

static ln_status read_all(ln_config *c, ln_error *err) {
    ln_spec s;
    ln_genconfig g;
    LN_TRY(ln_spec_open(&s, c, err));
    check(&s);
    ln_quant_entry entry;
    ln_status st = ln_quant_of(&s.quant, "model.layers.0.self_attn.q_proj", &entry, err);
    must(st != LN_OK || entry.code.bits == 0 ||
         (entry.code.bits >= 2 && entry.code.bits <= 8 && entry.code.group >= 16));
    if (st == LN_OK) st = ln_genconfig_open(&g, dir, c, s.V, token_id, NULL, err);
    if (st == LN_OK) {
        must(g.n_eos >= 0 && g.n_eos <= (int)LN_COUNT(g.eos) && g.top_k >= 0 && g.bos < s.V);
        for (int i = 0; i < g.n_eos; i++) must(g.eos[i] >= 0 && g.eos[i] < s.V);
        bool has;
        st = ln_has_template(dir, &has, err);
        for (size_t i = 0; i < g.n_suppress; i++) must(g.suppress[i] >= 0 && g.suppress[i] < s.V);
        for (size_t i = 0; i < g.n_bad_words; i++) must(g.bad_words[i].n > 0);
        must(g.min_new >= 0 && g.no_repeat_ngram >= 0);
        ln_genconfig_close(&g);
    }
    ln_spec_close(&s);
    return st;
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    for (int i = 0; i < 3; i++) {
        const uint8_t *mark = bytes ? memchr(data, 0xff, bytes) : NULL;
        size_t n = mark ? (size_t)(mark - data) : bytes;
        if (i == 0 || n) put(i, data, n);
        else (void)unlink(path[i]);
        data += n + (mark != NULL);
        bytes -= n + (mark != NULL);
    }
    ln_config c;
    LN_TRY(ln_config_open(&c, dir, err));
    ln_status st = read_all(&c, err);
    ln_config_close(&c);
    return st;
}
