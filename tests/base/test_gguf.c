/* The reader of GGUF files: values of every type, tensors, splits, and a table of faults with the status and
 * a word of the message. Each file is in an exactly sized heap block, so that AddressSanitizer detects a read
 * one byte beyond it; every file that opens is also cut at each byte and must then be rejected. */
/* run: quick asan */
#include "../io/io_test.h"

#include "base/gguf.h"
#include "gguf_build.h"

static ln_gguf *open_build(gguf_build *b, uint8_t **file) {
    size_t bytes;
    ln_gguf *g;
    *file = gguf_finish(b, &bytes);
    OK(ln_gguf_open_memory(&g, "test.gguf", *file, bytes, err));
    return g;
}

/* ---- values ---- */

static const char *const words[40] = {"", "a", "bc", "\n", "d"};

static void build_values(gguf_build *b) {
    static const struct {
        const char *key;
        uint32_t type;
        unsigned bytes;
        uint64_t v;
    } numbers[] = {{"n.u8", 0, 1, 255},          {"n.i8", 1, 1, 0x80},
                   {"n.u16", 2, 2, 65535},       {"n.i16", 3, 2, 0x8000},
                   {"n.u32", 4, 4, UINT32_MAX},  {"n.i32", 5, 4, 0x80000000},
                   {"n.u64", 10, 8, UINT64_MAX}, {"n.i64", 11, 8, UINT64_C(1) << 63}};
    for (size_t i = 0; i < LN_COUNT(numbers); i++) {
        gguf_key(b, numbers[i].key, numbers[i].type);
        gguf_number(&b->keys, numbers[i].v, numbers[i].bytes);
    }
    const double d = 1e300;
    gguf_key(b, "n.f64", 12);
    gguf_add(&b->keys, &d, 8);
    gguf_f32(b, "n.f32", 0.1f);
    gguf_bool(b, "yes", 1);
    gguf_bool(b, "no", 0);
    gguf_text(b, "general.architecture", "llama");
    const char *all[LN_COUNT(words)];
    for (size_t i = 0; i < LN_COUNT(words); i++) all[i] = words[i] ? words[i] : "word";
    gguf_texts(b, "texts", all, LN_COUNT(all));
    gguf_texts(b, "texts.none", NULL, 0);
    gguf_i32s(b, "ints", (int32_t[]){1, -2, INT32_MAX}, 3);
    gguf_f32s(b, "reals", (float[]){1, -0.5f}, 2);
}

static void check_int(const ln_gguf *g, const char *key, int64_t want) {
    int64_t v = 7;
    bool found = false;
    OK(ln_gguf_int(g, key, INT64_MIN, INT64_MAX, &v, &found, err));
    assert_true(found);
    assert_true(v == want);
}

static void test_values(void **state) {
    (void)state;
    gguf_build b = {0};
    uint8_t *file;
    build_values(&b);
    ln_gguf *g = open_build(&b, &file);
    assert_int_equal(g->n_values, 17);
    check_int(g, "n.u8", 255);
    check_int(g, "n.i8", -128);
    check_int(g, "n.u16", 65535);
    check_int(g, "n.i16", -32768);
    check_int(g, "n.u32", UINT32_MAX);
    check_int(g, "n.i32", INT32_MIN);
    check_int(g, "n.u64", INT64_MAX);
    check_int(g, "n.i64", INT64_MIN);
    double d = 0;
    bool found = true, yes = false;
    ln_gguf_text text = {0};
    OK(ln_gguf_real(g, "n.f32", &d, NULL, err));
    assert_true(d == (double)0.1f);
    OK(ln_gguf_real(g, "n.f64", &d, NULL, err));
    assert_true(d == 1e300);
    OK(ln_gguf_real(g, "n.u8", &d, NULL, err));
    assert_true(d == 255);
    OK(ln_gguf_bool(g, "yes", &yes, NULL, err));
    assert_true(yes);
    OK(ln_gguf_bool(g, "no", &yes, NULL, err));
    assert_false(yes);
    OK(ln_gguf_get_text(g, "general.architecture", &text, &found, err));
    assert_true(found && text.bytes == 5 && memcmp(text.data, "llama", 5) == 0);
    d = 3;
    OK(ln_gguf_real(g, "n.f", &d, &found, err));
    assert_true(!found && d == 3);
    ln_gguf_close(&g);
    free(file);
}

