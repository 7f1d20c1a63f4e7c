/* Published checkpoints by the names and shapes of all their tensors, in files with holes instead of numbers
 * (tests/golden/checkpoints, written by tools/checkpoint_shapes.py). Each is accepted whole, without a tensor
 * that is missing or not used, and the plan names the memory that it takes. */
/* run: quick */
#include "../common.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define FOLDER LN_ROOT "/tests/golden/checkpoints"
enum { LINE = 1 << 16, NAMES = 100, NAME = 64, NAME_BYTES = 320 };

static char dir[100], line[LINE];
static ln_str warnings;
static void keep_warnings(void *user, ln_level level, const char *text) {
    (void)user;
    if (level == LN_LOG_WARN) ln_str_addf(&warnings, "%s\n", text);
}

static int make_folder(void **state) {
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/linnet-checkpoints-XXXXXX");
    ln_log_set(keep_warnings, NULL);
    return mkdtemp(dir) ? 0 : 1;
}
static int remove_folder(void **state) {
    char command[140];
    (void)state;
    ln_log_set(NULL, NULL);
    ln_str_free(&warnings);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", dir);
    return system(command);
}

/* The header of the file, and what its tensors add up to. */
typedef struct sums {
    ln_str header;
    uint64_t at;      /* bytes of data */
    uint64_t numbers; /* of all tensors */
} sums;

static int64_t bytes_of(const char *dtype) {
    const bool byte = strncmp(dtype, "F8", 2) == 0 || strcmp(dtype, "U8") == 0;
    return strcmp(dtype, "F32") == 0 ? 4 : byte ? 1 : 2;
}

/* Adds a tensor of dimensions "8x16", or "-" for a scalar. */
static void add_tensor(sums *s, const char *dtype, const char *dims, const char *name) {
    uint64_t n = 1;
    ln_str_addf(&s->header, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", s->at ? "," : "", name, dtype);
    for (const char *d = dims; *d && *d != '-'; d += strcspn(d, "x"), d += *d == 'x') {
        const long long size = atoll(d);
        ln_str_addf(&s->header, "%s%lld", d == dims ? "" : ",", size);
        n *= (uint64_t)size;
    }
    const uint64_t end = s->at + n * (uint64_t)bytes_of(dtype);
    ln_str_addf(&s->header, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)s->at,
                (unsigned long long)end);
    s->at = end, s->numbers += strstr(name, "_blocks") ? 2 * n : n;
}

/* Adds the tensors that a name stands for: "a.{0,2-3}.b.{0-7}.c". */
static void add_tensors(sums *s, const char *dtype, const char *dims, const char *name) {
    char full[NAME_BYTES];
    const char *open = strchr(name, '{'), *close = open ? strchr(open, '}') : NULL;
    if (!close) {
        add_tensor(s, dtype, dims, name);
        return;
    }
    for (const char *p = open + 1; p < close; p += strcspn(p, ",}") + 1) {
        int from, to;
        if (sscanf(p, "%d-%d", &from, &to) < 2) to = from;
        for (int l = from; l <= to; l++) {
            (void)snprintf(full, sizeof full, "%.*s%d%s", (int)(open - name), name, l, close + 1);
            add_tensors(s, dtype, dims, full);
        }
    }
}

/* Adds the tensors of one line: "F32 8x16 a.{0,2-3}.b". */
static void add_line(sums *s, const char *text) {
    char dtype[16], dims[64], name[300];
    if (sscanf(text, "%15s %63s %299s", dtype, dims, name) != 3) fail_msg("not a tensor: %s", text);
    add_tensors(s, dtype, dims, name);
}

static void put(const char *leaf, const void *data, size_t bytes, uint64_t size) {
    char path[200];
    (void)snprintf(path, sizeof path, "%s/%s", dir, leaf);
    const int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, bytes), (ssize_t)bytes);
    if (ftruncate(fd, (off_t)size) != 0)
        fail_msg("%s: no file with holes of %llu bytes", path, (unsigned long long)size);
    assert_int_equal(close(fd), 0);
}

