/* linnet plan: the memory that a verb with these flags would need, without allocating it. */
#include "../base/os.h"
#include "../serve/serve.h"
#include "class_inputs.h"

#include <string.h>

/* Counts the tokens of the prompt, so that the default context is the same as that of the run. */
static ln_status count_prompt(const args *a, const ln_options *opt, int64_t *n, ln_error *err) {
    input in = {0};
    ln_model *model = NULL;
    ln_status st = LN_OK;
    size_t count = 0;
    *n = 0;
    if (!input_given(a)) return LN_OK;
    LN_GO(input_read(&in, a, true, err));
    count = in.n_ids;
    if (!in.ids) {
        ln_prompt p = prompt_of(a, &in);
        if (planned_verb(a) != VERB_RUN) p.tmpl = LN_TEMPLATE_RAW; /* these verbs take raw text */
        LN_GO(ln_model_open(&model, a->model, opt, err));
        LN_GO(ln_prompt_ids(model, &p, NULL, 0, &count, err));
    }
    *n = (int64_t)count;
out:
    ln_model_close(&model);
    input_free(&in);
    return st;
}

static int n_ranks(const args *a) { return (int)a->flag[F_RANKS].i; }

/* Appends a row for each GPU, which all take the same, if --device names some. */
static void add_gpus(ln_str *s, const args *a, const ln_plan *p, bool json) {
    int gpus[GPUS_MOST], n;
    char name[24], text[32];
    if (gpus_of(a, gpus, &n, NULL) != LN_OK || n == 0 || p->device_available_bytes == 0) return;
    if (json) ln_str_adds(s, ",\"gpus\":[");
    for (int i = 0; i < n; i++) {
        const unsigned long long bytes = p->device_bytes;
        (void)snprintf(name, sizeof name, " GPU %d", gpus[i]);
        if (json) ln_str_addf(s, "%s{\"gpu\":%d,\"device_bytes\":%llu}", i ? "," : "", gpus[i], bytes);
        else ln_str_addf(s, "%-12s %12s  %llu\n", name, bytes_text(text, p->device_bytes), bytes);
    }
    if (json) ln_str_adds(s, "]");
}
/* Bytes of a rank: the first has the texts. All have equal shares of the model. */
static uint64_t rank_bytes(const ln_plan *p, int rank) { return p->peak_bytes - (rank ? p->text_bytes : 0); }

static void put_ranks(ln_str *s, const ln_plan *p, int n) {
    ln_str_adds(s, ",\"ranks\":[");
    for (int i = 0; i < n; i++)
        ln_str_addf(s, "%s{\"rank\":%d,\"peak_bytes\":%llu,\"weights_bytes\":%llu,\"kv_bytes\":%llu}",
                    i ? "," : "", i, (unsigned long long)rank_bytes(p, i),
                    (unsigned long long)p->weights_bytes, (unsigned long long)p->kv_bytes);
    ln_str_adds(s, "]");
}

static ln_status print_json(const args *a, const ln_plan *p, const ln_info *m, ln_error *err) {
    const int ranks = n_ranks(a);
    ln_str s = {0};
    ln_str_add(&s, "{", 1);
    put_uint(&s, "peak_bytes", p->peak_bytes);
    put_uint(&s, "weights_bytes", p->weights_bytes);
    put_uint(&s, "kv_bytes", p->kv_bytes);
    put_uint(&s, "state_bytes", p->state_bytes);
    put_int(&s, "snapshots", p->n_snapshots);
    put_uint(&s, "activation_bytes", p->activation_bytes);
    put_uint(&s, "text_bytes", p->text_bytes);
    put_uint(&s, "other_bytes", p->other_bytes);
    put_uint(&s, "adapter_bytes", p->adapter_bytes);
    put_uint(&s, "available_bytes", p->available_bytes);
    if (p->device_available_bytes) {
        put_uint(&s, "device_bytes", p->device_bytes);
        put_uint(&s, "device_available_bytes", p->device_available_bytes);
    }
    put_int(&s, "ctx", p->n_ctx);
    put_int(&s, "parallel", p->n_parallel);
    put_int(&s, "contexts", p->n_contexts);
    put_text(&s, "numerics", numerics_name(p->numerics));
    put_text(&s, "matrices", m->kept);
    put_uint(&s, "parameters", m->n_parameters);
    put_uint(&s, "active_parameters", m->n_active_parameters);
    ln_str limit = {0};
    advice_add(&limit, p->limit);
    ln_str_add(&limit, "", 1);
    put_text(&s, "limit", limit.failed ? p->limit : limit.data);
    ln_str_free(&limit);
    put_bool(&s, "fits", p->fits);
    put_int(&s, "largest_ctx", p->largest_ctx);
    if (ranks) put_ranks(&s, p, ranks);
    add_gpus(&s, a, p, true);
    ln_str_adds(&s, "}\n");
    return out_str(&s, err);
}