static void test_arrays(void **state) {
    (void)state;
    gguf_build b = {0};
    uint8_t *file;
    const ln_gguf_value *v;
    build_values(&b);
    ln_gguf *g = open_build(&b, &file);
    OK(ln_gguf_array(g, "texts", LN_GGUF_TEXT, &v, err));
    assert_int_equal(v->n, LN_COUNT(words));
    for (uint64_t i = v->n; i-- > 0;) {
        const char *want = words[i] ? words[i] : "word";
        const ln_gguf_text text = ln_gguf_text_at(v, i);
        assert_int_equal(text.bytes, strlen(want));
        assert_memory_equal(text.data, want, text.bytes);
    }
    OK(ln_gguf_array(g, "texts.none", LN_GGUF_TEXT, &v, err));
    assert_int_equal(v->n, 0);
    OK(ln_gguf_array(g, "ints", LN_GGUF_I64, &v, err));
    assert_true(v->n == 3 && ln_gguf_int_at(v, 1) == -2 && ln_gguf_int_at(v, 2) == INT32_MAX);
    OK(ln_gguf_array(g, "ints", LN_GGUF_F64, &v, err));
    assert_true(ln_gguf_real_at(v, 1) == -2);
    OK(ln_gguf_array(g, "reals", LN_GGUF_F64, &v, err));
    assert_true(v->n == 2 && ln_gguf_real_at(v, 1) == -0.5);
    OK(ln_gguf_array(g, "nothing", LN_GGUF_F64, &v, err));
    assert_null(v);
    ln_gguf_close(&g);
    free(file);
}

static void test_wrong_types(void **state) {
    (void)state;
    gguf_build b = {0};
    uint8_t *file;
    const ln_gguf_value *v;
    ln_error err = {0};
    int64_t n = 0;
    double d = 0;
    bool yes;
    ln_gguf_text text;
    build_values(&b);
    gguf_f32(&b, "nan", (float)NAN);
    ln_gguf *g = open_build(&b, &file);
#define BAD(word, call) expect(#call, LN_EINVALID, word, call, &err)
    BAD("key n.u8: expected an integer from 0 to 9, found 255", ln_gguf_int(g, "n.u8", 0, 9, &n, NULL, &err));
    BAD("found 0.1", ln_gguf_int(g, "n.f32", 0, 9, &n, NULL, &err));
    BAD("found an array of 3 integers", ln_gguf_int(g, "ints", 0, 9, &n, NULL, &err));
    BAD("found the text \"llama\"", ln_gguf_real(g, "general.architecture", &d, NULL, &err));
    BAD("a finite number", ln_gguf_real(g, "nan", &d, NULL, &err));
    BAD("expected a bool, found -128", ln_gguf_bool(g, "n.i8", &yes, NULL, &err));
    BAD("expected a text, found true", ln_gguf_get_text(g, "yes", &text, NULL, &err));
    BAD("an array of texts, found an array of 2 numbers", ln_gguf_array(g, "reals", LN_GGUF_TEXT, &v, &err));
    BAD("an array of integers, found an array of 2", ln_gguf_array(g, "reals", LN_GGUF_I64, &v, &err));
    BAD("an array of numbers, found an array of 40 texts", ln_gguf_array(g, "texts", LN_GGUF_F64, &v, &err));
    BAD("an array of bools, found false", ln_gguf_array(g, "no", LN_GGUF_BOOL, &v, &err));
#undef BAD
    ln_gguf_close(&g);
    free(file);
}

/* ---- tensors ---- */

static void build_tensors(gguf_build *b) {
    gguf_text(b, "general.architecture", "llama");
    gguf_tensor(b, "dense", LN_GGML_F32, 2, (uint64_t[]){3, 2}, 24);
    gguf_tensor(b, "coded", LN_GGML_Q4_0, 3, (uint64_t[]){64, 2, 2}, 144);
    gguf_tensor(b, "k", LN_GGML_Q6_K, 1, (uint64_t[]){256}, 210);
}

