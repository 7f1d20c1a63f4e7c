/* One tensor file: every rule of the format, as a table of headers with the expected status and a word of
 * the message. The ids are those of the catalogue of bad inputs that the loader must handle (S-1 ...). A
 * file is built in an exactly sized heap block, so that AddressSanitizer detects a read one byte beyond
 * it. */
/* run: quick asan */
#include "io_test.h"

#include "base/elementary.h"

#define T(name, dtype, shape, a, b) \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":[" shape "],\"data_offsets\":[" a "," b "]}"
#define ONE(dtype, shape, a, b) "{" T("a", dtype, shape, a, b) "}"

typedef struct row {
    const char *id, *header;
    size_t data;
    ln_status want;
    const char *word;
} row;

static const row rows[] = {
    {"plain", ONE("F32", "2,3", "0", "24"), 24, LN_OK, ""},
    {"S-3 no tensors", "{}", 0, LN_OK, ""},
    {"S-3 metadata only", "{\"__metadata__\":{\"format\":\"pt\"}}", 0, LN_OK, ""},
    {"S-10 lone byte", "{\"\xff\":1}", 0, LN_EINVALID, ""},
    {"S-10 overlong", "{\"\xc0\xaf\":1}", 0, LN_EINVALID, ""},
    {"S-10 surrogate", "{\"\xed\xa0\x80\":1}", 0, LN_EINVALID, ""},
    {"S-11 open", "{", 0, LN_EINVALID, ""},
    {"S-11 array", "[]", 0, LN_EINVALID, "must be an object, found"},
    {"S-11 string", "\"x\"", 0, LN_EINVALID, "must be an object, found"},
    {"S-11 null", "null", 0, LN_EINVALID, "must be an object, found"},
    {"S-11 number", "1", 0, LN_EINVALID, "must be an object, found"},
    {"S-12 spaces after", ONE("U8", "1", "0", "1") "   \n", 1, LN_OK, ""},
    {"S-12 tab and newline before", "\t\n " ONE("U8", "1", "0", "1"), 1, LN_OK, ""},
    {"S-14 two documents", ONE("U8", "1", "0", "1") "{}", 1, LN_EINVALID, ""},
    {"S-15 same name", "{" T("a", "U8", "1", "0", "1") "," T("a", "U8", "1", "0", "1") "}", 1, LN_EINVALID,
     "begin at"},
    {"S-15 same name, own bytes", "{" T("a", "U8", "1", "0", "1") "," T("a", "U8", "1", "1", "2") "}", 2,
     LN_EINVALID, "duplicate key"},
    {"S-15 same name, empty", "{" T("a", "U8", "0", "0", "0") "," T("a", "U8", "0", "0", "0") "}", 0,
     LN_EINVALID, "duplicate key"},
    {"S-16 same name, once escaped",
     "{" T("a", "U8", "1", "0", "1") "," T("\\u0061", "U8", "1", "1", "2") "}", 2, LN_EINVALID,
     "duplicate key"},
    {"S-17 dtype twice", "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
     1, LN_EINVALID, "duplicate key `dtype`"},
    {"S-17 shape twice", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     LN_EINVALID, "duplicate key `shape`"},
    {"S-17 offsets twice",
     "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"data_offsets\":[0,1]}}", 1, LN_EINVALID,
     "duplicate key `data_offsets`"},
    {"S-18 metadata twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0, LN_EINVALID,
     "duplicate key `__metadata__`"},
    {"S-18 a key of metadata twice", "{\"__metadata__\":{\"a\":\"1\",\"b\":\"\",\"\\u0061\":\"2\"}}", 0,
     LN_EINVALID, "`__metadata__`: duplicate key `a`"},
    {"S-18 keys of metadata alike",
     "{\"__metadata__\":{\"a\":\"1\",\"a\\u0000\":\"\",\"\":\"1\",\"A\":\"\"}}", 0, LN_OK, ""},
    {"S-19 unknown key", "{\"a\":{\"dtype\":\"U8\",\"note\":[1,2],\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
     LN_OK, ""},
    {"S-20 beyond the end", ONE("U8", "2", "0", "2"), 1, LN_EINVALID, "truncated"},
    {"S-21 ends before it begins", ONE("U8", "1", "1", "0"), 1, LN_EINVALID, "found [1, 0]"},
    {"S-22 overlap by a byte", "{" T("a", "U8", "2", "0", "2") "," T("b", "U8", "2", "1", "3") "}", 3,
     LN_EINVALID, "overlap"},
    {"S-24 gap of a byte", "{" T("a", "U8", "2", "0", "2") "," T("b", "U8", "2", "3", "5") "}", 5,
     LN_EINVALID, "gap"},
    {"S-25 first at 1", ONE("U8", "1", "1", "2"), 2, LN_EINVALID, "gap"},
    {"S-26 bytes after", ONE("U8", "1", "0", "1"), 2, LN_EINVALID, "follow the last tensor"},
    {"S-26 bytes and no tensor", "{}", 1, LN_EINVALID, "follow the last tensor"},
    {"S-27 a byte short", ONE("F32", "4", "0", "16"), 15, LN_EINVALID, "has 15 bytes of data, needs 16"},
    {"S-27 a gigabyte short", ONE("U8", "1073741824", "0", "1073741824"), 16, LN_EINVALID, "truncated"},
    {"S-28 negative", ONE("U8", "1", "-1", "0"), 1, LN_EINVALID, "integer"},
    {"S-28 minus zero", ONE("U8", "1", "-0", "1"), 1, LN_EINVALID, "integer"},
    {"S-28 real", ONE("U8", "1", "0.0", "1"), 1, LN_EINVALID, "integer"},
    {"S-28 exponent", ONE("U8", "1", "0", "1e0"), 1, LN_EINVALID, "integer"},
    {"S-28 string", ONE("U8", "1", "\"0\"", "1"), 1, LN_EINVALID, "integer"},
    {"S-28 beyond 2^63", ONE("U8", "1", "0", "9223372036854775809"), 1, LN_EINVALID, "2^48"},
    {"S-28 40 digits", ONE("U8", "1", "0", "1111111111222222222233333333334444444444"), 1, LN_EINVALID,
     "integer"},
    {"S-28 negative dimension", ONE("U8", "-2,-1", "0", "2"), 2, LN_EINVALID, "integer"},
    {"S-28 real dimension", ONE("U8", "1.0", "0", "1"), 1, LN_EINVALID, "integer"},
    {"S-29 no offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[]}}", 0, LN_EINVALID,
     "exactly 2"},
    {"S-29 one offset", "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0]}}", 0, LN_EINVALID,
     "exactly 2"},
    {"S-29 three offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0,0]}}", 0,
     LN_EINVALID, "exactly 2"},
    {"S-29 offsets no array", "{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":0}}", 0, LN_EINVALID,
     "array"},
    {"S-30 dimension of 2^64 - 2", ONE("U8", "2,18446744073709551614", "0", "0"), 0, LN_EINVALID, "2^48"},
    {"S-30 2^32 by 2^32", ONE("U8", "4294967296,4294967296", "0", "0"), 0, LN_EINVALID, "overflows"},
    {"S-30 65536 five times", ONE("U8", "65536,65536,65536,65536,65536", "0", "0"), 0, LN_EINVALID,
     "overflows"},
    {"S-30 65536 four times", ONE("U8", "65536,65536,65536,65536", "0", "0"), 0, LN_EINVALID, "overflows"},
    {"S-31 bits overflow", ONE("I32", "4,140737488355328,4096", "0", "0"), 0, LN_EINVALID, "overflows"},
    {"S-32 zero times huge", ONE("U8", "0,9223372036854775808", "0", "0"), 0, LN_EINVALID, "2^48"},
    {"S-32 zero before an overflow", ONE("U8", "0,281474976710655,281474976710655", "0", "0"), 0, LN_OK, ""},
    {"S-32 zero after an overflow", ONE("U8", "281474976710655,281474976710655,0", "0", "0"), 0, LN_EINVALID,
     "overflows"},
    {"limit: dimension of 2^48 - 1", ONE("U8", "0,281474976710655", "0", "0"), 0, LN_OK, ""},
    {"limit: dimension of 2^48", ONE("U8", "0,281474976710656", "0", "0"), 0, LN_EINVALID, "2^48"},
    {"S-33 size and range differ", ONE("F32", "2", "0", "4"), 4, LN_EINVALID,
     "need 8 bytes, `data_offsets` give 4"},
    {"S-34 rank 8", ONE("U8", "1,1,1,1,1,1,1,1", "0", "1"), 1, LN_OK, ""},
    {"S-34 rank 9", ONE("U8", "1,1,1,1,1,1,1,1,1", "0", "1"), 1, LN_EINVALID, "at most 8 dimensions"},
    {"S-35 scalar", ONE("I32", "", "0", "4"), 4, LN_OK, ""},
    {"S-36 zero-sized", "{" T("a", "U8", "3", "0", "3") "," T("z", "F32", "2,0", "3", "3") "}", 3, LN_OK, ""},
    {"S-37 zero-sized at one place",
     "{" T("z", "F32", "0", "1", "1") "," T("y", "U8", "0,5", "1", "1") "," T("a", "U8", "1", "0",
                                                                              "1") "," T("x", "U8", "0", "0",
                                                                                         "0") "}",
     1, LN_OK, ""},
    {"S-38 known, not computable", ONE("F8_E4M3", "3", "0", "3"), 3, LN_OK, ""},
    {"S-39 F17", ONE("F17", "1", "0", "1"), 1, LN_EUNSUPPORTED, "F17"},
    {"S-39 bf16", ONE("bf16", "1", "0", "2"), 2, LN_EUNSUPPORTED, "bf16"},
    {"S-39 no name", ONE("", "1", "0", "1"), 1, LN_EUNSUPPORTED, "dtype"},
    {"S-40 F4, even", ONE("F4", "4", "0", "2"), 2, LN_OK, ""},
    {"S-40 F4, odd", ONE("F4", "3", "0", "2"), 2, LN_EINVALID, "whole bytes"},
    {"S-40 F6", ONE("F6_E2M3", "4", "0", "3"), 3, LN_OK, ""},
    {"S-40 F6, not on a byte", ONE("F6_E3M2", "3", "0", "3"), 3, LN_EINVALID, "whole bytes"},
    {"S-41 bool", ONE("BOOL", "3", "0", "3"), 3, LN_OK, ""},
    {"S-42 C64", ONE("C64", "1", "0", "8"), 8, LN_OK, ""},
    {"S-43 empty name", "{" T("", "U8", "1", "0", "1") "}", 1, LN_EINVALID, "empty name"},
    {"S-43 name with U+0000", "{" T("a\\u0000b", "U8", "1", "0", "1") "}", 1, LN_EINVALID, "U+0000"},
    {"S-43 name with an escape sequence", "{" T("\\u001b[31m\\n", "U8", "2", "0", "1") "}", 1, LN_EINVALID,
     "need 2 bytes"},
    {"S-45 odd addresses", "{" T("a", "U8", "1", "0", "1") "," T("b", "F32", "1", "1", "5") "} ", 5, LN_OK,
     ""},
    {"S-46 metadata number", "{\"__metadata__\":{\"a\":1}}", 0, LN_EINVALID, "__metadata__"},
    {"S-46 metadata object", "{\"__metadata__\":{\"a\":{}}}", 0, LN_EINVALID, "__metadata__"},
    {"S-46 metadata array", "{\"__metadata__\":{\"a\":[]}}", 0, LN_EINVALID, "__metadata__"},
    {"S-46 metadata null", "{\"__metadata__\":{\"a\":null}}", 0, LN_EINVALID, "__metadata__"},
    {"S-46 metadata is null", "{\"__metadata__\":null}", 0, LN_OK, ""},
    {"S-46 metadata null twice", "{\"__metadata__\":null,\"__metadata__\":null}", 0, LN_EINVALID,
     "duplicate"},
    {"S-46 metadata is a string", "{\"__metadata__\":\"x\"}", 0, LN_EINVALID, "__metadata__"},
    {"S-48 a tensor called metadata", "{" T("__metadata__", "U8", "1", "0", "1") "}", 1, LN_EINVALID,
     "__metadata__"},
    {"S-50 byte order mark", "\xef\xbb\xbf{}", 0, LN_EINVALID, ""},
    {"no dtype", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, LN_EINVALID, "found no `dtype`"},
    {"no shape", "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, LN_EINVALID, "found no `shape`"},
    {"no offsets", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, LN_EINVALID, "found no `data_offsets`"},
    {"dtype no string", "{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, LN_EINVALID,
     "dtype"},
    {"shape no array", "{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", 1, LN_EINVALID,
     "shape"},
    {"tensor no object", "{\"a\":1}", 0, LN_EINVALID, "object"},
    {"trailing comma", "{" T("a", "U8", "1", "0", "1") ",}", 1, LN_EINVALID, ""},
    {"single quotes", "{'a':1}", 0, LN_EINVALID, ""},
};

