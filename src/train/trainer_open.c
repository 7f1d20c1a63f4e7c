/* Opening a run: options, data, the memory plan, the program, and the state before its first step. */
#include "../base/c_locale.h"
#include "../base/memory_use.h"
#include "../base/text_memory.h"
#include "foreign_lines.h"
#include "methods.h"
#include "moments.h"
#include "preference.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- options ---- */

static const char *keep_text(train_trainer *t, const char *text, bool *failed) {
    if (!text) return NULL;
    char *copy = ln_arena_strndup(&t->arena, text, strlen(text));
    *failed = *failed || !copy;
    return copy;
}

static ln_status bad_option(const char *name, const char *expected, ln_error *err) {
    return ln_fail(err, LN_EUSAGE, "ln_trainer_options.%s: expected %s", name, expected);
}

static const ln_train_file *keep_files(train_trainer *t, const ln_trainer_options *how, bool *failed) {
    ln_train_file *out = ln_arena_alloc(&t->arena, how->n_mix * sizeof *out);
    for (size_t i = 0; out && i < how->n_mix; i++)
        out[i] = (ln_train_file){keep_text(t, how->mix[i].path, failed), how->mix[i].weight};
    return out;
}

static ln_status check_files(const ln_trainer_options *o, ln_error *err) {
    if (o->n_mix > 1000 || (o->n_mix > 0 && !o->mix)) return bad_option("mix", "at most 1000 files", err);
    for (size_t i = 0; i < o->n_mix; i++)
        if (!o->mix[i].path || !o->mix[i].path[0] || !(o->mix[i].weight > 0 && o->mix[i].weight <= 1000))
            return bad_option("mix", "files, each with a weight above 0, at most 1000", err);
    if (o->split_by_hash && !(o->valid_split > 0))
        return bad_option("valid_split", "above 0, because ln_trainer_options.split_by_hash is set", err);
    return LN_OK;
}

static ln_status check_schedule(const ln_trainer_options *o, ln_error *err) {
    const bool decays = o->schedule == LN_SCHEDULE_WARMUP_STABLE_DECAY,
               ends_above = decays || o->schedule == LN_SCHEDULE_POLYNOMIAL ||
                            o->schedule == LN_SCHEDULE_COSINE_WITH_MIN_LR;
    if ((unsigned)o->schedule > LN_SCHEDULE_WARMUP_STABLE_DECAY)
        return bad_option("schedule", "one of LN_SCHEDULE_*", err);
    if (!(o->min_lr >= 0 && o->min_lr <= o->lr)) return bad_option("min_lr", "0 to the learning rate", err);
    if (o->min_lr > 0 && !ends_above)
        return bad_option("min_lr", "0, because this schedule does not end at a rate that is chosen", err);
    if (!(o->power > 0 && o->power <= 100)) return bad_option("power", "a number above 0, at most 100", err);
    if (o->cycles < 1 || o->cycles > 1000000) return bad_option("cycles", "1 to 1000000", err);
    if (o->decay_steps < 0) return bad_option("decay_steps", "at least 0", err);
    if (decays != (o->decay_steps > 0))
        return bad_option("decay_steps",
                          decays ? "the steps in which the rate falls" : "0 with this schedule", err);
    return LN_OK;
}