/* Writes the directory of the checkpoint. */
static sums make_checkpoint(const char *name) {
    char path[400];
    sums s = {0};
    (void)snprintf(path, sizeof path, FOLDER "/%s", name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    put("config.json", line, strlen(line), strlen(line));
    ln_str_adds(&s.header, "{");
    while (fgets(line, sizeof line, f)) add_line(&s, line);
    fclose(f);
    ln_str_adds(&s.header, "}");
    while (s.header.len % 8) ln_str_adds(&s.header, " ");
    assert_false(s.header.failed);
    const uint64_t n = s.header.len;
    ln_str file = {0};
    ln_str_add(&file, (const char *)&n, sizeof n);
    ln_str_add(&file, s.header.data, s.header.len);
    put("model.safetensors", file.data, file.len, file.len + s.at);
    ln_str_free(&file);
    ln_str_free(&s.header);
    return s;
}

/* The numbers of tensors that the text model does not have: towers, keys of layers that attend to those of
 * others, and scales. */
static uint64_t numbers_beside(const ln_package *m) {
    uint64_t n = 0;
    bool *used = calloc(m->tensors.n + 1, sizeof *used);
    for (size_t i = 0; i < m->weights.n; i++) {
        const ln_weight *w = &m->weights.items[i];
        used[w->tensor - m->tensors.items] = true;
        for (int64_t x = 0; x < w->n_parts; x++) used[w->parts[x].tensor - m->tensors.items] = true;
    }
    for (size_t i = 0; i < m->tensors.n; i++) {
        const ln_tensor *t = &m->tensors.items[i];
        uint64_t size = 1;
        for (int d = 0; d < t->n_dims; d++) size *= (uint64_t)t->dims[d];
        if (!used[i]) n += size;
    }
    free(used);
    return n;
}

/* The plan for a device: a layout of its own may compress weights of 16 bits to 12, or add a tenth. */
static ln_plan plan_for(const char *name, const ln_package *m, ln_device device) {
    const ln_options o = {.size = sizeof o, .device = device, .n_ctx = 4096, .n_parallel = 1, .n_threads = 2};
    ln_plan plan = {.size = sizeof plan};
    ln_error e = {0};
    if (ln_plan_memory(dir, &o, &plan, &e) != LN_OK) fail_msg("%s: %s", name, e.message);
    const double stored = (double)m->weights.bytes, planned = (double)plan.weights_bytes;
    if (planned < 0.7 * stored || planned > 1.1 * stored)
        fail_msg("%s: the plan has %.0f bytes of weights, the file %.0f", name, planned, stored);
    assert_true(plan.kv_bytes > 0 && plan.activation_bytes > 0);
    assert_true(plan.peak_bytes >= plan.weights_bytes + plan.kv_bytes + plan.activation_bytes);
    return plan;
}

/* Bytes of a model that is quantised at load: its groups, and the tensors of all other weights. */
static void check_quantised(const char *name, ln_package *m) {
    uint64_t want = 0;
    OK(ln_weights_encode(&m->weights, &m->spec, (ln_groups){4, 32}, err));
    for (size_t i = 0; i < m->weights.n; i++) {
        const ln_weight *w = &m->weights.items[i];
        const ln_row_bytes row = ln_encoding_row(w->enc, w->d1 ? w->d1 : 1);
        if (w->quantised) want += (uint64_t)w->d0 * (uint64_t)(row.data + row.scales + row.offsets);
        for (int64_t k = 0; k < ln_weight_tensors(w) && !w->quantised; k++)
            want += ln_weight_tensor_bytes(w, k);
    }
    if (m->weights.bytes != want)
        fail_msg("%s, quantised: %llu bytes, expected %llu", name, (unsigned long long)m->weights.bytes,
                 (unsigned long long)want);
}

/* The CPU samples the numbers of a matrix, which takes seconds for a large file with holes. */
static void check(const char *name) {
    const sums s = make_checkpoint(name);
    ln_package *m;
    ln_error e = {0};
    warnings.len = 0;
    if (ln_package_open(&m, dir, &(ln_options){0}, &e) != LN_OK) fail_msg("%s: %s", name, e.message);
    ln_str_add(&warnings, "", 1);
    if (strstr(warnings.data, "not used") || strstr(warnings.data, "tie_word"))
        fail_msg("%s: %s", name, warnings.data);
    const uint64_t found = m->weights.n_parameters + numbers_beside(m);
    if (found != s.numbers)
        fail_msg("%s: %llu of %llu numbers are accounted for", name, (unsigned long long)found,
                 (unsigned long long)s.numbers);
    const ln_plan plan = plan_for(name, m, LN_DEVICE_REF);
    if (s.numbers < 600000000 || getenv("LN_LONG")) (void)plan_for(name, m, LN_DEVICE_CPU);
    print_message("  %-24s %6.2f B, weights %6.2f GB, keys %5.2f GB\n", name,
                  (double)m->weights.n_parameters / 1e9, (double)plan.weights_bytes / 1e9,
                  (double)plan.kv_bytes / 1e9);
    if (!m->weights.code.bits) check_quantised(name, m);
    ln_package_close(&m);
}

static int by_name(const void *a, const void *b) { return strcmp(a, b); }
static void checkpoints_are_accepted_whole(void **state) {
    static char names[NAMES][NAME];
    size_t n = 0;
    (void)state;
    DIR *d = opendir(FOLDER);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d)) != NULL && n < NAMES;)
        if (strstr(e->d_name, ".txt")) (void)snprintf(names[n++], NAME, "%s", e->d_name);
    closedir(d);
    assert_true(n >= 60);
    qsort(names, n, NAME, by_name);
    for (size_t i = 0; i < n; i++) check(names[i]);
    print_message("%zu checkpoints\n", n);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(checkpoints_are_accepted_whole)};
    return cmocka_run_group_tests_name("checkpoints", tests, make_folder, remove_folder);
}