static ln_status open_header(ln_tensors *t, const char *header, size_t header_bytes, size_t data,
                             uint8_t **mem, ln_error *err) {
    size_t bytes;
    *mem = file_of(header, header_bytes, data, &bytes);
    return ln_tensors_open_memory(t, "x.safetensors", *mem, bytes, err);
}

static void test_rows(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        ln_error err = {0};
        ln_tensors t;
        uint8_t *mem;
        ln_status st = open_header(&t, rows[i].header, strlen(rows[i].header), rows[i].data, &mem, &err);
        expect(rows[i].id, rows[i].want, rows[i].word, st, &err);
        if (st == LN_OK) ln_tensors_close(&t);
        free(mem);
    }
    print_message("%zu headers\n", LN_COUNT(rows));
}

/* Raw bytes of files: wrong header lengths, other formats, HTML pages, Git LFS pointers. */
static void test_raw(void **state) {
    (void)state;
    static const struct {
        const char *id, *bytes;
        size_t n;
        const char *word;
    } raw[] = {
        {"S-1", "", 0, "0 bytes"},
        {"S-2", "\1\0\0", 3, "3 bytes"},
        {"S-2", "\1\0\0\0\0\0\0", 7, "7 bytes"},
        {"S-3", "\0\0\0\0\0\0\0\0", 8, "empty header"},
        {"S-4", "\x3c\0\0\0\0\0\0\0", 8, "beyond the end"},
        {"S-4 by one", "\3\0\0\0\0\0\0\0{}", 10, "beyond the end"},
        {"S-5", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "limit"},
        {"S-6 2^63", "\0\0\0\0\0\0\0\x80{}", 10, "limit"},
        {"S-6 2^32", "\0\0\0\0\1\0\0\0{}", 10, "limit"},
        {"S-6 2^31", "\0\0\0\x80\0\0\0\0{}", 10, "limit"},
        {"S-7 short", "\1\xe1\xf5\5\0\0\0\0{}", 10, "limit"},
        {"S-9", "\0\0\0\0\0\0\0\2{}", 10, "limit"},
        {"S-13", "\3\0\0\0\0\0\0\0{}\0", 11, ""},
        {"S-51 zip", "PK\3\4\0\0\x08\x08\0\0\0\0", 12, "zip or pickle"},
        {"S-51 pickle", "\x80\2}q\1(X\5\0\0\0", 12, "never loads pickle"},
        {"S-52", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", 63,
         "Git LFS pointer"},
        {"S-53", "<!DOCTYPE html><html><body>404</body></html>", 44, "HTML"},
        {"gguf", "GGUF\3\0\0\0\0\0\0\0\0\0\0\0", 16, "GGUF"},
    };
    for (size_t i = 0; i < LN_COUNT(raw); i++) {
        ln_error err = {0};
        ln_tensors t;
        uint8_t *copy = malloc(raw[i].n ? raw[i].n : 1);
        memcpy(copy, raw[i].bytes, raw[i].n);
        expect(raw[i].id, LN_EINVALID, raw[i].word, ln_tensors_open_memory(&t, "x", copy, raw[i].n, &err),
               &err);
        free(copy);
    }
    /* 640 is 80 02 00 00 ...: a header length with the first bytes of a pickle file */
    char header[641];
    memset(header, ' ', 640);
    memcpy(header, "{}", 2);
    ln_tensors t;
    uint8_t *mem;
    OK(open_header(&t, header, 640, 0, &mem, err));
    ln_tensors_close(&t);
    free(mem);
}

