/* What a run that is resumed must find as it was: whatever changes its samples or its base model is rejected
 * by name, and the time that a template writes is that of the start. */
/* run: slow cuda */
#include <linnet.h>
#include <linnet_train.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

enum { HALF = 2, ALL = 4 };

static char top[200];
static double whole[ALL], losses[ALL];
static int n_losses;

static const char marked[] =
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '!\n' + m.content + '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant!\n' }}{%- endif %}";
/* Llama 3.2's templates write the day; here it is the second, so that another day comes soon. */
static const char dated[] =
    "{{- '<|im_start|>system\nToday: ' + strftime_now('%H:%M:%S') + '<|im_end|>\n' }}"
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}";

static void shell(const char *command) {
    char line[1200];
    snprintf(line, sizeof line, "cd '%s' && %s", top, command);
    if (system(line) != 0) fail_msg("%s", line);
}
static void put(const char *name, const char *text) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", top, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    assert_int_equal(fclose(f), 0);
}

static ln_status on_step(void *user, const ln_step_report *r, ln_error *err) {
    (void)user, (void)err;
    assert_true(r->step >= 1 && r->step <= ALL);
    losses[r->step - 1] = r->loss;
    n_losses++;
    return LN_OK;
}

/* Runs to the step `steps`, from the last checkpoint if there is one. */
static ln_status run(const ln_options *opt, int64_t steps, bool resume, ln_error *err) {
    char model[300], data[300], out[300];
    ln_model *m = NULL;
    ln_trainer *t = NULL;
    ln_trainer_options how = ln_trainer_options_default();
    ln_trainer_result r = {.size = sizeof r};
    const ln_trainer_events on = {.size = sizeof on, .on_step = on_step};
    snprintf(model, sizeof model, "%s/model", top);
    snprintf(data, sizeof data, "%s/data.jsonl", top);
    snprintf(out, sizeof out, "%s/out", top);
    how.data = data, how.out = out, how.steps = steps, how.resume = resume;
    n_losses = 0;
    ln_status st = ln_model_open(&m, model, opt, err);
    if (st == LN_OK) st = ln_trainer_new(&t, m, opt, &how, err);
    if (st == LN_OK) st = ln_trainer_run(t, &on, &r, err);
    ln_trainer_free(&t);
    ln_model_close(&m);
    return st;
}
static void must(ln_status st, const ln_error *err) {
    if (st != LN_OK) fail_msg("status %d: %s", (int)st, err->message);
}

/* Begins with a fresh copy of the model, which the command `prepare` may change, and runs the first half. */
static void start(const ln_options *opt, const char *prepare) {
    ln_error err;
    shell("rm -rf out model && cp -r '" LN_ROOT "/models/tiny' model && chmod -R u+w model && cp pairs.jsonl "
          "data.jsonl");
    shell(prepare);
    must(run(opt, HALF, false, &err), &err);
}
/* The second half is that of a run that was never interrupted. */
static void goes_on(const ln_options *opt) {
    ln_error err;
    must(run(opt, ALL, true, &err), &err);
    assert_int_equal(n_losses, ALL - HALF);
    for (int i = HALF; i < ALL; i++)
        if (losses[i] != whole[i])
            fail_msg("step %d: loss %.17g, expected %.17g", i + 1, losses[i], whole[i]);
}
static void is_refused(const ln_options *opt, const char *word) {
    ln_error err = {0};
    const ln_status st = run(opt, ALL, true, &err);
    if (st != LN_EINVALID && st != LN_EUSAGE) fail_msg("%s: status %d: %s", word, (int)st, err.message);
    if (!strstr(err.message, word)) fail_msg("the message lacks '%s': %s", word, err.message);
    assert_int_equal(n_losses, 0);
}

static void another_template_is_refused(void **state) {
    (void)state;
    char path[300];
    ln_options opt = ln_options_default();
    opt.n_threads = 2;
    start(&opt, "true");
    goes_on(&opt);
    start(&opt, "true");
    put("other.jinja", marked);
    snprintf(path, sizeof path, "%s/other.jinja", top);
    opt.chat_template = path;
    is_refused(&opt, "template: changed");
    is_refused(&opt, "samples: changed");
    opt.chat_template = NULL;
    put("model/chat_template.jinja", marked);
    is_refused(&opt, "template: changed");
    shell("rm model/chat_template.jinja");
    goes_on(&opt);
}

static void another_base_is_refused(void **state) {
    (void)state;
    ln_options opt = ln_options_default();
    opt.n_threads = 2;
    start(&opt, "true");
    opt.quantize_bits = 4;
    is_refused(&opt, "quantize: 0 then, 4 now");
    opt.quantize_bits = 0;
    shell("cp model/config.json was.json && sed -i 's/10000\\.0/500000.0/' model/config.json && ! cmp -s "
          "was.json "
          "model/config.json");
    is_refused(&opt, "config: changed");
    shell("cp was.json model/config.json");
    goes_on(&opt);
}

/* The first stop id ends the samples that are texts; it is config.json's if that has one. */
static void another_stop_id_is_refused(void **state) {
    (void)state;
    ln_options opt = ln_options_default();
    opt.n_threads = 2;
    put("texts.jsonl", "{\"text\":\"one and two\"}\n{\"text\":\"three and four\"}\n");
    start(&opt, "cp texts.jsonl data.jsonl && sed -i '/eos_token_id/d' model/config.json");
    put("model/generation_config.json", "{\"eos_token_id\":7}");
    is_refused(&opt, "samples: changed");
}

static void the_time_is_that_of_the_start(void **state) {
    (void)state;
    char path[300];
    double soon[ALL];
    ln_error err;
    ln_options opt = ln_options_default();
    opt.n_threads = 2;
    put("dated.jinja", dated);
    snprintf(path, sizeof path, "%s/dated.jinja", top);
    opt.chat_template = path;
    start(&opt, "true");
    shell("cp -r out kept");
    must(run(&opt, ALL, true, &err), &err);
    memcpy(soon, losses, sizeof soon);
    (void)nanosleep(&(struct timespec){1, 100000000}, NULL); /* another second, whatever the one was */
    shell("rm -r out && mv kept out");
    must(run(&opt, ALL, true, &err), &err);
    for (int i = HALF; i < ALL; i++) assert_true(losses[i] == soon[i]);
}

static int begin(void **state) {
    (void)state;
    ln_error err;
    ln_options opt = ln_options_default();
    snprintf(top, sizeof top, "%s/linnet-resume-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(top)) return -1;
    FILE *f = fopen(strcat(strcpy((char[300]){0}, top), "/pairs.jsonl"), "w");
    for (int i = 1; f && i <= 8; i++)
        fprintf(f, "{\"prompt\":\"question %d\",\"completion\":\"answer %d\"}\n", i, i);
    if (!f || fclose(f) != 0) return -1;
    opt.n_threads = 2;
    shell("rm -rf out model && cp -r '" LN_ROOT "/models/tiny' model && cp pairs.jsonl data.jsonl");
    must(run(&opt, ALL, false, &err), &err);
    memcpy(whole, losses, sizeof whole);
    return 0;
}
static int end(void **state) {
    (void)state;
    shell("rm -rf out model *.jinja *.json *.jsonl");
    return rmdir(top);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(another_template_is_refused), cmocka_unit_test(another_base_is_refused),
        cmocka_unit_test(another_stop_id_is_refused), cmocka_unit_test(the_time_is_that_of_the_start)};
    return cmocka_run_group_tests_name("resume", tests, begin, end);
}