/* Comparisons are written so that a NaN is rejected. */
static ln_status check_options(const ln_trainer_options *o, ln_error *err) {
    LN_TRY(check_files(o, err));
    if (!o->data || !o->data[0]) return bad_option("data", "a file or a directory of samples", err);
    if (!(o->valid_split >= 0 && o->valid_split < 1)) return bad_option("valid_split", "0 to below 1", err);
    if (o->valid && o->valid_split > 0)
        return bad_option("valid_split", "0 if ln_trainer_options.valid names samples", err);
    if (o->max_length < 2) return bad_option("max_length", "at least 2", err);
    if (o->rank < 1 || o->rank > 4096) return bad_option("rank", "1 to 4096", err);
    if (!(o->alpha > 0 && o->alpha <= 1e6)) return bad_option("alpha", "a number above 0, at most 1e6", err);
    if (!(o->dropout >= 0 && o->dropout < 1)) return bad_option("dropout", "0 to below 1", err);
    if (!(o->lr > 0 && o->lr <= 1)) return bad_option("lr", "a number above 0, at most 1", err);
    if (o->batch < 1 || o->batch > 4096) return bad_option("batch", "1 to 4096", err);
    if (o->accum < 1 || o->accum > 4096) return bad_option("accum", "1 to 4096", err);
    if (o->epochs < 1 || o->epochs > 1000000) return bad_option("epochs", "1 to 1000000", err);
    if (o->steps < 0 || o->steps > 1000000000) return bad_option("steps", "0 to 1000000000", err);
    if (o->warmup < 0) return bad_option("warmup", "at least 0", err);
    LN_TRY(check_schedule(o, err));
    if (!(o->clip >= 0 && o->clip <= 1e6)) return bad_option("clip", "0 to 1e6", err);
    if (!(o->weight_decay >= 0 && o->weight_decay <= 1)) return bad_option("weight_decay", "0 to 1", err);
    if (o->eval_every < 0) return bad_option("eval_every", "at least 0", err);
    if (o->save_every < 0) return bad_option("save_every", "at least 0", err);
    if (o->keep < 2) return bad_option("keep", "at least 2", err);
    if (o->early_stop < 0) return bad_option("early_stop", "at least 0", err);
    if ((unsigned)o->method > LN_METHOD_FULL) return bad_option("method", "LN_METHOD_LORA or _FULL", err);
    if ((unsigned)o->preference > LN_PREFERENCE_ORPO)
        return bad_option("preference", "one of LN_PREFERENCE_*", err);
    if ((unsigned)o->optimizer > LN_OPTIMIZER_SGD)
        return bad_option("optimizer", "one of LN_OPTIMIZER_*", err);
    if ((unsigned)o->adapter_as > LN_ADAPTER_AS_GO_MLX)
        return bad_option("adapter_as", "one of LN_ADAPTER_AS_*", err);
    if (o->moment_bits != 32 && o->moment_bits != 8) return bad_option("moment_bits", "32 or 8", err);
    if (o->moment_bits == 8 && o->optimizer != LN_OPTIMIZER_ADAMW)
        return bad_option("moment_bits", "32, because 8 is of AdamW", err);
    if (!(o->momentum >= 0 && o->momentum < 1)) return bad_option("momentum", "0 to below 1", err);
    if (o->momentum > 0 && o->optimizer != LN_OPTIMIZER_SGD)
        return bad_option("momentum", "0, because AdamW has moments of its own", err);
    if (!(o->beta > 0 && o->beta <= 1e6)) return bad_option("beta", "a number above 0, at most 1e6", err);
    if (o->preference && o->dropout > 0)
        return bad_option("dropout", "0, because preferences are learned", err);
    LN_TRY(train_prompts_check(o, err));
    if (o->event_file && !o->out) return bad_option("event_file", "ln_trainer_options.out as well", err);
    if (o->resume && !o->out) return bad_option("resume", "ln_trainer_options.out as well", err);
    return train_names_check(o->fields, err);
}

/* The device of a run. MLX's has no kernels for derivatives: the CPU takes its place, and the log says so. */
static ln_device device_of(ln_device wanted, uint32_t needs) {
    const ln_device device = wanted ? wanted : ln_device_auto(needs);
    if (device != LN_DEVICE_MLX) return device;
    ln_log(LN_LOG_WARN, "training runs on the CPU, because the mlx device has no kernels for gradients");
    return LN_DEVICE_CPU;
}

