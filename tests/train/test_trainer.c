/* The trainer: what torch and peft make of the same start (tests/golden/trainer), the same bits after any
 * interruption, and what is rejected. */
/* run: quick cuda */
#include "../common.h"

#include "base/json.h"
#include "io/adapter.h"
#include "io/io.h"

#include <dirent.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define GOLDEN LN_ROOT "/tests/golden/"
#define SMALL  GOLDEN "qwen2-f32"
static char top[100];

static const char *at(const char *name) {
    static struct {
        char name[60], path[300];
    } known[80]; /* the same pointer for a name each time: options keep it */
    for (size_t i = 0; i < LN_COUNT(known); i++) {
        if (known[i].name[0] && strcmp(known[i].name, name) != 0) continue;
        snprintf(known[i].name, sizeof known[i].name, "%s", name);
        snprintf(known[i].path, sizeof known[i].path, "%s/%s", top, name);
        return known[i].path;
    }
    fail_msg("more than 80 names");
    return NULL;
}
static void put(const char *name, const char *text) {
    FILE *f = fopen(at(name), "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    fclose(f);
}
static void remove_dir(const char *name) {
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'", at(name));
    assert_int_equal(system(command), 0);
}

static ln_options exact(int threads) {
    ln_options o = ln_options_default();
    o.numerics = LN_EXACT;
    o.n_threads = threads;
    return o;
}

/* ---- against torch and peft ---- */

static double losses[64];
static int n_losses, n_valids, stop_after;
static bool dies_at_valid; /* as a process that is killed after a validation */
static ln_device device;   /* of the next runs; LN_DEVICE_AUTO: test_device() */
static ln_status on_step(void *user, const ln_step_report *r, ln_error *err) {
    (void)user;
    if (r->step < 64) losses[r->step] = r->loss;
    n_losses++;
    assert_true(r->tokens > 0 && r->n_targets > 0 && r->n_targets < r->tokens);
    return r->step == stop_after ? ln_fail(err, LN_ECANCELLED, "stopped") : LN_OK;
}
static ln_status on_valid(void *user, const ln_valid_report *r, ln_error *err) {
    (void)user, (void)err;
    assert_true(fabs(r->perplexity - exp(r->loss)) < 1e-9 * r->perplexity);
    n_valids++;
    if (dies_at_valid) _exit(3);
    return LN_OK;
}

static ln_status run(const char *model, const ln_trainer_options *how, int threads, ln_trainer_result *r,
                     ln_error *err) {
    ln_options o = exact(threads);
    o.device = device;
    const ln_trainer_events on = {.size = sizeof on, .on_step = on_step, .on_valid = on_valid};
    ln_model *m = NULL;
    ln_trainer *t = NULL;
    *r = (ln_trainer_result){.size = sizeof *r};
    n_losses = n_valids = 0;
    ln_status st = ln_model_open(&m, model, &o, err);
    if (st == LN_OK) st = ln_trainer_new(&t, m, &o, how, err);
    if (st == LN_OK) st = ln_trainer_run(t, &on, r, err);
    ln_trainer_free(&t);
    ln_model_close(&m);
    return st;
}

/* The cosine between two movements of an adapter from its start. */
static double cosine(const char *from, const char *a, const char *b) {
    ln_tensors f, x, y;
    double dot = 0, xx = 0, yy = 0;
    OK(ln_tensors_open_file(&f, from, err));
    OK(ln_tensors_open_file(&x, a, err));
    OK(ln_tensors_open_file(&y, b, err));
    assert_int_equal(x.n, y.n);
    for (size_t i = 0; i < f.n; i++) {
        const ln_tensor *p = ln_tensors_find(&x, f.items[i].name), *q = ln_tensors_find(&y, f.items[i].name);
        assert_true(p && q && p->bytes == q->bytes && p->bytes == f.items[i].bytes);
        for (int64_t k = 0; k < (int64_t)(p->bytes / 4); k++) {
            const double z = (double)ln_num_load(f.items[i].data, LN_F32, k),
                         u = (double)ln_num_load(p->data, LN_F32, k) - z,
                         v = (double)ln_num_load(q->data, LN_F32, k) - z;
            dot += u * v, xx += u * u, yy += v * v;
        }
    }
    ln_tensors_close(&f), ln_tensors_close(&x), ln_tensors_close(&y);
    return dot / sqrt(xx * yy);
}

static void as_torch_and_peft(void **state) {
    (void)state;
    static const char *const models[] = {"llama-plain-f32", "qwen2-f32", "qwen3-bias-f32", "gemma3-text-f32"};
    for (size_t i = 0; i < LN_COUNT(models); i++) {
        char model[300], rows[300], init[300], path[400], final[400];
        json_t *want;
        ln_trainer_result r;
        ln_trainer_options how = ln_trainer_options_default();
        snprintf(model, sizeof model, GOLDEN "%s", models[i]);
        snprintf(rows, sizeof rows, GOLDEN "trainer/%s/rows.jsonl", models[i]);
        snprintf(init, sizeof init, GOLDEN "trainer/%s/init", models[i]);
        how.data = rows, how.init_adapter = init, how.out = at("golden");
        how.no_shuffle = true, how.batch = 3, how.lr = 1e-3, how.clip = 0, how.steps = 12;
        OK(run(model, &how, 2, &r, err));
        assert_int_equal(n_losses, 12);
        snprintf(path, sizeof path, GOLDEN "trainer/%s/losses.json", models[i]);
        OK(ln_json_load_file(&want, path, 10000, err));
        double worst = 0;
        for (size_t k = 0; k < 12; k++) {
            const double w = json_number_value(json_array_get(want, k));
            worst = fmax(worst, fabs(losses[k + 1] - w) / w);
        }
        json_decref(want);
        snprintf(path, sizeof path, "%s/adapter_model.safetensors", init);
        snprintf(final, sizeof final, GOLDEN "trainer/%s/final.safetensors", models[i]);
        const double same = cosine(path, at("golden/adapter_model.safetensors"), final);
        print_message("%s: losses off by at most %.1e, cosine %.8f\n", models[i], worst, same);
        assert_true(worst <= 1e-4);
        assert_true(same >= 0.999);
        remove_dir("golden");
    }
}

/* ---- the same bits ---- */

static char *bytes_of(const char *path, size_t *n) {
    char *data;
    OK(ln_read_file(path, 64 << 20, &data, n, err));
    return data;
}
static void same_files(const char *a, const char *b) {
    size_t n, m;
    char *x = bytes_of(a, &n), *y = bytes_of(b, &m);
    assert_int_equal(n, m);
    assert_memory_equal(x, y, n);
    ln_free(x), ln_free(y);
}

/* All that can carry state: shuffling over epochs, dropout, accumulation, clipping, a schedule, validation.
 */
static ln_trainer_options rich(const char *out) {
    ln_trainer_options how = ln_trainer_options_default();
    how.data = at("rows.jsonl"), how.out = out;
    how.valid_split = 0.3, how.eval_every = 4, how.save_every = 3;
    how.dropout = 0.25, how.batch = 2, how.accum = 2, how.lr = 0.01, how.clip = 0.5;
    how.schedule = LN_SCHEDULE_COSINE, how.warmup = 3, how.steps = 14, how.seed = 99;
    how.targets = "all-linear", how.rank = 3;
    return how;
}

static void make_rows(void) {
    ln_str s = {0};
    uint64_t seed = 4;
    for (int i = 0; i < 11; i++) {
        const int n = 3 + (int)(test_random(&seed) % 14);
        ln_str_adds(&s, "{\"ids\":[");
        for (int k = 0; k < n; k++) ln_str_addf(&s, "%s%u", k ? "," : "", test_random(&seed) % 260);
        ln_str_adds(&s, "]}\n");
    }
    put("rows.jsonl", s.data);
    ln_str_free(&s);
}

static void interrupted_or_not(void **state) {
    (void)state;
    double want[64];
    ln_trainer_result r;
    ln_trainer_options how = rich(at("whole"));
    make_rows();
    OK(run(SMALL, &how, 2, &r, err));
    memcpy(want, losses, sizeof want);
    assert_int_equal(r.steps, 14);
    assert_int_equal(n_valids, 4);
    assert_true(r.best_step > 0 && r.best_loss > 0);
    for (int n = 1; n <= 13; n += 4) { /* stopped after steps n, n + 4, ..., on one thread or three */
        how = rich(at("parts"));
        for (stop_after = n; stop_after < 14; stop_after += 4) {
            OK(run(SMALL, &how, n % 8 == 1 ? 1 : 3, &r, err));
            assert_true(r.cancelled && r.steps == stop_after);
            how.resume = true;
        }
        stop_after = 0;
        OK(run(SMALL, &how, 2, &r, err));
        assert_int_equal(r.steps, 14);
        assert_memory_equal(losses, want, 15 * sizeof *want);
        same_files(at("whole/adapter_model.safetensors"), at("parts/adapter_model.safetensors"));
        same_files(at("whole/best/adapter_model.safetensors"), at("parts/best/adapter_model.safetensors"));
        same_files(at("whole/checkpoints/step-00000014/train_state.safetensors"),
                   at("parts/checkpoints/step-00000014/train_state.safetensors"));
        same_files(at("whole/loss.svg"), at("parts/loss.svg"));
        remove_dir("parts");
    }
    how = rich(at("whole"));
    how.resume = true; /* a run that is done has nothing to do */
    OK(run(SMALL, &how, 2, &r, err));
    assert_true(n_losses == 0 && r.steps == 14);
}

/* Starts this program again, as a process that may use a GPU although this one has. It continues the rich run
 * in `out`. dies: it ends as if killed after a validation. */
static pid_t start_run(const char *out, bool dies) {
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)execl("/proc/self/exe", "test_trainer", top, out, dies ? "dies" : "runs", (char *)NULL);
        _exit(127);
    }
    return pid;
}
static int continue_run(char **argv) {
    ln_trainer_result r;
    snprintf(top, sizeof top, "%s", argv[1]);
    ln_trainer_options how = rich(argv[2]);
    how.resume = true, dies_at_valid = strcmp(argv[3], "dies") == 0;
    return run(SMALL, &how, 1, &r, NULL) == LN_OK ? 0 : 1;
}

