/* Unusual states of a model's files: shards that an index assigns wrongly, files and directories without
 * permission, and a file system that cannot map files. The models are copies of golden ones in a directory
 * of the test's own. */
/* run: slow */
#include "../common.h"
#include "../test_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define SHARDED LN_ROOT "/tests/golden/qwen3-sharded-bf16"
#define TINY    LN_ROOT "/models/tiny"
#define MODEL   "hub/models--org--name/snapshots/abc"
#define INDEX   MODEL "/model.safetensors.index.json"

static int make(void **state) {
    char command[1200];
    if (dir_make(state) != 0) return -1;
    (void)snprintf(command, sizeof command,
                   "mkdir -p '%s/" MODEL "' '%s/hub/models--org--name/refs' && cp " SHARDED "/* '%s/" MODEL
                   "/'",
                   test_dir, test_dir, test_dir);
    if (system(command) != 0) return -1;
    put_text("hub/models--org--name/refs/main", "abc");
    put_text(MODEL "/tokenizer_config.json", "{}");
    put_text(MODEL "/chat_template.jinja", "{{ messages[0].content }}");
    return 0;
}
/* ---- log messages ---- */

static char remarks[4096];
static void on_remark(void *user, ln_level level, const char *text) {
    (void)user;
    size_t n = strlen(remarks);
    if (level <= LN_LOG_WARN) (void)snprintf(remarks + n, sizeof remarks - n, "%s\n", text);
}
static void log_begin(void) {
    remarks[0] = '\0';
    ln_log_set(on_remark, NULL);
}
static const char *log_end(void) {
    ln_log_set(NULL, NULL);
    return remarks;
}
static int count(const char *text, const char *word) {
    int n = 0;
    for (; (text = strstr(text, word)) != NULL; text++) n++;
    return n;
}

/* ---- an index that disagrees with its shards ---- */

static void set_index(const char *tensor, const char *shard) {
    json_t *index;
    char *text;
    OK(ln_json_load_file(&index, SHARDED "/model.safetensors.index.json", 1 << 20, err));
    if (tensor)
        assert_int_equal(json_object_set_new(json_object_get(index, "weight_map"), tensor,
                                             json_string(shard)),
                         0);
    text = json_dumps(index, 0);
    put_text(INDEX, text);
    ln_free(text);
    json_decref(index);
}

static void entries_in_vain(void **state) {
    (void)state;
    static const struct {
        const char *tensor, *shard, *word;
        ln_status want;
    } rows[] = {
        {NULL, NULL, "", LN_OK},
        {"vision_tower.x", "./model-00002-of-00003.safetensors",
         "the index names 1 tensors that are not where it says", LN_OK},
        {"model.norm.weight", "model-00001-of-00003.safetensors",
         "model.norm.weight is missing: the index places it in model-00001-of-00003.safetensors, which lacks "
         "it; it is in model-0000",
         LN_EINVALID},
        {"vision_tower.x", "vision.safetensors",
         "that this model does not need: vision_tower.x in vision.safetensors, which does not exist", LN_OK},
        {"model.norm.weight", "gone.safetensors",
         "gone.safetensors: No such file, but the index places model.norm.weight there; 1 of the tensors",
         LN_EIO},
    };
    ln_options o = {0};
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        ln_package *m;
        ln_error err = {0};
        set_index(rows[i].tensor, rows[i].shard);
        log_begin();
        ln_status st = ln_package_open(&m, at(MODEL), &o, &err);
        const char *said = log_end();
        if (st != rows[i].want) fail_msg("%s: status %d: %s", rows[i].tensor, st, err.message);
        if (!strstr(st == LN_OK ? said : err.message, rows[i].word))
            fail_msg("%s: %s%s", rows[i].tensor, said, err.message);
        if (st == LN_OK) assert_int_equal(count(said, "\n"), i > 0);
        ln_package_close(&m);
    }
    set_index(NULL, NULL);
}

/* ---- no permission ---- */

/* Opens `model` in a process whose only rights are those of the file modes, also if the test runs as root;
 * with `needs` only the template or a file is looked for. Returns 0 if the result is LN_EIO and the message
 * has the reason and the name. */
