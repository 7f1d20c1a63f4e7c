/* Everything in the house stands on this: status and errors, memory, checked sizes.
 *
 * ln_status and ln_error are the public ones. A fallible function returns ln_status and takes `ln_error *err` last; it fails
 * through ln_fail, which fills the message once; callers forward with LN_TRY and never rewrite a message, except to put a
 * file name before it with ln_prefix.
 *
 * All memory of the process goes through ln_alloc and friends, so that it is counted (ln_mem_bytes: what `plan` and the
 * metrics report) and so that a test can fail the n-th allocation (ln_mem_fail_at). Sizes are multiplied with ln_mul_size,
 * never with a bare `*` where an input decides them. */
#ifndef LN_BASE_H
#define LN_BASE_H

#include <linnet.h>
#include <stdarg.h>

#define LN_COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define LN_MIN(a, b) ((a) < (b) ? (a) : (b))
#define LN_MAX(a, b) ((a) > (b) ? (a) : (b))

/* Fills *err (if not NULL) and returns `code`. */
ln_status ln_fail(ln_error *err, ln_status code, const char *fmt, ...) LN_PRINTF(3, 4);
/* Puts "text: " before the message of *err, when there is one. Returns err->code (or `code` when err is NULL). */
ln_status ln_prefix(ln_error *err, ln_status code, const char *fmt, ...) LN_PRINTF(3, 4);
#define LN_TRY(x)                                                                                                                        \
    do {                                                                                                                                 \
        ln_status try_status_ = (x);                                                                                                     \
        if (try_status_ != LN_OK) return try_status_;                                                                                    \
    } while (0)
/* The same inside a function that cleans up at `out:` and returns `st`. */
#define LN_GO(x)                                                                                                                         \
    do {                                                                                                                                 \
        st = (x);                                                                                                                        \
        if (st != LN_OK) goto out;                                                                                                       \
    } while (0)

/* ---- memory: NULL on failure, never abort. Blocks are 16-byte aligned. ln_free(NULL) is fine. ---- */
void *ln_alloc(size_t bytes);                   /* not zeroed */
void *ln_zalloc(size_t count, size_t bytes);    /* zeroed; checked product */
void *ln_realloc(void *p, size_t bytes);
void ln_free(void *p);
char *ln_strndup(const char *s, size_t bytes);  /* with a terminator added */
uint64_t ln_mem_bytes(void);                    /* bytes now held through these functions */
ln_status ln_lock(const void *p, size_t bytes, const char *what, ln_error *err); /* mlock; LN_EMEMORY says how much and what to do */
/* Tests: the n-th allocation from now fails (and all later ones); -1: off. Returns how many had still been to succeed before, -1: off. */
int64_t ln_mem_fail_at(int64_t n, bool persistent);
#define LN_OOM(err, what) ln_fail(err, LN_EMEMORY, "out of memory while allocating %s", what)

/* Grows a vector: makes room for `need` items of `item` bytes in *p whose capacity is *cap. */
ln_status ln_grow(void **p, size_t *cap, size_t need, size_t item, ln_error *err);

/* An arena: blocks freed together. Zero-initialise; ln_arena_free gives everything back. */
typedef struct ln_arena {
    struct ln_arena_block *head;
    size_t used, cap, total;
} ln_arena;
void *ln_arena_alloc(ln_arena *a, size_t bytes); /* zeroed, 16-byte aligned; NULL on failure */
char *ln_arena_strndup(ln_arena *a, const char *s, size_t bytes);
void ln_arena_free(ln_arena *a);

/* Checked sizes: false on overflow. */
static inline bool ln_mul_size(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool ln_add_size(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }

/* ---- strings ---- */

/* A growing byte string; zero-initialise, ln_str_free. Failure is sticky: `failed` is set and later calls do nothing. */
typedef struct ln_str {
    char *data; /* always terminated when not NULL */
    size_t len, cap;
    bool failed;
} ln_str;
void ln_str_add(ln_str *s, const char *data, size_t bytes);
void ln_str_adds(ln_str *s, const char *text);
void ln_str_addf(ln_str *s, const char *fmt, ...) LN_PRINTF(2, 3);
void ln_str_free(ln_str *s);
/* Adds `data` as a JSON string literal with its quotes; invalid UTF-8 becomes U+FFFD. */
void ln_str_json(ln_str *s, const char *data, size_t bytes);
/* Adds `v` with the fewest digits that read back as the same double; "null" for NaN and infinities. Locale-free. */
void ln_str_double(ln_str *s, double v);
/* A printable excerpt of untrusted bytes for messages: at most 64 bytes, control characters escaped. Returns buf. */
const char *ln_excerpt(char buf[80], const char *data, size_t bytes);
/* The same for a path: up to 508 bytes of it. */
#define LN_PATH_TEXT 512
/* What the system calls an errno, in buf. */
enum { LN_ERRNO_TEXT = 128 };
const char *ln_errno_text(char buf[LN_ERRNO_TEXT], int number);
const char *ln_path_text(char buf[LN_PATH_TEXT], const char *path);

/* Strict numbers: the whole text, decimal, no blanks, no plus sign; false otherwise or out of range. Locale-free. */
bool ln_parse_i64(const char *s, size_t bytes, int64_t *out);
bool ln_parse_u64(const char *s, size_t bytes, uint64_t *out);
bool ln_parse_f64(const char *s, size_t bytes, double *out); /* JSON's number grammar; 1e400 is refused */
/* "1.23 GB", "4.5 MB" or "6.7 kB", in powers of 1000, whatever the locale. Returns buf. */
const char *ln_bytes_text(char buf[32], uint64_t bytes);

/* ---- UTF-8 ---- */

/* Decodes one code point at s (bytes > 0). Returns its length 1..4, or 0 when the bytes are no valid UTF-8 there (overlong,
 * surrogate, > U+10FFFF, cut off). */
int ln_utf8_get(const char *s, size_t bytes, uint32_t *cp);
int ln_utf8_put(char out[4], uint32_t cp);
/* The length of the longest valid prefix. */
size_t ln_utf8_valid(const char *s, size_t bytes);
/* Looks for a byte order mark at the start of a text or JSON file. *skip is the length of the one of UTF-8, 3
 * or 0, which callers drop. The mark of UTF-16 or UTF-32 is LN_EINVALID: the message names the encoding and
 * how to convert the file called `name`. */
ln_status ln_utf8_mark(const char *name, const char *data, size_t bytes, size_t *skip, ln_error *err);
/* The encoding whose byte order mark the bytes begin with ("UTF-16LE"); NULL for UTF-8 and for none. */
const char *ln_other_encoding(const char *data, size_t bytes);

/* ---- log: one sanitised line to the function of ln_log_set; nothing without one ---- */
void ln_log(ln_level level, const char *fmt, ...) LN_PRINTF(2, 3);

/* ---- time and the machine ---- */
double ln_now(void); /* seconds, monotonic */
/* Physical cores this process may use: sched affinity, siblings counted once, cgroup v1/v2 cpu quota (rounded up). >= 1. */
int ln_cores(void);
int ln_logical_cores(void); /* logical processors in the affinity mask */
/* Bytes that may still be taken: min(MemAvailable, cgroup limit - usage). */
uint64_t ln_memory_available(void);
/* The same with what `ulimit` leaves, and the name of the limit that decides: MemAvailable, cgroup,
 * RLIMIT_AS, RLIMIT_DATA. */
uint64_t ln_memory_left(const char **limit);
uint64_t ln_memory_total(void);
uint64_t ln_memory_resident(void); /* VmRSS */
uint64_t ln_memory_peak(void);     /* VmHWM */

#endif