/* SIGKILL at random moments: no checkpoint is lost, and the result has the same bits. */
static void killed(void **state) {
    (void)state;
    uint64_t random = 8;
    int n_killed = 0;
    const int kills = getenv("LN_LONG") ? 200 : 5;
    const unsigned longest = test_device() == LN_DEVICE_CUDA ? 1000000 : 300000; /* a GPU is opened first */
    if (!ln_exists(at("whole"))) skip();
    for (int i = 0; n_killed < kills; i++) {
        const pid_t pid = start_run(at("killed"), false);
        int status;
        usleep(test_random(&random) % longest);
        (void)kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), 0);
            same_files(at("whole/adapter_model.safetensors"), at("killed/adapter_model.safetensors"));
            remove_dir("killed");
        }
        n_killed += WIFSIGNALED(status);
        assert_true(i < 10 * kills);
    }
    ln_trainer_result r;
    ln_trainer_options how = rich(at("killed"));
    how.resume = true;
    OK(run(SMALL, &how, 1, &r, err));
    same_files(at("whole/adapter_model.safetensors"), at("killed/adapter_model.safetensors"));
    same_files(at("whole/loss.svg"), at("killed/loss.svg"));
}

static int lines_of(const char *path) {
    size_t n;
    int lines = 0;
    char *x = bytes_of(path, &n);
    for (size_t i = 0; i < n; i++) lines += x[i] == '\n';
    ln_free(x);
    return lines;
}

