/* Writes everything of a model's computation that a change of structure must keep: its memory plan, the
 * program of inference and that of training node for node, and digests of all logits, hidden states,
 * gradients and keys. tools/compare_builds compares the texts of two builds.
 *
 * usage: record_model MODEL exact|fast DEVICE CHUNK [ADAPTER]; LINNET_CPU chooses the ISA level. */
#include "../src/base/file.h"
#include "../src/base/sha256.h"
#include "../src/engine/engine.h"
#include "../src/engine/memory_plan.h"
#include "../src/engine/score.h"
#include "../src/run/train_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 53, RANK = 3 };

static void stop(const ln_error *err) {
    (void)fprintf(stderr, "record_model: %s\n", err->message);
    exit(1);
}
#define OK(x)                        \
    do {                             \
        ln_error e_ = {0};           \
        ln_error *err = &e_;         \
        if ((x) != LN_OK) stop(err); \
    } while (0)

/* ---- the text of a program ---- */

static void put_kv(const ln_p_kv *kv) {
    if (kv->v_dim != kv->head_dim) printf(" values %d", kv->v_dim);
    printf(" kv[layer %d group %d block %d.%d/%d heads %dx%d page %d dtype %d bytes %lld %lld]", kv->layer,
           kv->window_group, kv->page_in_block, kv->layer_in_page, kv->pages_per_block, kv->n_kv_heads,
           kv->head_dim, kv->page_len, (int)kv->dtype, (long long)kv->page_bytes, (long long)kv->layer_bytes);
}

static void put_freqs(const ln_p_freqs *f) {
    printf(" scale %a ntk %a %a %lld", (double)f->scale, f->ntk.theta, f->ntk.factor,
           (long long)f->ntk.positions);
    for (int i = 0; i < f->n; i++) printf(" %a", (double)f->freqs[i]);
}

static void put_lora(const ln_p_lora *p) {
    printf(" lora[at %lld slots %dx%lld rank %d %lldx%lld dtype %d rounds %d outputs %d]", (long long)p->at,
           p->n_slots, (long long)p->slot_bytes, p->max_rank, (long long)p->n_out, (long long)p->n_in,
           (int)p->dtype, p->rounds, p->of_outputs);
}

static void put_params(const ln_pnode *n) {
    const ln_params *p = &n->p;
    switch (n->op) {
    case LN_OP_EMBED: printf(" scale %a", (double)p->embed.scale); break;
    case LN_OP_CONVERT:
        printf(" to %d %d %d", p->convert.to.kind, p->convert.to.bits, p->convert.to.group);
        break;
    case LN_OP_GATED:
    case LN_OP_LINEAR_GATED: printf(" act %d", (int)p->gate.act); break;
    case LN_OP_RMSNORM:
        printf(" eps %a offset %a", (double)p->norm.eps, (double)p->norm.offset);
        if (p->norm.width) printf(" width %lld", (long long)p->norm.width);
        break;
    case LN_OP_POS_SCALE:
        printf(" by %a positions %lld", (double)p->pos_scale.factor, (long long)p->pos_scale.positions);
        break;
    case LN_OP_ROPE_TABLE: put_freqs(&p->freqs); break;
    case LN_OP_ROPE: printf(" heads %dx%d", p->heads.n_heads, p->heads.head_dim); break;
    case LN_OP_KV_WRITE: put_kv(&p->kv); break;
    case LN_OP_ATTN_PAGED:
        put_kv(&p->attn.kv);
        printf(" heads %d scale %a window %lld", p->attn.n_heads, (double)p->attn.scale,
               (long long)p->attn.window);
        if (p->attn.softcap != 0) printf(" softcap %a", (double)p->attn.softcap);
        break;
    case LN_OP_ATTN:
    case LN_OP_ATTN_BACK:
        printf(" heads %d %dx%d scale %a window %lld", p->packed.n_heads, p->packed.n_kv_heads,
               p->packed.head_dim, (double)p->packed.scale, (long long)p->packed.window);
        if (p->packed.softcap != 0) printf(" softcap %a", (double)p->packed.softcap);
        if (p->packed.v_dim != p->packed.head_dim) printf(" values %d", p->packed.v_dim);
        break;
    case LN_OP_MATMUL: printf(" kind %d", (int)p->matmul.kind); break;
    case LN_OP_SOFTCAP:
    case LN_OP_SCALE: printf(" by %a", (double)p->scale.factor); break;
    case LN_OP_SUM: printf(" kind %d", (int)p->sum.kind); break;
    case LN_OP_DROPOUT:
        printf(" p %a site %u seed %llu outputs %d", (double)p->dropout.p, p->dropout.site,
               (unsigned long long)p->dropout.seed, p->dropout.of_outputs);
        break;
    case LN_OP_LORA_DOWN:
    case LN_OP_LORA_UP: put_lora(&p->lora); break;
    default: break;
    }
}