/* The reader returns the data that was written, at any offset. */
static void test_contents(void **state) {
    (void)state;
    static const char header[] =
        "{" T("b", "F32", "1,2", "1", "9") "," T("a", "U8", "1", "0", "1") "," T("c.d", "BF16", "", "9",
                                                                                 "11") "}";
    ln_tensors t;
    uint8_t *mem;
    OK(open_header(&t, header, sizeof header - 1, 11, &mem, err));
    assert_int_equal(t.n, 3);
    assert_int_equal(t.bytes, 11);
    assert_string_equal(t.items[0].name, "a");
    const ln_tensor *b = ln_tensors_find(&t, "b");
    assert_non_null(b);
    assert_int_equal(b->n_dims, 2);
    assert_int_equal(b->dims[0], 1);
    assert_int_equal(b->dims[1], 2);
    assert_int_equal(b->dtype, LN_ST_F32);
    assert_int_equal(b->bytes, 8);
    assert_int_equal(b->data[0], 1);
    assert_int_equal(b->data[7], 8);
    assert_int_equal(ln_tensors_find(&t, "c.d")->n_dims, 0);
    assert_null(ln_tensors_find(&t, "c"));
    assert_null(ln_tensors_find(&t, ""));
    ln_tensors_close(&t);
    free(mem);
}