static void line(ln_str *s, const char *what, uint64_t bytes) {
    char text[32];
    ln_str_addf(s, "%-12s %12s  %llu\n", what, bytes_text(text, bytes), (unsigned long long)bytes);
}

/* Rounds a context down to KV pages of 64 positions, for display. */
static int64_t rounded(int64_t ctx) { return ctx >= 64 ? ctx - ctx % 64 : ctx; }

/* What the context is to hold: the prompt, and the tokens of -n if it is given. */
typedef struct wanted {
    int64_t prompt, n;
} wanted;

static wanted need_of(const args *a, int64_t n_prompt) {
    bool counts = planned_verb(a) == VERB_RUN && has(a, F_N);
    return (wanted){n_prompt, counts ? LN_MAX(a->flag[F_N].i, 0) : 0};
}

/* The last token that is generated takes no position. */
static bool holds(int64_t ctx, wanted need) { return ctx >= need.prompt + LN_MAX(need.n - 1, 0); }

/* The largest context as it is advised: in whole pages if these hold what is needed. */
static int64_t advised(int64_t ctx, wanted need) { return holds(rounded(ctx), need) ? rounded(ctx) : ctx; }

/* Prints that a context does not hold what is needed, or nothing if it does. */
static void add_shortage(ln_str *s, int64_t ctx, wanted need) {
    if (holds(ctx, need)) return;
    ln_str_addf(s, ", but holds less than the prompt of %lld token%s", (long long)need.prompt,
                need.prompt == 1 ? "" : "s");
    if (need.n > 0) ln_str_addf(s, " and -n %lld", (long long)need.n);
}

/* Appends the first of several changes with which the run would fit and its context hold what is needed;
 * each is actually planned. If there is none, the first with which a smaller context would fit. */
static void add_what_would_fit(ln_str *s, const args *a, const ln_options *opt, const ln_plan *p,
                               wanted need) {
    const struct {
        const char *flags;
        int chunk, bits;
        bool fast;
    } changes[] = {{"", 0, 0, false},
                   {"--chunk 32", 32, 0, false},
                   {"--numerics fast", 0, 0, true},
                   {"--quantize 8", 0, 8, false},
                   {"--quantize 4", 0, 4, false},
                   {"--quantize 4 --chunk 32 --numerics fast", 32, 4, true}};
    const char *flags = NULL;
    int64_t largest = 0;
    for (size_t i = 0; i < LN_COUNT(changes); i++) {
        ln_options o = *opt;
        ln_plan q = *p;
        if (changes[i].chunk) o.n_chunk = changes[i].chunk;
        if (changes[i].bits) o.quantize_bits = changes[i].bits;
        if (changes[i].fast) o.numerics = LN_FAST;
        if ((i > 0 && ln_plan_memory(a->model, &o, &q, NULL) != LN_OK) || q.largest_ctx == 0)
            continue; /* for example, a quantised model cannot be quantised again */
        if (flags && !holds(q.largest_ctx, need)) continue;
        flags = changes[i].flags, largest = q.largest_ctx;
        if (holds(largest, need)) break;
    }
    if (!flags) {
        ln_str_adds(s,
                    "no --ctx, --chunk or --quantize makes it fit with 1 MiB to spare: take a smaller model "
                    "or more memory");
        return;
    }
    const int64_t ctx = advised(largest, need);
    ln_str_adds(s, flags);
    if (!flags[0] || largest < p->n_ctx) ln_str_addf(s, "%s--ctx %lld", flags[0] ? " " : "", (long long)ctx);
    ln_str_adds(s, " would fit");
    add_shortage(s, largest < p->n_ctx ? ctx : p->n_ctx, need);
}

