/* The verdict on a safetensors file equals that of an independent oracle (tools/safetensors_oracle.py:
 * Python's JSON reader and integers of any size), for every file of the fuzzers' corpus and for mutated
 * files generated from a seed. Absence of crashes is not enough: a reader that accepts what others reject
 * is wrong without crashing. */
/* run: slow */
#include "../base/cm.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "io/io.h"

#define CORPUS LN_ROOT "/fuzz/corpus/safetensors"
#define ORACLE "python3 '" LN_ROOT "/tools/safetensors_oracle.py' "

static size_t n_checked, n_accepted, n_wrong;

/* The rule that a message refers to, under the oracle's name. */
static const char *rule_of(const char *message) {
    static const struct {
        const char *words, *rule;
    } rules[] = {
        {"unknown dtype", "dtype"},
        {"expected an integer", "number"},
        {"2^48 - 1", "number"},
        {"overflows", "size"},
        {"whole bytes", "size"},
        {"`data_offsets` give", "size"},
        {"its data begin at", "tiling"},
        {"the file is truncated", "tiling"},
        {"follow the last tensor", "tiling"},
        {"more than 65536 entries", "limit"},
        {"duplicate key", "header"},
        {"`__metadata__`", "header"},
        {"the header must be", "header"},
        {"expected an array", "header"},
        {"`dtype`: expected", "header"},
        {"exactly 2 numbers", "header"},
        {"expected dtype, shape", "header"},
        {"not before the begin", "header"},
        {"an object with dtype", "header"},
        {"an empty name", "header"},
        {"a name with U+0000", "header"},
        {"at most 8 dimensions", "limit"},
        {"more than 65536 tensors", "limit"},
        {"the limit is 1024", "limit"},
        {"needs 8 and a header", "length"},
        {"empty header", "length"},
        {"a header of ", "length"},
        {"the header of ", "length"},
        {"Git LFS pointer", "length"},
        {"not safetensors", "length"},
    };
    for (size_t i = 0; i < LN_COUNT(rules); i++)
        if (strstr(message, rules[i].words)) return rules[i].rule;
    return "json";
}

static void check(const char *name, const char *want, const char *bytes, size_t n) {
    ln_tensors t;
    ln_error err = {0};
    uint8_t *copy = malloc(n ? n : 1); /* a block of the exact size, so that a sanitizer detects a read
                                          beyond it */
    memcpy(copy, bytes, n);
    ln_status st = ln_tensors_open_memory(&t, "x", copy, n, &err);
    bool accept = strcmp(want, "accept") == 0;
    const char *rule = st == LN_OK ? "accept" : rule_of(err.message);
    bool same = (st == LN_OK) == accept;
    if (same && !accept)
        same = (strstr(want, rule) || strstr(want, "json")) &&
               (st == LN_EUNSUPPORTED) == (strcmp(rule, "dtype") == 0);
    if (!same && n_wrong++ < 20)
        printf("%s: the oracle says %s, linnet %s: %s\n", name, want, rule, st == LN_OK ? "" : err.message);
    n_checked++;
    n_accepted += accept;
    if (st == LN_OK) ln_tensors_close(&t);
    free(copy);
}

/* Reads the next line of a command's output, without its newline; false at the end. */
static bool next_line(FILE *f, char *line, size_t cap) {
    if (!fgets(line, (int)cap, f)) return false;
    line[strcspn(line, "\n")] = '\0';
    return true;
}

static void corpus(void **state) {
    (void)state;
    char line[512], path[1024];
    FILE *f = popen(ORACLE "files '" CORPUS "'", "r");
    assert_non_null(f);
    while (next_line(f, line, sizeof line)) {
        char *want = strchr(line, ' '), *data;
        size_t n;
        assert_non_null(want);
        *want++ = '\0';
        (void)snprintf(path, sizeof path, "%s/%s", CORPUS, line);
        assert_int_equal(ln_read_file(path, (size_t)1 << 28, &data, &n, NULL), LN_OK);
        check(line, want, data, n);
        ln_free(data);
    }
    assert_int_equal(pclose(f), 0);
    printf("%zu files of the corpus, %zu accepted, %zu wrong\n", n_checked, n_accepted, n_wrong);
    assert_true(n_accepted > 0 && n_accepted < n_checked);
    assert_int_equal(n_wrong, 0);
}

static void mutated(void **state) {
    (void)state;
    char name[] = "/tmp/linnet-verdict-XXXXXX", line[512], command[1024], *data;
    int fd = mkstemp(name), count = getenv("LN_LONG") ? 200000 : 10000;
    size_t at = 0, n;
    assert_true(fd >= 0);
    (void)snprintf(command, sizeof command, ORACLE "random %d 1 '%s'", count, name);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    ln_str lines = {0};
    while (next_line(f, line, sizeof line)) ln_str_addf(&lines, "%s\n", line);
    assert_int_equal(pclose(f), 0);
    assert_int_equal(ln_read_file(name, (size_t)1 << 30, &data, &n, NULL), LN_OK);
    n_checked = n_accepted = n_wrong = 0;
    for (char *want = lines.data; *want;) {
        uint32_t bytes;
        char *end = strchr(want, '\n');
        *end = '\0';
        memcpy(&bytes, data + at, 4);
        assert_true(at + 4 + bytes <= n);
        (void)snprintf(line, sizeof line, "file %zu", n_checked);
        check(line, want, data + at + 4, bytes);
        at += 4 + bytes;
        want = end + 1;
    }
    printf("%zu mutated files, %zu accepted, %zu wrong\n", n_checked, n_accepted, n_wrong);
    assert_int_equal(n_checked, count);
    assert_true(n_accepted > 1000);
    assert_int_equal(n_wrong, 0);
    ln_free(data);
    ln_str_free(&lines);
    close(fd);
    unlink(name);
}

int main(void) {
    if (system("python3 -c 'import json' >/dev/null 2>&1") != 0) {
        print_message("SKIP: python3 is not here: the oracle of the safetensors verdict cannot run\n");
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(corpus), cmocka_unit_test(mutated)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