/* A run that is stopped before the validation of its last step validates when it goes on. Killed then, it has
 * a line in metrics.jsonl of which its checkpoint knows nothing, and what it was writing. */
static void killed_after_a_validation(void **state) {
    (void)state;
    static const char *const left[] = {"dying/loss.svg.12-3.tmp", "dying/adapter_model.safetensors.4-0.tmp",
                                       "dying/best/adapter_config.json.77-1.tmp"};
    static const char *const others[] = {"dying/loss.svg.old.tmp", "dying/notes.12-3.tmp"};
    ln_trainer_result r;
    ln_trainer_options how = rich(at("dying"));
    int status;
    if (!ln_exists(at("whole"))) skip();
    stop_after = 8; /* the second validation's step */
    OK(run(SMALL, &how, 1, &r, err));
    assert_true(r.cancelled && n_valids == 1);
    stop_after = 0;
    how.resume = true;
    for (int i = 0; i < 2; i++) {
        const pid_t pid = start_run(at("dying"), true);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    }
    for (size_t i = 0; i < LN_COUNT(left); i++) put(left[i], "torn");
    for (size_t i = 0; i < LN_COUNT(others); i++) put(others[i], "mine");
    OK(run(SMALL, &how, 1, &r, err));
    same_files(at("whole/adapter_model.safetensors"), at("dying/adapter_model.safetensors"));
    same_files(at("whole/loss.svg"), at("dying/loss.svg"));
    assert_int_equal(lines_of(at("whole/metrics.jsonl")), lines_of(at("dying/metrics.jsonl")));
    for (size_t i = 0; i < LN_COUNT(left); i++) assert_false(ln_exists(at(left[i])));
    for (size_t i = 0; i < LN_COUNT(others); i++) assert_true(ln_exists(at(others[i])));
    remove_dir("dying");
}