static int denied(const char *model, const char *needs, const char *name) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
        struct __user_cap_data_struct none[2] = {{0}};
        ln_error err = {0};
        ln_options o = {0};
        ln_package *m = NULL;
        ln_chat_template *t = NULL;
        char path[4096];
        (void)syscall(SYS_capset, &head, none);
        ln_status st = !needs                           ? ln_package_open(&m, model, &o, &err)
                       : strcmp(needs, "template") == 0 ? ln_chat_template_open(&t, model, NULL, &err)
                                                        : ln_find_dir(model, needs, path, sizeof path, &err);
        if (st == LN_EIO && strstr(err.message, "Permission denied") && strstr(err.message, name)) _exit(0);
        fprintf(stderr, "%s without permission for %s: status %d: %s\n", model, name, st, err.message);
        _exit(1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static void no_permission(void **state) {
    (void)state;
    static const struct {
        const char *name;
        mode_t mode;
        const char *needs; /* what is looked for in a second attempt; NULL: only the model is opened */
    } rows[] = {
        {MODEL "/config.json", 0, NULL},
        {INDEX, 0, NULL},
        {MODEL "/model-00002-of-00003.safetensors", 0, NULL},
        {MODEL "/tokenizer.json", 0, NULL},
        {MODEL "/tokenizer_config.json", 0, "template"},
        {MODEL "/generation_config.json", 0, NULL},
        {MODEL, 0, "tokenizer.json"},
        {MODEL, 0400, "template"}, /* the directory can be listed, and no file in it opened */
        {MODEL, 0100, NULL},       /* the directory cannot be listed, and files in it can be opened */
        {"hub/models--org--name/snapshots", 0, "tokenizer.json"},
        {"hub/models--org--name", 0, "template"},
        {"hub", 0, "tokenizer.json"},
    };
    int bad = 0;
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        struct stat before;
        const char *name = strrchr(rows[i].name, '/');
        assert_int_equal(stat(at(rows[i].name), &before), 0);
        assert_int_equal(chmod(at(rows[i].name), rows[i].mode), 0);
        bad += denied(at(MODEL), NULL, name ? name + 1 : rows[i].name) != 0;
        if (rows[i].needs) bad += denied(at(MODEL), rows[i].needs, name ? name + 1 : rows[i].name) != 0;
        assert_int_equal(chmod(at(rows[i].name), before.st_mode & 07777), 0);
    }
    assert_int_equal(chmod(at(MODEL "/chat_template.jinja"), 0), 0);
    bad += denied(at(MODEL), "template", "chat_template.jinja") != 0;
    assert_int_equal(chmod(at(MODEL "/chat_template.jinja"), 0600), 0);
    assert_int_equal(bad, 0);
}

/* The same through the model cache. There a file without read permission must not be reported as missing. */
static void no_permission_in_the_cache(void **state) {
    (void)state;
    static const char *const names[] = {"hub",
                                        "hub/models--org--name",
                                        "hub/models--org--name/refs",
                                        "hub/models--org--name/refs/main",
                                        "hub/models--org--name/snapshots",
                                        MODEL};
    int bad = 0;
    setenv("HF_HUB_CACHE", at("hub"), 1);
    for (size_t i = 0; i < LN_COUNT(names); i++) {
        struct stat before;
        assert_int_equal(stat(at(names[i]), &before), 0);
        assert_int_equal(chmod(at(names[i]), 0), 0);
        bad += denied("org/name", NULL, names[i]) != 0;
        assert_int_equal(chmod(at(names[i]), before.st_mode & 07777), 0);
    }
    unsetenv("HF_HUB_CACHE");
    assert_int_equal(bad, 0);
}

/* ---- a file system that cannot map files ---- */

static int refuse_with; /* the errno of every attempt to map a regular file; 0: files are mapped */

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define CAN_REFUSE false /* a sanitizer replaces mmap itself */
#else
#define CAN_REFUSE true
void *mmap(void *where, size_t n, int prot, int flags, int fd, off_t offset) {
    struct stat st;
    if (refuse_with && fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        errno = refuse_with;
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, where, n, prot, flags, fd, offset);
}
void *mmap64(void *where, size_t n, int prot, int flags, int fd, off_t offset) {
    return mmap(where, n, prot, flags, fd, offset);
}
#endif