static ln_status take_options(train_trainer *t, const ln_options *opt, const ln_trainer_options *how,
                              ln_error *err) {
    bool failed = false;
    LN_TRY(check_options(how, err));
    t->how = *how;
    t->how.data = keep_text(t, how->data, &failed);
    t->how.valid = keep_text(t, how->valid, &failed);
    t->how.fields = keep_text(t, how->fields, &failed);
    t->how.targets = keep_text(t, how->targets ? how->targets : "q_proj,v_proj", &failed);
    t->how.init_adapter = keep_text(t, how->init_adapter, &failed);
    t->how.layers = keep_text(t, how->layers, &failed);
    t->how.modules_to_save = keep_text(t, how->modules_to_save, &failed);
    t->how.out = keep_text(t, how->out, &failed);
    if (how->n_mix > 0 && !(t->how.mix = keep_files(t, how, &failed))) failed = true;
    if (failed) return LN_OOM(err, "options");
    if (t->how.max_length > t->m->spec.n_ctx) t->how.max_length = t->m->spec.n_ctx;
    t->memory_bytes = opt->memory_bytes;
    const uint32_t needs =
        LN_CAN_GRADIENTS | (ln_weights_are_coded(&t->m->weights) ? (uint32_t)LN_CAN_CODED : 0u) |
        (ln_weights_have_experts(&t->m->weights) ? (uint32_t)LN_CAN_EXPERTS | LN_CAN_EXPERT_GRADIENTS : 0u) |
        (t->m->spec.n_recur ? (uint32_t)LN_CAN_RECURRENT | LN_CAN_RECURRENT_GRADIENTS : 0u) |
        (ln_spec_both_ways(&t->m->spec) ? (uint32_t)LN_CAN_BOTH_WAYS : 0u);
    t->per_step = (size_t)how->batch * (size_t)how->accum;
    t->program_options.size = sizeof t->program_options;
    t->program_options.run = (ln_run_options){
        .numerics = ln_run_numerics(&t->m->spec, opt->numerics ? opt->numerics : t->m->opt.numerics),
        .device = device_of(opt->device, needs),
        .n_threads = LN_MIN(opt->n_threads > 0 ? opt->n_threads : ln_cores(), LN_RUN_MAX_THREADS),
        .progress = opt->progress};
    t->info.numerics = t->program_options.run.numerics;
    t->preference = &train_preferences[how->preference];
    t->info.method = how->method;
    t->optimiser = &train_optimisers[how->optimizer];
    t->state.n_moments = t->optimiser->n_moments(how);
    t->method = &train_methods[how->method];
    return t->method->choose(t, err);
}

/* ---- the plan ---- */

/* Order of lengths, the longest first. */
static int by_length(const void *a, const void *b) {
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x < y) - (x > y);
}
/* The tokens of a sample, or of both of a pair. */
static uint32_t length_of(const train_trainer *t, uint32_t row) {
    const size_t per = train_per_unit(t);
    uint32_t n = 0;
    for (size_t k = 0; k < per; k++) n += t->data.samples[per * row + k].n;
    return n;
}
/* The rows that the longest `batch` samples, or pairs, have together: any `batch` of them fit into so many.
 */
static ln_status most_rows(const train_trainer *t, int64_t *out, ln_error *err) {
    uint32_t *lengths = ln_zalloc(t->n_train + 1, sizeof *lengths);
    if (!lengths) return LN_OOM(err, "the lengths of samples");
    for (size_t i = 0; i < t->n_train; i++) lengths[i] = length_of(t, t->train_rows[i]);
    qsort(lengths, t->n_train, sizeof *lengths, by_length);
    *out = 0;
    for (int i = 0; i < t->how.batch; i++)
        *out += lengths[(size_t)i % t->n_train]; /* a small set comes again */
    ln_free(lengths);
    return LN_OK;
}

/* Samples that are packed at once: those of a step, or of a part of a validation. */
static size_t most_samples(const train_trainer *t) {
    return LN_MAX(train_per_unit(t) * t->per_step, (size_t)EVAL_SAMPLES);
}

static void set_program_bounds(train_trainer *t, int64_t rows) {
    t->program_options.run.n_chunk = (int)LN_MIN(rows, (int64_t)INT32_MAX / 4);
    t->program_options.run.n_seqs = (int)most_samples(t);
    t->info.n_rows = t->program_options.run.n_chunk;
}

/* What the device takes of memory of its own, with a margin for what its allocator rounds up. */
static void sum_device(train_trainer *t, const ln_train_sizes *z) {
    enum { MARGIN = 64 << 20 };
    ln_trainer_info *f = &t->info;
    f->device_bytes = f->device_available_bytes = 0;
    if (!z->device_total) return;
    f->device_bytes = z->weights_bytes + z->activation_bytes + z->scratch_bytes + z->bound_bytes + MARGIN;
    f->device_available_bytes = z->device_free;
    if (t->memory_bytes && t->memory_bytes < z->device_free) f->device_available_bytes = t->memory_bytes;
    f->peak_bytes -= f->device_bytes - MARGIN;
}