static void test_tensors(void **state) {
    (void)state;
    gguf_build b = {0};
    uint8_t *file;
    build_tensors(&b);
    ln_gguf *g = open_build(&b, &file);
    assert_int_equal(g->n_tensors, 3);
    const ln_gguf_tensor *x = ln_gguf_tensor_named(g, "coded");
    assert_true(x->type == LN_GGML_Q4_0 && x->n_dims == 3 && x->dims[0] == 64 && x->dims[2] == 2);
    assert_true(x->bytes == 144 && x->data[0] == 0 && x->data[143] == 143);
    x = ln_gguf_tensor_named(g, "k");
    assert_true(x->bytes == 210 && x->data[209] == 209);
    assert_null(ln_gguf_tensor_named(g, "codes"));
    assert_string_equal(ln_ggml_block_of(12).name, "Q4_K");
    assert_null(ln_ggml_block_of(4).name); /* a type that was removed from the format */
    assert_null(ln_ggml_block_of(UINT32_MAX).name);
    ln_gguf_close(&g);
    free(file);
}

/* Every prefix is rejected as LN_EINVALID. */
static void test_cuts(void **state) {
    (void)state;
    gguf_build b = {0};
    size_t bytes;
    ln_error err;
    ln_gguf *g;
    build_values(&b);
    build_tensors(&b);
    b.n_keys--; /* general.architecture twice */
    memmove(b.keys.p, b.keys.p, b.keys.n -= 8 + 20 + 4 + 8 + 5);
    uint8_t *file = gguf_finish(&b, &bytes);
    for (size_t n = 0; n < bytes; n++) {
        uint8_t *part = malloc(n ? n : 1);
        assert_non_null(part);
        memcpy(part, file, n);
        expect("cut", LN_EINVALID, "test.gguf", ln_gguf_open_memory(&g, "test.gguf", part, n, &err), &err);
        assert_null(g);
        free(part);
    }
    OK(ln_gguf_open_memory(&g, "test.gguf", file, bytes, err));
    ln_gguf_close(&g);
    free(file);
}

/* ---- faults ---- */

static void raw_text(gguf_build *b, uint64_t length) { /* a text that says that it is so long */
    gguf_key(b, "a.text", 8);
    gguf_number(&b->keys, length, 8);
}
static void raw_array(gguf_build *b, uint32_t of, uint64_t n) {
    gguf_key(b, "a.list", 9);
    gguf_number(&b->keys, of, 4);
    gguf_number(&b->keys, n, 8);
}
static void tensor(gguf_build *b, uint32_t type, uint64_t d0, uint64_t d1, size_t bytes) {
    gguf_tensor(b, "x", type, 2, (uint64_t[]){d0, d1}, bytes);
}