/* S-8: a header of exactly the limit loads; S-7: one byte more is rejected. */
static void test_largest_header(void **state) {
    (void)state;
    size_t n = LN_ST_MAX_HEADER + 1, bytes;
    char *header = malloc(n);
    memset(header, ' ', n);
    static const char one[] = ONE("U8", "1", "0", "1");
    memcpy(header, one, sizeof one - 1);
    ln_tensors t;
    uint8_t *mem;
    OK(open_header(&t, header, n - 1, 1, &mem, err));
    assert_int_equal(t.n, 1);
    ln_tensors_close(&t);
    free(mem);
    mem = file_of(header, n, 1, &bytes);
    ln_error err = {0};
    expect("S-7", LN_EINVALID, "limit", ln_tensors_open_memory(&t, "x", mem, bytes, &err), &err);
    free(mem);
    free(header);
}

/* Builds the header of `count` tensors with numbered names; `same`: all of them refer to the same byte. */
static char *many(size_t count, bool same, size_t *bytes) {
    char *p = malloc(count * 80 + 16), *q = p;
    *q++ = '{';
    for (size_t i = 0; i < count; i++)
        q += snprintf(q, 80, "%s\"t%zu\":{\"dtype\":\"U8\",\"shape\":[%d],\"data_offsets\":[0,%d]}",
                      i ? "," : "", i, same, same);
    *q++ = '}';
    *bytes = (size_t)(q - p);
    return p;
}