static ln_status fails_at_9(void *user, const ln_step_report *r, ln_error *err) {
    (void)user;
    return r->step == 9 ? ln_fail(err, LN_EIO, "disk full") : LN_OK;
}

/* A run that a callback ended goes back to its checkpoint in the same process, and writes its steps once. */
static void goes_back_in_the_process(void **state) {
    (void)state;
    const ln_options o = exact(1);
    const ln_trainer_options how = rich(at("back"));
    const ln_trainer_events failing = {.size = sizeof failing, .on_step = fails_at_9};
    ln_trainer_result r = {.size = sizeof r};
    ln_model *m = NULL;
    ln_trainer *t = NULL;
    int64_t step;
    if (!ln_exists(at("whole"))) skip();
    OK(ln_model_open(&m, SMALL, &o, err));
    OK(ln_trainer_new(&t, m, &o, &how, err));
    FAILS(LN_EIO, "disk full", ln_trainer_run(t, &failing, &r, err));
    OK(ln_trainer_resume(t, &step, err));
    assert_int_equal(step, 6); /* the validation of step 8 is done again, too */
    OK(ln_trainer_run(t, NULL, &r, err));
    ln_trainer_free(&t);
    ln_model_close(&m);
    same_files(at("whole/adapter_model.safetensors"), at("back/adapter_model.safetensors"));
    same_files(at("whole/loss.svg"), at("back/loss.svg"));
    assert_int_equal(lines_of(at("whole/metrics.jsonl")), lines_of(at("back/metrics.jsonl")));
    remove_dir("back");
}

/* ---- refusals ---- */