enum fault {
    F_VERSION_1,
    F_VERSION_4,
    F_BIG_ENDIAN,
    F_KEY_TWICE,
    F_KEY_EMPTY,
    F_KEY_NUL,
    F_KEY_LONG,
    F_TYPE_13,
    F_TYPE_IN_ARRAY,
    F_NESTED,
    F_TEXT_LONG,
    F_TEXT_OVERFLOWS,
    F_LIST_LONG,
    F_LIST_OVERFLOWS,
    F_TEXTS_LONG,
    F_BOOL_2,
    F_MANY_KEYS,
    F_HUGE_KEYS,
    F_MANY_TENSORS,
    F_HUGE_TENSORS,
    F_ALIGN_0,
    F_ALIGN_48,
    F_ALIGN_BIG,
    F_ALIGN_TEXT,
    F_RANK_5,
    F_DIM_0,
    F_DIM_NEGATIVE,
    F_DIMS_OVERFLOW,
    F_BYTES_OVERFLOW,
    F_TENSOR_TYPE,
    F_BLOCKS,
    F_OFFSET_ODD,
    F_OFFSET_OVERFLOWS,
    F_OVERLAP,
    F_BEYOND,
    F_TENSOR_TWICE,
    F_TENSOR_NAME,
    F_COUNT
};
static const struct {
    ln_status want;
    const char *word;
} faults[F_COUNT] = {
    [F_VERSION_1] = {LN_EUNSUPPORTED, "GGUF version 1 is not read; expected 2 or 3"},
    [F_VERSION_4] = {LN_EUNSUPPORTED, "GGUF version 4"},
    [F_BIG_ENDIAN] = {LN_EUNSUPPORTED, "big-endian"},
    [F_KEY_TWICE] = {LN_EINVALID, "key a.b occurs twice"},
    [F_KEY_EMPTY] = {LN_EINVALID, "a name of 1 to 1024 bytes"},
    [F_KEY_NUL] = {LN_EINVALID, "without U+0000"},
    [F_KEY_LONG] = {LN_EINVALID, "found one of 1025 bytes"},
    [F_TYPE_13] = {LN_EINVALID, "key a.b: expected a type from 0 to 12, found 13"},
    [F_TYPE_IN_ARRAY] = {LN_EINVALID, "key a.list: expected a type from 0 to 12, found 99"},
    [F_NESTED] = {LN_EUNSUPPORTED, "key a.list: an array of arrays"},
    [F_TEXT_LONG] = {LN_EINVALID, "key a.text: byte"},
    [F_TEXT_OVERFLOWS] = {LN_EINVALID, "expected 18446744073709551615 more bytes"},
    [F_LIST_LONG] = {LN_EINVALID, "key a.list"},
    [F_LIST_OVERFLOWS] = {LN_EINVALID, "key a.list"},
    [F_TEXTS_LONG] = {LN_EINVALID, "texts do not fit"},
    [F_BOOL_2] = {LN_EINVALID, "key a.b: expected a bool of 0 or 1, found 2"},
    [F_MANY_KEYS] = {LN_EINVALID, "keys do not fit"},
    [F_HUGE_KEYS] = {LN_EINVALID, "at most 65536 keys"},
    [F_MANY_TENSORS] = {LN_EINVALID, "tensors do not fit"},
    [F_HUGE_TENSORS] = {LN_EINVALID, "at most 65536 tensors"},
    [F_ALIGN_0] = {LN_EINVALID, "a power of two"},
    [F_ALIGN_48] = {LN_EINVALID, "found 48"},
    [F_ALIGN_BIG] = {LN_EINVALID, "found 2097152"},
    [F_ALIGN_TEXT] = {LN_EINVALID, "general.alignment"},
    [F_RANK_5] = {LN_EINVALID, "tensor x: expected at most 4 dimensions, found 5"},
    [F_DIM_0] = {LN_EINVALID, "dimension 1 is 0"},
    [F_DIM_NEGATIVE] = {LN_EINVALID, "dimension 0"},
    [F_DIMS_OVERFLOW] = {LN_EINVALID, "dimension 1"},
    [F_BYTES_OVERFLOW] = {LN_EINVALID, "size overflows"},
    [F_TENSOR_TYPE] = {LN_EUNSUPPORTED, "tensor x: type 4 is none"},
    [F_BLOCKS] = {LN_EINVALID, "whole blocks of 32 elements (Q4_0), found 48"},
    [F_OFFSET_ODD] = {LN_EINVALID, "a multiple of 32, found 8"},
    [F_OFFSET_OVERFLOWS] = {LN_EINVALID, "overflow"},
    [F_OVERLAP] = {LN_EINVALID, "tensor y: begins at 32, before"},
    [F_BEYOND] = {LN_EINVALID, "truncated"},
    [F_TENSOR_TWICE] = {LN_EINVALID, "tensor x occurs twice"},
    [F_TENSOR_NAME] = {LN_EINVALID, "a name of 1 to 1024 bytes"},
};