/* S-44 and S-23: as many tensors as the limit allows, more than that, and the cost of refusing. */
static void test_many(void **state) {
    (void)state;
    size_t n;
    ln_tensors t;
    uint8_t *mem;
    char *header = many(LN_ST_MAX_TENSORS, false, &n);
    OK(open_header(&t, header, n, 0, &mem, err));
    assert_int_equal(t.n, LN_ST_MAX_TENSORS);
    assert_non_null(ln_tensors_find(&t, "t65535"));
    ln_tensors_close(&t);
    free(mem), free(header);

    header = many(LN_ST_MAX_TENSORS + 1, false, &n);
    ln_error err = {0};
    uint64_t before = ln_mem_bytes();
    expect("S-44", LN_EINVALID, "more than 65536", open_header(&t, header, n, 0, &mem, &err), &err);
    assert_int_equal(ln_mem_bytes(), before);
    free(mem), free(header);

    header = many(LN_ST_MAX_TENSORS, true, &n);
    double start = cpu_seconds();
    expect("S-23", LN_EINVALID, "overlap", open_header(&t, header, n, 1, &mem, &err), &err);
    assert_true(cpu_seconds() - start < 20); /* a sanitizer build is slow; only quadratic time would take
                                                20 s */
    free(mem), free(header);
}