/* What the trainer allocates for micro-batches (make_scratch), and for each sample of the data. */
static uint64_t batch_bytes(const train_trainer *t) {
    const uint64_t pairs = train_is_in_pairs(t), most = most_samples(t), rows = (uint64_t)t->info.n_rows;
    const uint64_t by_sample = sizeof *t->chosen + sizeof *t->sizes + sizeof *t->bins +
                               2 * sizeof *t->scratch + sizeof *t->uses + sizeof *t->row0 +
                               sizeof *t->lengths;
    const uint64_t by_row = sizeof *t->ids + sizeof *t->targets;
    return most * (by_sample + pairs * sizeof *t->scored) +
           rows * (by_row + pairs * (sizeof *t->weights + sizeof *t->row_losses));
}
static uint64_t sample_bytes(const train_trainer *t) {
    const uint64_t n = t->preference->has_reference ? t->data.n + t->valid.n : 0;
    return n * sizeof *t->was + t->n_train * sizeof *t->order.order;
}

/* The other bytes are those that the process holds already, the graphs, and what no part counts. */
static void sum_plan(train_trainer *t, const ln_train_sizes *z, uint64_t here) {
    ln_trainer_info *f = &t->info;
    const uint64_t threads = (uint64_t)t->program_options.run.n_threads;
    f->weights_bytes = z->weights_bytes;
    f->adapter_bytes = z->param_bytes;
    f->optimizer_bytes = t->how.moment_bits == 8 ? train_codes_bytes(z->n_params, z->n_matrices)
                                                 : (uint64_t)t->state.n_moments * z->n_params * sizeof(float);
    f->optimizer_bytes += train_ranks_bytes(t, z->n_params);
    f->activation_bytes = z->activation_bytes + z->scratch_bytes + z->step_bytes + batch_bytes(t);
    f->data_bytes = (t->data.n_ids + t->valid.n_ids) * sizeof *t->data.ids;
    f->other_bytes = (here > f->data_bytes ? here - f->data_bytes : 0) + z->graph_bytes +
                     LN_MEMORY_ALLOWANCE + threads * LN_MEMORY_THREAD_ALLOWANCE;
    f->data_bytes += sample_bytes(t); /* which the process does not hold yet */
    f->peak_bytes = f->weights_bytes + f->adapter_bytes + f->optimizer_bytes + f->activation_bytes +
                    f->data_bytes + f->other_bytes;
    sum_device(t, z);
    f->n_trainable = z->n_params;
    if (t->method->full) f->n_matrices = (int64_t)z->n_matrices;
    f->n_recompute = z->n_recompute;
    f->fits = f->peak_bytes <= f->available_bytes && f->device_bytes <= f->device_available_bytes;
}

/* Measures the program for so many rows: with no recomputation, else with that of a quarter, half, three
 * quarters or all of the layers, the first with which the whole run fits into what is available. If none
 * fits, the plan is the smallest of them. So a run that fits into some memory fits into any larger one. */
static ln_status measure(train_trainer *t, int64_t rows, uint64_t here, ln_error *err) {
    ln_train_options *o = &t->program_options;
    const int L = t->m->spec.L;
    ln_train_sizes least = {0};
    uint64_t least_peak = UINT64_MAX; /* in the memory in which activations are */
    set_program_bounds(t, rows);
    o->n_recompute = -1;
    for (int quarter = 0; quarter <= 4; quarter++) {
        const int n = (L * quarter + 3) / 4;
        ln_train_sizes z;
        if (n == o->n_recompute) continue; /* of very few layers */
        o->n_recompute = n;
        LN_TRY(ln_train_program_measure(&t->m->spec, &t->m->weights, o, &z, err));
        sum_plan(t, &z, here);
        if (t->info.fits) return LN_OK;
        const uint64_t peak = z.device_total ? t->info.device_bytes : t->info.peak_bytes;
        if (peak < least_peak) least = z, least_peak = peak;
    }
    o->n_recompute = least.n_recompute;
    sum_plan(t, &least, here);
    return LN_OK;
}

/* Measures the program at the rows that `batch` samples may have, then at fewer: the first that fits, and if
 * none does the last, that of the longest sample. A run that is resumed keeps the rows that it had, because
 * they decide the order of its sums. */