static void build_value_fault(gguf_build *b, enum fault f) {
    static char big[LN_GGUF_MAX_NAME + 2];
    switch (f) {
    case F_KEY_TWICE: gguf_u32(b, "a.b", 1), gguf_u32(b, "a.c", 1), gguf_bool(b, "a.b", 1); break;
    case F_KEY_EMPTY: gguf_u32(b, "", 1); break;
    case F_KEY_NUL: gguf_string(&b->keys, "a\0b", 3), gguf_number(&b->keys, 0, 5), b->n_keys++; break;
    case F_KEY_LONG: memset(big, 'k', sizeof big - 1), gguf_u32(b, big, 1); break;
    case F_TYPE_13: gguf_key(b, "a.b", 13), gguf_number(&b->keys, 0, 8); break;
    case F_TYPE_IN_ARRAY: raw_array(b, 99, 0); break;
    case F_NESTED: raw_array(b, 9, 0); break;
    case F_TEXT_LONG: raw_text(b, 1000); break;
    case F_TEXT_OVERFLOWS: raw_text(b, UINT64_MAX); break;
    case F_LIST_LONG: raw_array(b, 4, 1000); break;
    case F_LIST_OVERFLOWS: raw_array(b, 10, (UINT64_C(1) << 61) + 1); break;
    case F_TEXTS_LONG: raw_array(b, 8, UINT64_C(1) << 60); break;
    case F_BOOL_2: gguf_bool(b, "a.b", 2); break;
    case F_ALIGN_0: gguf_u32(b, "general.alignment", 0); break;
    case F_ALIGN_48: gguf_u32(b, "general.alignment", 48); break;
    case F_ALIGN_BIG: gguf_u32(b, "general.alignment", 1 << 21); break;
    case F_ALIGN_TEXT: gguf_text(b, "general.alignment", "32"); break;
    default: break;
    }
}

static void build_fault(gguf_build *b, enum fault f) {
    build_value_fault(b, f);
    switch (f) {
    case F_VERSION_1: b->version = 1; break;
    case F_VERSION_4: b->version = 4; break;
    case F_BIG_ENDIAN: b->version = 3u << 24; break;
    case F_MANY_KEYS: b->more_keys = 1000; break;
    case F_HUGE_KEYS: b->more_keys = UINT64_MAX / 2; break;
    case F_MANY_TENSORS: b->more_tensors = 1000; break;
    case F_HUGE_TENSORS: b->more_tensors = UINT64_MAX / 2; break;
    case F_RANK_5: gguf_tensor(b, "x", 0, 5, (uint64_t[]){1, 1, 1, 1, 1}, 4); break;
    case F_DIM_0: tensor(b, 0, 1, 0, 0); break;
    case F_DIM_NEGATIVE: tensor(b, 0, (uint64_t)INT64_MAX + 1, 1, 0); break;
    case F_DIMS_OVERFLOW: tensor(b, 0, UINT64_C(1) << 62, 8, 0); break;
    case F_BYTES_OVERFLOW: tensor(b, 0, UINT64_C(1) << 62, 2, 0); break;
    case F_TENSOR_TYPE: tensor(b, 4, 32, 1, 20); break;
    case F_BLOCKS: tensor(b, LN_GGML_Q4_0, 48, 2, 54); break;
    case F_OFFSET_ODD: b->shift = 8, tensor(b, 0, 1, 1, 32); break;
    case F_OFFSET_OVERFLOWS: b->shift = -32, tensor(b, 0, 8, 1, 32); break;
    case F_OVERLAP:
        tensor(b, 0, 16, 1, 64);
        b->shift = -32, gguf_tensor(b, "y", 0, 1, (uint64_t[]){8}, 32);
        break;
    case F_BEYOND: b->shift = 64, tensor(b, 0, 8, 1, 32); break;
    case F_TENSOR_TWICE: tensor(b, 0, 1, 1, 4), tensor(b, 0, 1, 1, 4); break;
    case F_TENSOR_NAME: gguf_tensor(b, "", 0, 1, (uint64_t[]){1}, 4); break;
    default: break;
    }
}

static void test_faults(void **state) {
    (void)state;
    ln_error err;
    for (int f = 0; f < F_COUNT; f++) {
        gguf_build b = {0};
        size_t bytes;
        ln_gguf *g;
        gguf_text(&b, "general.architecture", "llama");
        build_fault(&b, (enum fault)f);
        uint8_t *file = gguf_finish(&b, &bytes);
        const ln_status st = ln_gguf_open_memory(&g, "test.gguf", file, bytes, &err);
        expect(faults[f].word, faults[f].want, faults[f].word, st, &err);
        free(file);
    }
    ln_gguf *g;
    expect("magic", LN_EINVALID, "not a GGUF file",
           ln_gguf_open_memory(&g, "x", (const uint8_t *)"GGMLabcdefgh", 12, &err), &err);
    expect("pointer", LN_EINVALID, "Git LFS pointer",
           ln_gguf_open_memory(&g, "x", (const uint8_t *)"version https://git-lfs.github.com/spec/v1", 42,
                               &err),
           &err);
}