static void test_long_names_and_depth(void **state) {
    (void)state;
    static char name[2100], header[4200];
    ln_tensors t;
    uint8_t *mem;
    for (size_t n = LN_ST_MAX_NAME - 1; n <= LN_ST_MAX_NAME + 1; n++) {
        memset(name, 'n', n);
        name[n] = '\0';
        int len = snprintf(header, sizeof header,
                           "{\"%s\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", name);
        ln_error err = {0};
        ln_status st = open_header(&t, header, (size_t)len, 1, &mem, &err);
        expect("S-43 long name", n <= LN_ST_MAX_NAME ? LN_OK : LN_EINVALID, "the limit is 1024", st, &err);
        if (st == LN_OK) ln_tensors_close(&t);
        free(mem);
    }
    char *deep = malloc(20000);
    memset(deep, '[', 10000);
    ln_error err = {0};
    expect("S-49 array", LN_EINVALID, "object", open_header(&t, deep, 10000, 0, &mem, &err), &err);
    free(mem);
    memcpy(deep, "{\"a\":{\"x\":", 10);
    expect("S-49 inside", LN_EINVALID, "", open_header(&t, deep, 10000, 0, &mem, &err), &err);
    free(mem), free(deep);
}

/* Each allocation fails in turn: an error every time, and no memory is leaked. */
static void test_no_memory(void **state) {
    (void)state;
    static const char header[] = "{" T("a\\u0062", "U8", "1", "0", "1") "," T("b", "U8", "1", "1", "2") "}";
    uint64_t before = ln_mem_bytes();
    int failures = 0;
    for (int64_t n = 1;; n++) {
        ln_tensors t;
        uint8_t *mem;
        ln_error err = {0};
        ln_mem_fail_at(n, false);
        ln_status st = open_header(&t, header, sizeof header - 1, 2, &mem, &err);
        ln_mem_fail_at(-1, false);
        free(mem);
        if (st == LN_OK) {
            ln_tensors_close(&t);
            break;
        }
        assert_int_equal(st, LN_EMEMORY);
        failures++;
    }
    assert_int_equal(ln_mem_bytes(), before);
    assert_true(failures >= 4);
}

/* The reader reads what the header writer writes; data begin at a multiple of 8 bytes. */
static void test_writer(void **state) {
    (void)state;
    static const ln_tensor_spec specs[] = {{"keys.0", LN_ST_F32, 3, {2, 3, 4}},
                                           {"lo\"g\nits", LN_ST_BF16, 1, {5}},
                                           {"scalar", LN_ST_I64, 0, {0}},
                                           {"none", LN_ST_F32, 2, {0, 7}}};
    ln_str s = {0};
    OK(ln_tensors_header(&s, specs, LN_COUNT(specs), err));
    assert_int_equal(s.len % 8, 0);
    size_t data = 96 + 10 + 8, n = s.len + data;
    uint8_t *file = calloc(1, n);
    memcpy(file, s.data, s.len);
    ln_tensors t;
    OK(ln_tensors_open_memory(&t, "written", file, n, err));
    assert_int_equal(t.n, 4);
    for (size_t i = 0; i < LN_COUNT(specs); i++) {
        const ln_tensor *x = ln_tensors_find(&t, specs[i].name);
        assert_non_null(x);
        assert_int_equal(x->dtype, specs[i].dtype);
        assert_int_equal(x->n_dims, specs[i].n_dims);
        assert_memory_equal(x->dims, specs[i].dims, sizeof x->dims);
    }
    assert_ptr_equal(ln_tensors_find(&t, "keys.0")->data, file + s.len);
    ln_tensors_close(&t);
    free(file);
    s.len = 0;
    OK(ln_tensors_header(&s, NULL, 0, err));
    ln_str_free(&s);
    static const ln_tensor_spec huge = {"x", LN_ST_F32, 3, {1 << 30, 1 << 30, 1 << 30}},
                                odd = {"x", LN_ST_F4, 1, {3}};
    ln_error err = {0};
    expect("too large", LN_EUSAGE, "too large", ln_tensors_header(&s, &huge, 1, &err), &err);
    expect("odd", LN_EUSAGE, "placed", ln_tensors_header(&s, &odd, 1, &err), &err);
    ln_str_free(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),      cmocka_unit_test(test_raw),
        cmocka_unit_test(test_contents),  cmocka_unit_test(test_largest_header),
        cmocka_unit_test(test_many),      cmocka_unit_test(test_long_names_and_depth),
        cmocka_unit_test(test_no_memory), cmocka_unit_test(test_writer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