static ln_status plan(train_trainer *t, ln_error *err) {
    const uint64_t here = ln_memory_resident();
    const int64_t longest = LN_MAX(t->data.longest, t->valid.longest),
                  had = json_integer_value(json_object_get(json_object_get(t->found.manifest, "settings"),
                                                           "rows"));
    int64_t rows = 0;
    LN_TRY(most_rows(t, &rows, err));
    t->info.available_bytes = here + ln_memory_left(&t->info.limit);
    if (t->memory_bytes && t->memory_bytes < t->info.available_bytes)
        t->info.available_bytes = t->memory_bytes, t->info.limit = "ln_options.memory_bytes";
    if (had >= longest && had <= LN_MAX(rows, longest)) return measure(t, had, here, err);
    for (rows = LN_MAX(rows, longest);; rows = LN_MAX(rows / 2, longest)) {
        LN_TRY(measure(t, rows, here, err));
        if (t->info.fits || rows <= longest) return LN_OK;
    }
}

static void fill_info(train_trainer *t) {
    ln_trainer_info *f = &t->info;
    const int64_t per_step = (int64_t)t->per_step, n = (int64_t)t->n_train;
    f->size = sizeof *f;
    f->n_parameters = t->m->weights.n_parameters;
    f->n_samples = n;
    f->n_valid = (int64_t)t->n_valid;
    f->n_truncated = (int64_t)(t->data.n_cut + t->valid.n_cut);
    f->n_dropped = (int64_t)(t->data.n_dropped + t->valid.n_dropped);
    f->longest = t->data.longest;
    const size_t per = train_per_unit(t);
    for (size_t i = 0; i < per * t->n_train; i++)
        f->n_targets += t->data.samples[per * t->train_rows[i / per] + i % per].n_counted;
    f->samples_per_step = (int)t->per_step;
    f->n_steps =
        t->how.steps ? t->how.steps : (t->how.epochs * (int64_t)t->n_epoch + per_step - 1) / per_step;
    t->schedule = (train_schedule){.kind = t->how.schedule,
                                   .n_warmup = t->how.warmup,
                                   .n_steps = f->n_steps,
                                   .n_decay = t->how.decay_steps,
                                   .floor = t->how.min_lr / t->how.lr,
                                   .power = t->how.power,
                                   .cycles = t->how.cycles};
    if (!t->method->full) f->n_matrices = (int)ln_lora_count(&t->program_options.lora, &t->m->weights);
}

/* Finds the checkpoint of a run that is to be resumed. */
static ln_status find_checkpoint(train_trainer *t, ln_error *err) {
    char path[4096 + 16];
    bool there = false;
    if (!t->how.resume) return LN_OK;
    train_checkpoints(t, path);
    LN_TRY(ln_look_dir(path, &there, err));
    return there ? train_checkpoint_find(path, &t->found, err) : LN_OK;
}

/* Rejects a directory that holds another run. Nothing is created, so that this can come before the data are
 * read. */
static ln_status check_out(const train_trainer *t, ln_error *err) {
    static const char *const ours[] = {
        "checkpoints",          "metrics.jsonl",       "adapter_model.safetensors",
        "adapters.safetensors", "adapter.safetensors", "adapter_config.json",
        "config.json"};
    char path[4096 + 32], shown[LN_PATH_TEXT];
    bool exists;
    const size_t n = t->method->full && t->found.manifest ? 0 : LN_COUNT(ours); /* its model is replaced */
    for (size_t i = t->how.resume ? LN_COUNT(ours) - 1 : 0; i < n; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", t->how.out, ours[i]);
        LN_TRY(ln_look(path, &exists, err));
        if (exists)
            return ln_fail(err, LN_EIO, "%s: holds %s already; %sname another directory",
                           ln_path_text(shown, t->how.out), ours[i],
                           i + 1 < LN_COUNT(ours) ? "ln_trainer_options.resume continues it, or " : "");
    }
    return LN_OK;
}

/* Determines the time that templates write into the samples. A run that is resumed keeps that of its start,
 * so that it continues with the same samples on another day. */
static void set_time(train_trainer *t) {
    const char *start = json_string_value(json_object_get(t->found.manifest, "time"));
    int64_t joined; /* ranks have the same samples */
    const time_t clock = ln_ranks_data(&joined) ? (time_t)joined : time(NULL);
    struct tm now = {0};
    if (start && (size_t)snprintf(t->time, sizeof t->time, "%s", start) < sizeof t->time) return;
    (void)localtime_r(&clock, &now);
    (void)ln_strftime(t->time, sizeof t->time, "%Y-%m-%dT%H:%M:%S", &now);
}