static void put_value(const ln_program *p, ln_v i) {
    if (i < 0) {
        printf(" -");
        return;
    }
    const ln_pvalue *v = ln_program_value(p, i);
    printf(" %s(%d", v->name, (int)v->kind);
    for (int d = 0; d < v->n_dims; d++) printf(" %lld", (long long)v->dims[d]);
    printf("; dtype %d bits %d/%d slot %d layer %d format %d.%d/%d layout %d pitch %lld tail %d at %lld+%lld "
           "bytes %lld stages %d..%d)",
           (int)v->dtype, v->enc.bits, v->enc.group, v->slot, v->layer, v->format.kind, v->format.bits,
           v->format.group, v->layout, (long long)v->row_bytes, v->tail_rows, (long long)v->offset,
           (long long)v->tail_offset, (long long)v->bytes, v->first, v->last);
}

static void put_program(const char *name, const ln_program *p) {
    printf("program %s: %d nodes, %d stages, %lld bytes, bound %lld\n", name, p->n_nodes, p->n_stages,
           (long long)p->temp_bytes, (long long)p->temp_bound);
    for (int i = 0; i < p->n_nodes; i++) {
        const ln_pnode *n = ln_program_node(p, i);
        printf("%d %d %s %s %a", n->stage, n->layer, ln_op_name(n->op), n->kernel ? n->kernel : "-",
               n->tolerance);
        put_params(n);
        printf(" ->");
        for (int k = 0; k < n->n_out; k++) put_value(p, n->out[k]);
        printf(" <-");
        for (int k = 0; k < n->n_in; k++) put_value(p, n->in[k]);
        printf("\n");
    }
    printf("outputs");
    for (int i = 0; i < p->n_outputs; i++) put_value(p, p->outputs[i]);
    printf("\n");
}

/* ---- digests of what runs compute ---- */

static void put_digest(const char *what, ln_sha256 *h) {
    char hex[LN_SHA256_HEX];
    ln_sha256_hex(h, hex);
    printf("%s %s\n", what, hex);
}

static void fill_ids(int32_t *ids, int64_t V) {
    uint64_t state = 7;
    for (int i = 0; i < ROWS; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        ids[i] = (int32_t)((state >> 33) % (uint64_t)V);
    }
}

/* Runs ROWS tokens in chunks; digests of the logits and hidden states of all rows, and of the keys. */
static void run_rows(ln_eng *e, const ln_package *m) {
    const int64_t V = m->spec.V, D = m->spec.D;
    const ln_seq_options o = {.n_prompt = ROWS, .n_most = ROWS, .no_cache = true};
    ln_seq *s;
    ln_sha256 logits, hidden;
    int32_t ids[ROWS];
    float *row = malloc((size_t)(V + D) * sizeof *row);
    fill_ids(ids, V);
    ln_sha256_open(&logits);
    ln_sha256_open(&hidden);
    OK(ln_seq_open(e, &o, &s, err));
    for (int at = 0; at < ROWS;) {
        const ln_batch_item item = {s, ids + at, LN_MIN(ROWS - at, e->run->opt.n_logits), LN_LOGITS_ALL};
        OK(ln_eng_step(e, &item, 1, err));
        for (int64_t r = 0; r < item.n; r++) {
            OK(ln_run_logits(e->run, r, row, err));
            ln_sha256_add(&logits, row, (size_t)V * sizeof *row);
            OK(ln_run_hidden(e->run, r, row, err));
            ln_sha256_add(&hidden, row, (size_t)D * sizeof *row);
        }
        at += (int)item.n;
    }
    put_digest("logits", &logits);
    put_digest("hidden", &hidden);
    ln_seq_close(e, &s);
    free(row);
}

/* The keys of every layer, from an engine that keeps all. */
static ln_status add_keys(void *user, int layer, const float *keys, int n_heads, int64_t n_tokens, int width,
                          ln_error *err) {
    (void)layer, (void)err;
    ln_sha256_add(user, keys, (size_t)n_heads * (size_t)n_tokens * (size_t)width * sizeof *keys);
    return LN_OK;
}
static void run_keys(const ln_package *m, ln_options o) {
    ln_eng *e;
    ln_sha256 h;
    int32_t ids[ROWS];
    o.keep_full_kv = true;
    fill_ids(ids, m->spec.V);
    ln_sha256_open(&h);
    OK(ln_eng_open(&e, m, &o, err));
    OK(ln_eng_inspect_keys(e, ids, ROWS, add_keys, &h, err));
    put_digest("keys", &h);
    ln_eng_close(&e);
}