/* ---- files ---- */

static void put_part(const char *name, int no, int count, const char *tensor_name) {
    gguf_build b = {0};
    size_t bytes;
    if (no == 0) gguf_text(&b, "general.architecture", "llama");
    if (no >= 0) gguf_u16(&b, "split.no", (uint16_t)no), gguf_u16(&b, "split.count", (uint16_t)count);
    gguf_tensor(&b, tensor_name, 0, 1, (uint64_t[]){2}, 8);
    uint8_t *file = gguf_finish(&b, &bytes);
    put(name, file, bytes);
    free(file);
}

static void test_split(void **state) {
    (void)state;
    ln_gguf *g;
    ln_error err;
    put_part("m-00001-of-00003.gguf", 0, 3, "a");
    put_part("m-00002-of-00003.gguf", 1, 3, "b");
    expect("file 3", LN_EIO, "file 3 of a split of 3", ln_gguf_open(&g, at("m-00001-of-00003.gguf"), &err),
           &err);
    put_part("m-00003-of-00003.gguf", 2, 3, "c");
    OK(ln_gguf_open(&g, at("m-00001-of-00003.gguf"), err));
    assert_int_equal(g->n_files, 3);
    assert_int_equal(g->n_tensors, 3);
    assert_int_equal(ln_gguf_tensor_named(g, "c")->file, 2);
    assert_non_null(ln_gguf_find(g, "general.architecture"));
    OK(ln_gguf_check(g, err));
    ln_gguf_close(&g);
    expect("not the first", LN_EINVALID, "give the first",
           ln_gguf_open(&g, at("m-00002-of-00003.gguf"), &err), &err);
    put_part("m-00003-of-00003.gguf", 1, 3, "c");
    expect("two", LN_EINVALID, "key split.no: expected 2, found 1",
           ln_gguf_open(&g, at("m-00001-of-00003.gguf"), &err), &err);
    put_part("m-00003-of-00003.gguf", 2, 3, "a");
    expect("twice", LN_EINVALID, "tensor a occurs twice", ln_gguf_open(&g, at("m-00001-of-00003.gguf"), &err),
           &err);
    put_part("m-00003-of-00003.gguf", -1, 3, "c");
    expect("no key", LN_EINVALID, "found no key split.no",
           ln_gguf_open(&g, at("m-00001-of-00003.gguf"), &err), &err);
    put_part("renamed.gguf", 0, 3, "a");
    expect("renamed", LN_EINVALID, "expected the name NAME-00001-of-00003.gguf",
           ln_gguf_open(&g, at("renamed.gguf"), &err), &err);
}

static void test_names(void **state) {
    (void)state;
    unsigned no, count;
    assert_true(ln_gguf_split_name("a/m-00012-of-00345.gguf", &no, &count));
    assert_true(no == 12 && count == 345);
    assert_false(ln_gguf_split_name("m-00000-of-00003.gguf", &no, &count));
    assert_false(ln_gguf_split_name("m-00004-of-00003.gguf", &no, &count));
    assert_false(ln_gguf_split_name("m-0001-of-00003.gguf", &no, &count));
    assert_false(ln_gguf_split_name("m-00001-of-00003.ggml", &no, &count));
    assert_false(ln_gguf_split_name("-00001-of-00003.gguf", &no, &count));
    put("blob", "GGUF----", 8);
    put("other", "GGU", 3);
    assert_true(ln_gguf_is_file(at("blob")));
    assert_false(ln_gguf_is_file(at("other")));
    assert_false(ln_gguf_is_file(at("none")));
    assert_false(ln_gguf_is_file(at("")));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values),  cmocka_unit_test(test_arrays), cmocka_unit_test(test_wrong_types),
        cmocka_unit_test(test_tensors), cmocka_unit_test(test_cuts),   cmocka_unit_test(test_faults),
        cmocka_unit_test(test_split),   cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