/* Reads what the plan depends on. `writes`: the run follows. */
static ln_status begin(train_trainer **out, const ln_package *m, const ln_options *opt,
                       const ln_trainer_options *how, bool writes, ln_error *err) {
    train_trainer *t = *out = ln_zalloc(1, sizeof *t);
    if (!t) return LN_OOM(err, "a trainer");
    t->m = m;
    t->lock = -1;
    t->metrics.fd = t->events.fd = -1;
    LN_TRY(take_options(t, opt, how, err));
    LN_TRY(find_checkpoint(t, err));
    t->ranks = writes ? ln_ranks_data(NULL) : NULL;
    t->writes = writes && t->how.out && (!t->ranks || t->ranks->rank == 0);
    if (t->writes) LN_TRY(check_out(t, err));
    set_time(t);
    ln_text_work work; /* until the plan counts what was read */
    ln_text_begin(&work);
    ln_status st = train_read_data(t, err);
    if (st == LN_OK) st = train_prompts_read(t, err);
    t->how.sample_prompts = NULL; /* of the caller */
    LN_TRY(ln_text_end(&work, st, err));
    fill_info(t);
    if (t->schedule.n_decay > LN_MAX(t->info.n_steps - t->how.warmup, 0))
        return bad_option("decay_steps", "at most the steps after the warm-up", err);
    return plan(t, err);
}

ln_status train_plan(const ln_package *m, const ln_options *opt, const ln_trainer_options *how,
                     ln_trainer_info *out, ln_error *err) {
    train_trainer *t = NULL;
    const ln_status st = begin(&t, m, opt, how, false, err);
    if (st == LN_OK) *out = t->info;
    train_close(&t);
    return st;
}

static ln_status check_plan(const train_trainer *t, ln_error *err) {
    char need[32], have[32];
    const ln_trainer_info *f = &t->info;
    if (f->fits) return LN_OK;
    if (f->peak_bytes <= f->available_bytes)
        return ln_fail(err, LN_EMEMORY,
                       "training needs %s (%llu bytes) of the GPU's memory, %s (%llu bytes) are available "
                       "(%s), with micro-batches of %lld tokens, the longest sample; lower "
                       "ln_trainer_options.max_length or rank, or take a quantised model",
                       ln_bytes_text(need, f->device_bytes), (unsigned long long)f->device_bytes,
                       ln_bytes_text(have, f->device_available_bytes),
                       (unsigned long long)f->device_available_bytes,
                       f->device_available_bytes == t->memory_bytes ? "ln_options.memory_bytes" : "free",
                       (long long)f->n_rows);
    return ln_fail(err, LN_EMEMORY,
                   "training needs %s (%llu bytes), %s (%llu bytes) are available (%s), with micro-batches "
                   "of %lld tokens, the longest sample; lower ln_trainer_options.max_length or rank, or take "
                   "a quantised model",
                   ln_bytes_text(need, t->info.peak_bytes), (unsigned long long)t->info.peak_bytes,
                   ln_bytes_text(have, t->info.available_bytes), (unsigned long long)t->info.available_bytes,
                   t->info.limit, (long long)t->info.n_rows);
}

/* ---- the directory of the result ---- */