static void other_settings(void **state) {
    (void)state;
    ln_trainer_result r;
    ln_trainer_options how = rich(at("set"));
    make_rows();
    how.steps = 3;
    OK(run(SMALL, &how, 2, &r, err));
    FAILS(LN_EIO, "resume", run(SMALL, &how, 2, &r, err));
    how.resume = true;
    how.lr = 0.02;
    FAILS(LN_EUSAGE, "lr: \"0.01\" then, \"0.02\" now", run(SMALL, &how, 2, &r, err));
    how.lr = 0.01;
    how.steps = 4; /* the schedule depends on it */
    FAILS(LN_EUSAGE, "steps: 3 then, 4 now", run(SMALL, &how, 2, &r, err));
    how.steps = 3;
    FAILS(LN_EINVALID, "checkpoint", run(GOLDEN "llama-plain-f32", &how, 2, &r, err));
    put("rows.jsonl", "{\"ids\":[1,2,3]}\n{\"ids\":[1,2,3]}\n{\"ids\":[1,2,3]}\n");
    FAILS(LN_EINVALID, "data:", run(SMALL, &how, 2, &r, err));
    remove_dir("set/checkpoints/step-00000003");
    mkdir(at("set/checkpoints/step-00000003"), 0777);
    make_rows();
    FAILS(LN_EINVALID, "all checkpoints are damaged", run(SMALL, &how, 2, &r, err));
    remove_dir("set");
    /* a constant rate does not depend on the number of steps: a run can be made longer */
    how = rich(at("set"));
    how.schedule = LN_SCHEDULE_CONSTANT, how.steps = 3;
    OK(run(SMALL, &how, 2, &r, err));
    how.resume = true, how.steps = 5;
    OK(run(SMALL, &how, 2, &r, err));
    assert_int_equal(n_losses, 2);
    remove_dir("set");
}

/* A run that goes on on another device differs by the order of sums alone. */
static void resumes_on_another_device(void **state) {
    (void)state;
    double want[64];
    ln_trainer_result r;
    ln_trainer_options how = rich(at("one"));
    make_rows();
    how.steps = 8;
    OK(run(SMALL, &how, 2, &r, err));
    memcpy(want, losses, sizeof want);
    how.out = at("two"), stop_after = 4, device = LN_DEVICE_REF;
    OK(run(SMALL, &how, 2, &r, err));
    how.resume = true, stop_after = 0, device = LN_DEVICE_AUTO;
    OK(run(SMALL, &how, 2, &r, err));
    for (int k = 1; k <= 8; k++) assert_true(fabs(losses[k] - want[k]) <= 1e-5 * want[k]);
    remove_dir("one"), remove_dir("two");
}

static void bad_options(void **state) {
    (void)state;
    ln_model *m;
    ln_trainer *t;
    OK(ln_model_open(&m, SMALL, NULL, err));
#define BAD(word, change)                                               \
    do {                                                                \
        ln_trainer_options how = ln_trainer_options_default();          \
        how.data = "x";                                                 \
        how.change;                                                     \
        FAILS(LN_EUSAGE, word, ln_trainer_new(&t, m, NULL, &how, err)); \
    } while (0)
    BAD("rank", rank = 0);
    BAD("alpha", alpha = (double)NAN);
    BAD("lr", lr = (double)NAN);
    BAD("batch", batch = 0);
    BAD("accum", accum = -1);
    BAD("dropout", dropout = 1);
    BAD("keep", keep = 1);
    BAD("clip", clip = -1);
    BAD("weight_decay", weight_decay = (double)NAN);
    BAD("valid_split", valid_split = 1);
    BAD("max_length", max_length = 1);
    BAD("data", data = NULL);
    BAD("resume", resume = true);
    BAD("schedule", schedule = (ln_schedule)99);
    BAD("warmup", warmup = -1);
    BAD("steps", steps = -1);
    BAD("targets", targets = "q_proj,nothing");
    BAD("targets", targets = "");
    BAD("targets", targets = "lm_head,embed");
    ln_trainer_options how = ln_trainer_options_default();
    how.data = "/no/such/file";
    FAILS(LN_EIO, "/no/such/file", ln_trainer_new(&t, m, NULL, &how, err));
    make_rows();
    how.data = at("rows.jsonl");
    ln_options o = exact(1);
    o.memory_bytes = 1000;
    FAILS(LN_EMEMORY, "ln_options.memory_bytes", ln_trainer_new(&t, m, &o, &how, err));
    ln_trainer_info info = {.size = sizeof info};
    OK(ln_trainer_plan(m, &o, &how, &info, err));
    assert_true(!info.fits && info.peak_bytes > 1000 && info.n_rows < 60 && info.n_samples == 11);
    how.out = at("lock");
    OK(ln_trainer_new(&t, m, NULL, &how, err));
    ln_trainer *second;
    how.resume = true;
    FAILS(LN_EIO, "another process", ln_trainer_new(&second, m, NULL, &how, err));
    ln_trained x;
    OK(ln_trainer_matrix(t, 0, &x, err));
    assert_true(strstr(x.name, "layers.0.self_attn.q_proj.lora_A.weight") && x.rows == 8);
    FAILS(LN_EUSAGE, "expected 0 to 7", ln_trainer_matrix(t, 8, &x, err));
    ln_valid_report v = {.size = sizeof v};
    FAILS(LN_EUSAGE, "valid", ln_trainer_eval(t, &v, err));
    ln_trainer_free(&t);
    ln_model_close(&m);
    remove_dir("lock");
}