static ln_status print_text(const args *a, const ln_options *opt, const ln_plan *p, wanted need,
                            const ln_info *m, ln_error *err) {
    ln_str s = {0};
    char lack[32];
    line(&s, "weights", p->weights_bytes);
    line(&s, "kv", p->kv_bytes);
    if (p->state_bytes) line(&s, "state", p->state_bytes);
    line(&s, "activations", p->activation_bytes);
    line(&s, "texts", p->text_bytes);
    line(&s, "other", p->other_bytes);
    const bool gpu_memory = p->device_available_bytes > 0;
    if (p->adapter_bytes > 0 && !gpu_memory) line(&s, " adapters", p->adapter_bytes);
    line(&s, "peak", p->peak_bytes);
    for (int i = 0; i < n_ranks(a); i++) {
        char name[24];
        (void)snprintf(name, sizeof name, " rank %d", i);
        line(&s, name, rank_bytes(p, i));
    }
    line(&s, "available", p->available_bytes);
    if (gpu_memory) {
        line(&s, "GPU peak", p->device_bytes);
        add_gpus(&s, a, p, false);
        if (p->adapter_bytes > 0) line(&s, " adapters", p->adapter_bytes);
        line(&s, "GPU free", p->device_available_bytes);
    }
    ln_str_adds(&s, "limit        ");
    advice_add(&s, p->limit);
    ln_str_adds(&s, "\n");
    ln_str_addf(&s, "context      %lld positions, numerics %s\n", (long long)p->n_ctx,
                numerics_name(p->numerics));
    ln_str_addf(&s, "matrices     %s\n", m->kept);
    if (m->n_active_parameters && m->n_active_parameters != m->n_parameters)
        ln_str_addf(&s, "parameters   %.1f M, of which a token is multiplied with %.1f M\n",
                    1e-6 * (double)m->n_parameters, 1e-6 * (double)m->n_active_parameters);
    if (p->n_ctx < need.prompt)
        ln_str_addf(&s,
                    "prompt       %lld tokens: more than this context holds, so that the run ends with an "
                    "error\n",
                    (long long)need.prompt);
    if (p->n_parallel > 1)
        ln_str_addf(&s, "parallel     %d sequences, of which %lld can fill the context at once\n",
                    p->n_parallel, (long long)p->n_contexts);
    if (plans_server(a))
        ln_str_addf(&s, "queue        %d requests that wait, with prompts of the whole context\n",
                    opt->n_queue);
    if (p->fits) {
        ln_str_addf(&s, "fits: yes; --ctx %lld is the largest that does", (long long)p->largest_ctx);
        add_shortage(&s, p->largest_ctx, need);
        ln_str_adds(&s, "\n");
    } else {
        const bool gpu = p->device_bytes > p->device_available_bytes;
        ln_str_addf(&s, "fits: no, %s short%s; ",
                    bytes_text(lack, gpu ? p->device_bytes - p->device_available_bytes
                                         : p->peak_bytes - p->available_bytes),
                    gpu ? " on the GPU" : "");
        add_what_would_fit(&s, a, opt, p, need);
        ln_str_adds(&s, "\n");
    }
    return out_str(&s, err);
}

/* eval takes as much for any text. */
static ln_status plan_eval(const args *a, ln_options *opt, ln_error *err) {
    ln_info *info = ln_zalloc(1, sizeof *info);
    if (!info) return LN_OOM(err, "a model's facts");
    info->size = sizeof *info;
    ln_status st = ln_show(a->model, opt, info, err);
    if (st == LN_OK) st = eval_size(a, info, opt, err);
    ln_free(info);
    return st;
}

/* The plan of batch with its file, if the arguments name one. */
static ln_status plan_batch(const args *a, ln_options *opt, ln_error *err) {
    ln_model *model = NULL;
    if (opt->n_parallel == 0) opt->n_parallel = BATCH_PARALLEL;
    if (!a->argument) return LN_OK;
    ln_status st = ln_model_open(&model, a->model, opt, err);
    if (st == LN_OK) st = batch_size(a, model, opt, err);
    ln_model_close(&model);
    return st;
}

/* Sets the options that the verb derives from its input. *n_prompt: tokens of the one prompt, 0 if there are
 * many or none. */