/* Locks the directory, so that no two processes write one run. */
static ln_status lock_dir(train_trainer *t, ln_error *err) {
    char shown[LN_PATH_TEXT], why[LN_ERRNO_TEXT];
    ln_path_text(shown, t->how.out);
    t->lock = open(t->how.out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (t->lock < 0) return ln_fail(err, LN_EIO, "%s: cannot open: %s", shown, ln_errno_text(why, errno));
    if (flock(t->lock, LOCK_EX | LOCK_NB) == 0) return LN_OK;
    if (errno == EWOULDBLOCK)
        return ln_fail(err, LN_EIO, "%s: another process trains into this directory", shown);
    return ln_fail(err, LN_EIO, "%s: cannot lock: %s", shown, ln_errno_text(why, errno));
}

static ln_status open_out(train_trainer *t, ln_error *err) {
    char path[4096 + 32];
    LN_TRY(ln_make_dirs(t->how.out, err));
    LN_TRY(lock_dir(t, err));
    LN_TRY(check_out(t, err)); /* again: another run may have begun here while the data were read */
    (void)snprintf(path, sizeof path, "%s/checkpoints", t->how.out);
    LN_TRY(ln_make_dirs(path, err));
    train_checkpoint_sweep(path);
    if (t->how.resume) LN_TRY(train_checkpoint_prune(path, t->how.keep, err));
    (void)snprintf(path, sizeof path, "%s/best", t->how.out);
    train_files_sweep(path);
    train_files_sweep(t->how.out);
    return LN_OK;
}

/* ---- the state ---- */

/* Allocates moments of 8 bits. */
static ln_status make_codes(train_trainer *t, train_param *p, ln_error *err) {
    const size_t n = (size_t)(p->rows * p->cols), blocks = (size_t)train_blocks((int64_t)n);
    p->m8 = ln_arena_alloc(&t->arena, n), p->v8 = ln_arena_alloc(&t->arena, n);
    p->m_most = ln_arena_alloc(&t->arena, blocks * sizeof *p->m_most);
    p->v_most = ln_arena_alloc(&t->arena, blocks * sizeof *p->v_most);
    if (!p->m8 || !p->v8 || !p->m_most || !p->v_most) return LN_OOM(err, "the state of the optimiser");
    memset(p->m8, 0, n), memset(p->v8, 0, n);
    memset(p->m_most, 0, blocks * sizeof *p->m_most), memset(p->v_most, 0, blocks * sizeof *p->v_most);
    return LN_OK;
}

static ln_status make_state(train_trainer *t, ln_error *err) {
    size_t n;
    ln_train_param *x = ln_train_program_params(t->program, &n);
    t->state.params = ln_arena_alloc(&t->arena, (n + 1) * sizeof *t->state.params);
    if (!t->state.params) return LN_OOM(err, "the state of the optimiser");
    t->state.n_params = n;
    for (size_t i = 0; i < n; i++) {
        train_param *p = &t->state.params[i];
        const size_t size = (size_t)(x[i].rows * x[i].cols) * sizeof(float);
        t->method->name_param(t, &x[i], p->name);
        p->rows = x[i].rows, p->cols = x[i].cols, p->value = x[i].value, p->is_vector = x[i].is_magnitude;
        p->is_turned = x[i].is_lookup && !x[i].is_b && !x[i].is_whole;
        if (t->how.moment_bits == 8) {
            LN_TRY(make_codes(t, p, err));
            continue;
        }
        float **moments[] = {&p->m, &p->v};
        for (int k = 0; k < t->state.n_moments; k++)
            if (!(*moments[k] = ln_arena_alloc(&t->arena, size)))
                return LN_OOM(err, "the state of the optimiser");
    }
    ln_train_values_changed(t->program);
    return t->method->begin(t, err);
}

static ln_status make_scratch(train_trainer *t, ln_error *err) {
    const size_t most = most_samples(t), rows = (size_t)t->info.n_rows, pairs = train_is_in_pairs(t);
    t->chosen = ln_arena_alloc(&t->arena, most * sizeof *t->chosen);
    t->sizes = ln_arena_alloc(&t->arena, most * sizeof *t->sizes);
    t->bins = ln_arena_alloc(&t->arena, most * sizeof *t->bins);
    t->scratch = ln_arena_alloc(&t->arena, 2 * most * sizeof *t->scratch);
    t->uses = ln_arena_alloc(&t->arena, most * sizeof *t->uses);
    t->row0 = ln_arena_alloc(&t->arena, (most + 1) * sizeof *t->row0);
    t->lengths = ln_arena_alloc(&t->arena, most * sizeof *t->lengths);
    t->ids = ln_arena_alloc(&t->arena, rows * sizeof *t->ids);
    t->targets = ln_arena_alloc(&t->arena, rows * sizeof *t->targets);
    t->scored = pairs ? ln_arena_alloc(&t->arena, most * sizeof *t->scored) : NULL;
    t->weights = pairs ? ln_arena_alloc(&t->arena, rows * sizeof *t->weights) : NULL;
    t->row_losses = pairs ? ln_arena_alloc(&t->arena, rows * sizeof *t->row_losses) : NULL;
    if (pairs && (!t->scored || !t->weights || !t->row_losses)) return LN_OOM(err, "a micro-batch");
    if (!t->chosen || !t->sizes || !t->bins || !t->scratch || !t->uses || !t->row0 || !t->lengths ||
        !t->ids || !t->targets)
        return LN_OOM(err, "a micro-batch");
    LN_TRY(train_order_open(&t->order, t->n_train, t->how.seed, !t->how.no_shuffle, err));
    return t->n_shares > 0 ? train_order_mix(&t->order, t->shares, t->n_shares, err) : LN_OK;
}

static ln_status open_run(train_trainer *t, ln_error *err) {
    if (t->how.on_ready) LN_TRY(LN_CALLBACK(t->how.on_ready(t->how.user, &t->info, err)));
    LN_TRY(check_plan(t, err));
    if (t->writes) LN_TRY(open_out(t, err));
    LN_TRY(train_configs(t, err));
    LN_TRY(ln_train_program_open(&t->program, &t->m->spec, &t->m->weights, t->m->weight_cache,
                                 &t->program_options, err));
    LN_TRY(make_state(t, err));
    LN_TRY(make_scratch(t, err));
    return train_pairs_open(t, err);
}

/* What is done with all ranks open. */
static ln_status begin_run(train_trainer *t, ln_error *err) {
    int64_t step = 0;
    LN_TRY(train_pairs_begin(t, err));
    if (t->how.resume) LN_TRY(train_resume_from(t, &t->found, &step, err));
    if (t->writes) LN_TRY(train_metrics_open(&t->metrics, t->how.out, step, t->state.valid_step, err));
    if (t->writes && t->how.event_file) LN_TRY(train_events_open(&t->events, t->how.out, step, err));
    t->info.step = step;
    return ln_tensors_check(&t->m->tensors, false, err);
}

ln_status train_open(train_trainer **out, const ln_package *m, const ln_options *opt,
                     const ln_trainer_options *how, ln_error *err) {
    train_trainer *t = NULL;
    ln_status st = begin(&t, m, opt, how, true, err);
    ln_transport *ranks = ln_ranks_data(NULL);
    if (st == LN_OK) st = open_run(t, err);
    if (ranks) st = train_ranks_open(t, st, err);
    if (st == LN_OK) {
        st = begin_run(t, err);
        if (ranks) st = train_ranks_compare(t, st, err);
    }
    if (st != LN_OK) train_close(&t);
    *out = t;
    return st;
}

void train_close(train_trainer **trainer) {
    train_trainer *t = *trainer;
    *trainer = NULL;
    if (!t) return;
    ln_train_program_close(&t->program);
    train_data_close(&t->data);
    train_data_close(&t->valid);
    train_order_close(&t->order);
    train_metrics_close(&t->metrics);
    train_events_close(&t->events);
    train_found_free(&t->found);
    json_decref(t->settings);
    json_decref(t->adapter_config);
    if (t->lock >= 0) (void)close(t->lock);
    ln_free(t->train_rows);
    ln_free(t->valid_rows);
    ln_arena_free(&t->arena);
    ln_free(t);
}

/* Copies a sample to *out, which the caller frees, after an error too. */
static ln_status copy_sample(const train_data *d, const train_sample *s, ln_token_mask *out, ln_error *err) {
    out->n_ids = s->n;
    out->ids = ln_alloc(out->n_ids * sizeof *out->ids);
    out->mask = ln_alloc(out->n_ids);
    if (!out->ids || !out->mask) return LN_OOM(err, "a sample");
    for (size_t i = 0; i < out->n_ids; i++) {
        out->ids[i] = (int32_t)(d->ids[s->at + i] & ~TRAIN_COUNTED);
        out->mask[i] = (d->ids[s->at + i] & TRAIN_COUNTED) != 0;
    }
    return LN_OK;
}

ln_status train_samples(const ln_package *m, const ln_trainer_options *how, ln_token_mask *out, size_t most,
                        size_t *n, ln_error *err) {
    char train[4096], valid[4096];
    train_data d = {0};
    *n = 0;
    LN_TRY(check_options(how, err));
    LN_TRY(train_data_paths(how->data, how->valid, train, valid, err));
    ln_status st = train_data_open(&d, m, train, LN_MIN(how->max_length, m->spec.n_ctx),
                                   how->preference != LN_PREFERENCE_NONE, NULL, how->fields, err);
    for (; st == LN_OK && *n < LN_MIN(most, d.n); ++*n) st = copy_sample(&d, &d.samples[*n], &out[*n], err);
    train_data_close(&d);
    return st;
}
