/* Event files: records that readers of TensorFlow's format accept, with the numbers of the run. */
/* run: quick */
#include "train_runs.h"

#include "train/event_file.h"

#include <dirent.h>

/* CRC-32C by polynomial division, the highest bit first of each reflected byte. */
static uint32_t crc_of(const uint8_t *data, size_t bytes) {
    uint32_t table[256], c = UINT32_MAX;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int k = 0; k < 8; k++) table[i] = table[i] & 1 ? table[i] >> 1 ^ 0x82f63b78u : table[i] >> 1;
    }
    for (size_t i = 0; i < bytes; i++) c = c >> 8 ^ table[(c ^ data[i]) & 255];
    c ^= UINT32_MAX;
    return (c >> 15 | c << 17) + 0xa282ead8u;
}
static uint64_t little(const uint8_t *p, int bytes) {
    uint64_t v = 0;
    for (int i = bytes; i-- > 0;) v = v << 8 | p[i];
    return v;
}

enum { MOST = 64 };
typedef struct records {
    char data[MOST][1024];
    size_t bytes[MOST], n;
} records;

/* Reads all records of the only event file but `except` in the directory `name`. */
static void read_records(const char *name, const char *except, records *out, char file[300]) {
    char path[400], where[800];
    uint8_t head[12], tail[4];
    out->n = 0;
    file[0] = '\0';
    DIR *d = opendir(at(path, name));
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        if (strncmp(e->d_name, "events.out.tfevents.", 20) == 0 && strcmp(e->d_name, except) != 0)
            snprintf(file, 300, "%s", e->d_name);
    closedir(d);
    snprintf(where, sizeof where, "%s/%s", path, file);
    FILE *f = fopen(where, "rb");
    assert_non_null(f);
    while (fread(head, 1, sizeof head, f) == sizeof head) {
        const size_t n = (size_t)little(head, 8);
        assert_true(out->n < MOST && n < sizeof out->data[0]);
        assert_int_equal(little(head + 8, 4), crc_of(head, 8));
        assert_int_equal(fread(out->data[out->n], 1, n, f), n);
        assert_int_equal(fread(tail, 1, 4, f), 4);
        assert_int_equal(little(tail, 4), crc_of((const uint8_t *)out->data[out->n], n));
        out->bytes[out->n++] = n;
    }
    assert_true(feof(f));
    fclose(f);
}

/* The number after a tag in a record, NAN if the record has no such tag. */
static double scalar(const records *r, size_t i, const char *tag) {
    char name[64];
    float value;
    snprintf(name, sizeof name, "%c%s%c", (char)strlen(tag), tag, 2 << 3 | 5);
    const char *p = memmem(r->data[i], r->bytes[i], name, strlen(name));
    if (!p) return (double)NAN;
    memcpy(&value, p + strlen(name), sizeof value);
    return (double)value;
}
/* The step of a record: after the 9 bytes of the time. */
static int step_of(const records *r, size_t i) {
    assert_int_equal(r->data[i][0], 1 << 3 | 1);
    assert_int_equal(r->data[i][9], 2 << 3);
    return r->data[i][10];
}

static ln_trainer_options run_of(const char *out) {
    static char data[400];
    ln_trainer_options how = ln_trainer_options_default();
    how.data =
        put(data, "rows.jsonl", "{\"ids\":[1,5,7,8,9]}\n{\"ids\":[4,5,6,3,2,2,9]}\n{\"ids\":[11,17,28]}\n");
    how.out = out, how.batch = 1, how.steps = 6, how.eval_every = 3, how.valid_split = 0.3,
    how.event_file = true;
    return how;
}

static void numbers_of_the_run(void **state) {
    (void)state;
    static records r;
    char out[400], first[300], second[300];
    ln_trainer_options how = run_of(at(out, "run"));
    stop_after = 4;
    OK(train(SMALL, &how, 1, err));
    read_records("run", "", &r, first);
    assert_int_equal(r.n, 1 + 4 + 1);
    assert_non_null(memmem(r.data[0], r.bytes[0], "brain.Event:2", 13));
    for (int i = 1, step = 1; i <= 5; i++) {
        if (i == 4) { /* the validation after step 3 */
            assert_true(scalar(&r, 4, "eval/loss") == (double)(float)valid.loss);
            assert_true(isnan(scalar(&r, 4, "train/loss")));
            continue;
        }
        assert_int_equal(step_of(&r, (size_t)i), step);
        assert_true(scalar(&r, (size_t)i, "train/loss") == (double)(float)steps[step].loss);
        assert_true(scalar(&r, (size_t)i, "train/learning_rate") == (double)(float)steps[step].lr);
        assert_true(isnan(scalar(&r, (size_t)i, "train/rewards/margins")));
        step++;
    }
    /* a run that goes on writes a file of its own, which says from which step on it holds */
    stop_after = 0, how.resume = true;
    OK(train(SMALL, &how, 1, err));
    read_records("run", first, &r, second);
    assert_int_equal(step_of(&r, 1), 5);
    assert_non_null(memmem(r.data[1], r.bytes[1], "\x3a\x02\x08\x01", 4)); /* session_log, status START */
    assert_int_equal(step_of(&r, 2), 5);
    assert_true(scalar(&r, 3, "train/loss") == (double)(float)steps[6].loss);
    how.event_file = true, how.out = NULL, how.resume = false;
    FAILS(LN_EUSAGE, "ln_trainer_options.event_file", train(SMALL, &how, 1, err));
}

/* A text is a tensor of one string, for the plug-in of texts. */
static void texts_of_the_run(void **state) {
    (void)state;
    static records r;
    static const char *const prompts[] = {"Once\nmore"};
    static const char metadata[] = "\x4a\x08\x0a\x06\x0a\x04text", tag[] = "\x0a\x09samples/1",
                      type[] = "\x08\x07\x12\x04\x12\x02\x08\x01\x42",
                      code[] = "prompt:\n\n    Once\n    more\n\ntext:";
    char out[400], data[400], file[300];
    ln_trainer_options how = run_of(at(out, "texts"));
    how.data = put(data, "texts.jsonl", "{\"text\":\"Once more.\"}\n"), how.valid_split = 0;
    how.sample_every = 2, how.sample_prompts = prompts, how.n_sample_prompts = 1, how.sample_tokens = 3;
    how.steps = 2;
    OK(train(LN_ROOT "/models/tiny", &how, 1, err));
    read_records("texts", "", &r, file);
    assert_int_equal(r.n, 1 + 2 + 1);
    assert_int_equal(step_of(&r, 3), 2);
    assert_non_null(memmem(r.data[3], r.bytes[3], tag, sizeof tag - 1));
    assert_non_null(memmem(r.data[3], r.bytes[3], type, sizeof type - 1));
    assert_non_null(memmem(r.data[3], r.bytes[3], code, sizeof code - 1));
    assert_non_null(memmem(r.data[3], r.bytes[3], metadata, sizeof metadata - 1));
}

static void checksum_of_the_standard(void **state) {
    (void)state;
    assert_int_equal(crc_of((const uint8_t *)"123456789", 9),
                     (0xe3069283u >> 15 | 0xe3069283u << 17) + 0xa282ead8u);
}

static int begin(void **state) {
    (void)state;
    return make_dir("test_event_file");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(checksum_of_the_standard),
                                       cmocka_unit_test(numbers_of_the_run),
                                       cmocka_unit_test(texts_of_the_run)};
    return cmocka_run_group_tests_name("event files", tests, begin, remove_dir);
}