static ln_status size_options(const args *a, ln_options *opt, int64_t *n_prompt, ln_error *err) {
    *n_prompt = 0;
    if (planned_verb(a) == VERB_CLASSIFY) return class_plan(a, opt, err);
    if (planned_verb(a) == VERB_EVAL) return plan_eval(a, opt, err);
    if (planned_verb(a) == VERB_BATCH) return plan_batch(a, opt, err);
    if (plans_server(a)) {
        if (opt->n_parallel == 0) opt->n_parallel = BATCH_PARALLEL;
        opt->n_queue = has(a, F_MAX_QUEUE) ? (int)a->flag[F_MAX_QUEUE].i : SERVE_MOST_QUEUE;
        opt->embeddings = true;
        opt->text_bytes = SERVE_MOST_TEXTS;
        return serve_size(a->model, opt, err);
    }
    LN_TRY(count_prompt(a, opt, n_prompt, err));
    opt->n_expected = planned_verb(a) == VERB_RUN ? positions_needed(a, *n_prompt) : *n_prompt;
    return LN_OK;
}

/* The plan of a training run: that of train --dry-run. */
static ln_status plan_train(const args *a, const ln_options *opt, ln_error *err) {
    ln_trainer_options how;
    ln_trainer_info f = {.size = sizeof f};
    ln_model *model = NULL;
    ln_str s = {0};
    ln_status st = train_options(a, &how, err);
    if (st == LN_OK) st = ln_model_open(&model, a->model, opt, err);
    if (st == LN_OK) st = ln_trainer_plan(model, opt, &how, &f, err);
    ln_model_close(&model);
    if (st != LN_OK) return st;
    if (!has(a, F_JSON)) {
        train_plan_text(&s, &f);
        return out_str(&s, err);
    }
    const struct {
        const char *name;
        uint64_t bytes;
    } parts[] = {{"peak_bytes", f.peak_bytes},
                 {"weights_bytes", f.weights_bytes},
                 {"adapter_bytes", f.adapter_bytes},
                 {"optimizer_bytes", f.optimizer_bytes},
                 {"activation_bytes", f.activation_bytes},
                 {"data_bytes", f.data_bytes},
                 {"other_bytes", f.other_bytes},
                 {"available_bytes", f.available_bytes},
                 {"trainable", f.n_trainable},
                 {"rows", (uint64_t)f.n_rows},
                 {"recomputed_layers", (uint64_t)f.n_recompute},
                 {"steps", (uint64_t)f.n_steps}};
    ln_str_adds(&s, "{");
    for (size_t i = 0; i < LN_COUNT(parts); i++) put_uint(&s, parts[i].name, parts[i].bytes);
    if (f.device_available_bytes) {
        put_uint(&s, "device_bytes", f.device_bytes);
        put_uint(&s, "device_available_bytes", f.device_available_bytes);
    }
    put_text(&s, "numerics", numerics_name(f.numerics));
    put_text(&s, "limit", f.limit);
    ln_str_addf(&s, ",\"fits\":%s}\n", f.fits ? "true" : "false");
    return out_str(&s, err);
}

ln_status cmd_plan(const args *a, ln_error *err) {
    ln_options opt;
    ln_plan plan = {.size = sizeof plan};
    int64_t n_prompt;
    LN_TRY(options_of(a, &opt, err));
    if (has(a, F_RANKS)) (void)ln_ranks_plan(n_ranks(a));
    if (planned_verb(a) == VERB_TRAIN) return plan_train(a, &opt, err);
    LN_TRY(size_options(a, &opt, &n_prompt, err));
    ln_os_heap_trim();        /* memory of the tokenizer must not be counted below */
    opt.chat_template = NULL; /* it was read to count the prompt, and a pipe can be read once only */
    LN_TRY(ln_plan_memory(a->model, &opt, &plan, err));
    ln_info *info = ln_zalloc(1, sizeof *info);
    if (!info) return LN_OOM(err, "a model's facts");
    info->size = sizeof *info;
    ln_status st = ln_show(a->model, &opt, info, err);
    if (st == LN_OK)
        st = has(a, F_JSON) ? print_json(a, &plan, info, err)
                            : print_text(a, &opt, &plan, need_of(a, n_prompt), info, err);
    ln_free(info);
    return st;
}