/* A loss that is not finite skips the step, three end the run, and the checkpoint before them stays. */
static void no_finite_loss(void **state) {
    (void)state;
    ln_trainer_result r;
    ln_trainer_options how = rich(at("nan"));
    ln_tensors t;
    make_rows();
    how.valid_split = 0, how.steps = 4, how.save_every = 1, how.clip = 0, how.schedule = LN_SCHEDULE_CONSTANT;
    OK(run(SMALL, &how, 2, &r, err));
    /* an adapter whose product overflows */
    OK(ln_tensors_open_file(&t, at("nan/adapter_model.safetensors"), err));
    size_t n;
    char *data = bytes_of(at("nan/adapter_model.safetensors"), &n);
    const float large = 3e38f;
    for (size_t i = 0; i < t.n; i++)
        for (uint64_t k = 0; k < t.items[i].bytes; k += 4)
            memcpy(data + (t.items[i].data - t.files[0].map.data) + k, &large, 4);
    ln_tensors_close(&t);
    mkdir(at("large"), 0777);
    FILE *f = fopen(at("large/adapter_model.safetensors"), "wb");
    assert_int_equal(fwrite(data, 1, n, f), n);
    fclose(f);
    ln_free(data);
    data = bytes_of(at("nan/adapter_config.json"), &n);
    put("large/adapter_config.json", data);
    ln_free(data);
    remove_dir("nan");
    how.init_adapter = at("large");
    FAILS(LN_ENUMERIC, "3 steps in a row", run(SMALL, &how, 2, &r, err));
    assert_int_equal(n_losses, 2);
    how.resume = true; /* after the two steps that were saved the third fails again */
    FAILS(LN_ENUMERIC, "step 3", run(SMALL, &how, 2, &r, err));
    remove_dir("nan");
    remove_dir("large");
}

static void early_stop(void **state) {
    (void)state;
    ln_trainer_result r;
    ln_trainer_options how = rich(at("early"));
    make_rows();
    how.lr = 1, how.eval_every = 1, how.early_stop = 2, how.steps = 60, how.warmup = 0, how.clip = 0,
    how.dropout = 0;
    OK(run(SMALL, &how, 2, &r, err));
    assert_true(r.stopped_early && r.steps < 60 && r.best_step == r.steps - 2);
    ln_adapter_info a = {.size = sizeof a};
    OK(ln_adapter_show(at("early/best"), SMALL, &a, err));
    assert_true(a.n_applied == a.n_tensors && a.rank_max == 3);
    remove_dir("early");
    how.valid = NULL, how.valid_split = 0;
    FAILS(LN_EUSAGE, "early_stop: expected 0 if there are no samples", run(SMALL, &how, 2, &r, err));
}

/* ---- memory ---- */

enum { MANY = 128, LONG = 64 /* samples and tokens of a step whose activations are most of the memory */ };

static void make_long_rows(void) {
    ln_str s = {0};
    uint64_t seed = 6;
    for (int i = 0; i < MANY; i++) {
        ln_str_adds(&s, "{\"ids\":[");
        for (int k = 0; k < LONG; k++) ln_str_addf(&s, "%s%u", k ? "," : "", test_random(&seed) % 260);
        ln_str_adds(&s, "]}\n");
    }
    put("long.jsonl", s.data);
    ln_str_free(&s);
}