static void train(const ln_package *m, ln_device device, ln_numerics numerics, int n_recompute) {
    ln_options opt = ln_options_default();
    ln_train_options o = {.size = sizeof o, .n_recompute = n_recompute};
    ln_train_program *p;
    opt.n_threads = 2, opt.device = device, opt.numerics = numerics;
    OK(ln_eng_options(m, &opt, &o.run, err));
    o.run.n_chunk = ROWS, o.run.n_seqs = 2;
    o.lora = (ln_lora){.rank = RANK, .scale = 2, .dropout = 0.25, .seed = 3, .dtype = LN_F32};
    o.lora.targets[LN_W_Q] = o.lora.targets[LN_W_V] = o.lora.targets[LN_W_DOWN] = o.lora.targets[LN_W_O] =
        true;
    o.lora.targets[LN_W_GATE] = true;
    OK(ln_train_program_open(&p, &m->spec, &m->weights, m->weight_cache, &o, err));
    const ln_train_sizes *z = ln_train_program_sizes(p);
    printf("training recomputes %d: weights %llu, activations %llu, scratch %llu, parameters %llu, step "
           "%llu\n",
           z->n_recompute, (unsigned long long)z->weights_bytes, (unsigned long long)z->activation_bytes,
           (unsigned long long)z->scratch_bytes, (unsigned long long)z->param_bytes,
           (unsigned long long)z->step_bytes);
    put_program("evaluate", ln_train_program_get(p, false));
    put_program("train", ln_train_program_get(p, true));
    int32_t ids[ROWS], targets[ROWS];
    const int32_t row0[3] = {0, 20, ROWS};
    size_t n;
    fill_ids(ids, m->spec.V);
    for (int i = 0; i < ROWS; i++) targets[i] = i % 5 ? ids[(i + 1) % ROWS] : -1;
    OK(ln_train_program_init(p, 11, err));
    ln_train_param *params = ln_train_program_params(p, &n);
    for (size_t i = 0; i < n; i++)
        for (int64_t k = 0; k < params[i].rows * params[i].cols; k++)
            if (params[i].is_b) params[i].value[k] = (float)((k * 37 + (int64_t)i) % 19 - 9) * 0.01f;
    const ln_train_batch b = {.n_rows = ROWS, .n_seqs = 2, .ids = ids, .row0 = row0, .targets = targets};
    ln_train_result r;
    ln_sha256 h;
    ln_sha256_open(&h);
    ln_train_clear(p);
    OK(ln_train_step(p, &b, &r, err));
    for (size_t i = 0; i < n; i++) {
        ln_sha256_add(&h, params[i].path, strlen(params[i].path));
        ln_sha256_add(&h, params[i].grad, (size_t)(params[i].rows * params[i].cols) * sizeof(float));
    }
    printf("loss %a of %lld\n", r.loss, (long long)r.n_counted);
    put_digest("gradients", &h);
    OK(ln_train_evaluate(p, &b, &r, err));
    printf("loss %a without dropout\n", r.loss);
    ln_train_program_close(&p);
}

int main(int argc, char **argv) {
    if (argc < 5) {
        (void)fprintf(stderr, "usage: record_model MODEL exact|fast cpu|ref CHUNK [ADAPTER]\n");
        return 2;
    }
    const ln_numerics numerics = strcmp(argv[2], "fast") == 0 ? LN_FAST : LN_EXACT;
    const ln_device device = strcmp(argv[3], "ref") == 0 ? LN_DEVICE_REF : LN_DEVICE_CPU;
    ln_options o = ln_options_default();
    const ln_adapter_part part = {argc > 5 ? argv[5] : NULL, 1};
    ln_package *m;
    ln_eng *e;
    o.n_threads = 2, o.numerics = numerics, o.device = device, o.n_parallel = 2;
    o.n_chunk = atoi(argv[4]), o.n_logits = LN_MIN(o.n_chunk, 16), o.n_ctx = 0;
    o.quantize_bits = getenv("RECORD_QUANTIZE") ? atoi(getenv("RECORD_QUANTIZE")) : 0;
    if (argc > 5) o.adapter = &part, o.n_adapter_parts = 1;
    OK(ln_package_open(&m, argv[1], &o, err));
    o.n_ctx = LN_MIN(m->spec.n_ctx, 192);
    ln_plan plan = {.size = sizeof plan};
    OK(ln_eng_plan(m, &o, &plan, err));
    printf("plan: weights %llu, kv %llu, activations %llu, ctx %lld, contexts %lld\n",
           (unsigned long long)plan.weights_bytes, (unsigned long long)plan.kv_bytes,
           (unsigned long long)plan.activation_bytes, (long long)plan.n_ctx, (long long)plan.n_contexts);
    OK(ln_eng_open(&e, m, &o, err));
    const ln_run_sizes *z = &e->run->sizes;
    printf("pool: %lld pages of %lld bytes, %lld a sequence, scratch %llu, step %lld, adapters %llu\n",
           (long long)z->n_pages, (long long)z->page_bytes, (long long)z->seq_pages,
           (unsigned long long)z->scratch_bytes, (long long)z->step_bytes,
           (unsigned long long)z->adapter_bytes);
    put_program("run", &e->run->programs[LN_RUN_LOGITS].program);
    run_rows(e, m);
    ln_eng_close(&e);
    run_keys(m, o);
    if (argc == 5)
        for (int k = 0; k < 2; k++) train(m, device, numerics, k ? m->spec.L : 0);
    ln_package_close(&m);
    return 0;
}