typedef struct scored {
    float logits[16 * 4096];
    int64_t n;
} scored;
static ln_status keep_row(void *user, int64_t row, double logprob, const ln_top *top, size_t n_top,
                          const float *logits, int64_t n_vocab, ln_error *err) {
    scored *s = user;
    (void)row, (void)logprob, (void)top, (void)n_top, (void)err;
    assert_true(s->n + n_vocab <= (int64_t)LN_COUNT(s->logits));
    memcpy(s->logits + s->n, logits, (size_t)n_vocab * sizeof *logits);
    s->n += n_vocab;
    return LN_OK;
}

/* Computes the logits of a few tokens and the memory plan. */
static void score(ln_device device, scored *out, ln_plan *plan) {
    static const int32_t ids[] = {5, 17, 20, 44, 3, 9, 50, 7};
    ln_options o = {.device = device, .n_threads = 1, .n_ctx = 64, .numerics = LN_EXACT};
    ln_package *m;
    ln_eng *e;
    out->n = 0;
    OK(ln_package_open(&m, TINY, &o, err));
    OK(ln_eng_plan(m, &o, plan, err));
    OK(ln_eng_open(&e, m, &o, err));
    OK(ln_eng_score(e, ids, LN_COUNT(ids), 0, keep_row, out, NULL, err));
    ln_eng_close(&e);
    ln_package_close(&m);
}

static void no_mapping(void **state) {
    (void)state;
    static scored mapped[2], copied;
    static const int reasons[] = {ENODEV, EINVAL, EACCES, EPERM, ENOTSUP};
    static const ln_device devices[] = {LN_DEVICE_CPU, LN_DEVICE_REF};
    ln_plan plan[2], other;
    struct stat st;
    if (!CAN_REFUSE) skip();
    assert_int_equal(stat(TINY "/model.safetensors", &st), 0);
    for (int d = 0; d < 2; d++) score(devices[d], &mapped[d], &plan[d]);
    log_begin();
    for (size_t i = 0; i < LN_COUNT(reasons); i++)
        for (int d = 0; d < 2; d++) {
            refuse_with = reasons[i];
            score(devices[d], &copied, &other);
            refuse_with = 0;
            assert_true(copied.n > 0 && copied.n == mapped[d].n);
            assert_memory_equal(copied.logits, mapped[d].logits, (size_t)copied.n * sizeof *copied.logits);
            /* Packed weights are held in addition to the copy of the file; the reference device reads the
             * weights in the copy. A quarter of the file's size is left as tolerance for other memory that
             * a process of this size takes and frees between two plans. */
            const double more = ((double)other.peak_bytes - (double)plan[d].peak_bytes) / (double)st.st_size;
            if (d == 0 ? more < 0.75 : more < -0.25 || more > 0.25)
                fail_msg("%s: the plan is %.2f files larger than with a mapping (%llu and %llu)",
                         d ? "ref" : "cpu", more, (unsigned long long)other.peak_bytes,
                         (unsigned long long)plan[d].peak_bytes);
        }
    const char *said = log_end();
    assert_int_equal(count(said, "cannot map files"), 1);
    assert_non_null(strstr(said, "No such device"));
}

/* A lack of memory while mapping is another error: it stays LN_EMEMORY, and the file is not copied
 * instead. */
static void no_memory_to_map(void **state) {
    (void)state;
    ln_package *m;
    ln_options o = {0};
    ln_error err = {0};
    if (!CAN_REFUSE) skip();
    refuse_with = ENOMEM;
    ln_status st = ln_package_open(&m, TINY, &o, &err);
    refuse_with = 0;
    assert_int_equal(st, LN_EMEMORY);
    assert_non_null(strstr(err.message, "model.safetensors: cannot map"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(entries_in_vain), cmocka_unit_test(no_permission),
                                       cmocka_unit_test(no_permission_in_the_cache),
                                       cmocka_unit_test(no_mapping), cmocka_unit_test(no_memory_to_map)};
    return cmocka_run_group_tests(tests, make, dir_remove);
}