/* What a run with so much memory takes beyond what the process held: at most 1.02 of the parts that its plan
 * adds to that, and at least nine tenths of the activations. Returns the plan. dora: and moments of 8 bits.
 */
static ln_trainer_info measure(ln_model *m, uint64_t limit, bool dora, const char *targets) {
    ln_trainer *t;
    ln_trainer_info info = {.size = sizeof info};
    ln_memory use = {.size = sizeof use};
    ln_options o = exact(2);
    ln_trainer_options how = ln_trainer_options_default();
    ln_step_report r = {.size = sizeof r};
    how.data = at("long.jsonl"), how.batch = MANY, how.steps = 1;
    if (dora) how.dora = true, how.moment_bits = 8, how.targets = "all-linear";
    if (targets) how.targets = targets;
    o.memory_bytes = limit;
    const uint64_t before = (ln_memory_reset_peak(), ln_memory_resident());
    OK(ln_trainer_plan(m, &o, &how, &info, err));
    OK(ln_trainer_new(&t, m, &o, &how, err));
    OK(ln_trainer_step(t, &r, err));
    ln_trainer_free(&t);
    ln_memory_stats(&use);
    const double taken = (double)(use.peak_bytes - before),
                 planned = (double)(info.peak_bytes - info.other_bytes);
    print_message("%d layers recomputed, %lld rows: %.1f of %.1f MB\n", info.n_recompute,
                  (long long)info.n_rows, taken / 1e6, planned / 1e6);
    assert_true(taken <= 1.02 * planned);
    assert_true(taken >= 0.9 * (double)info.activation_bytes);
    return info;
}

/* Nothing recomputed, all layers, smaller micro-batches. */
static void takes_what_was_planned(void **state) {
    (void)state;
    ln_model *m;
    const ln_options o = exact(2);
    /* a sanitizer's shadow is no part of a plan; test_cuda_memory has the GPU's */
    if (getenv("LN_SANITIZED") || test_device() == LN_DEVICE_CUDA) skip();
    make_long_rows();
    OK(ln_model_open(&m, SMALL, &o, err));
    const ln_trainer_info all = measure(m, 0, false, NULL);
    assert_int_equal(all.n_recompute, 0);
    assert_true(all.activation_bytes > all.peak_bytes / 2);
    const ln_trainer_info some = measure(m, all.peak_bytes * 9 / 10, false, NULL);
    assert_true(some.n_recompute > 0 && some.n_rows == all.n_rows);
    assert_true(measure(m, all.peak_bytes / 2, false, NULL).n_rows < all.n_rows);
    assert_true(measure(m, measure(m, 0, true, NULL).peak_bytes * 9 / 10, true, NULL).n_recompute > 0);
    (void)measure(m, 0, false, "q_proj,embed_tokens,lm_head");
    ln_model_close(&m);
}

static int begin(void **state) {
    (void)state;
    snprintf(top, sizeof top, "%s/linnet-trainer-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    return mkdtemp(top) ? 0 : -1;
}
static int end(void **state) {
    (void)state;
    char command[200];
    snprintf(command, sizeof command, "rm -rf '%s'", top);
    return system(command);
}

int main(int argc, char **argv) {
    if (argc == 4) return continue_run(argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_torch_and_peft),
        cmocka_unit_test(interrupted_or_not),
        cmocka_unit_test(killed),
        cmocka_unit_test(killed_after_a_validation),
        cmocka_unit_test(goes_back_in_the_process),
        cmocka_unit_test(other_settings),
        cmocka_unit_test(resumes_on_another_device),
        cmocka_unit_test(bad_options),
        cmocka_unit_test(no_finite_loss),
        cmocka_unit_test(early_stop),
        cmocka_unit_test(takes_what_was_planned),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
