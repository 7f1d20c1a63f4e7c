/* The foundation of the project: status and errors, memory, checked sizes, strings, UTF-8, the log, facts
 * about the machine.
 *
 * ln_status and ln_error are those of the public API. A function that can fail returns ln_status and takes
 * `ln_error *err`, which may be NULL, as its last argument. It fails through ln_fail, which fills the message
 * once; its callers forward the status with LN_TRY and do not rewrite the message, except to prepend a file
 * name with ln_prefix.
 *
 * All memory of the process is allocated with ln_alloc and the other functions of this header, so that it is
 * counted (ln_mem_bytes, used by the memory plan and the metrics) and so that a test can make the n-th
 * allocation fail (ln_mem_fail_at). Products of sizes that depend on input use ln_mul_size, never a plain
 * `*`. */
#ifndef LN_BASE_H
#define LN_BASE_H

#include <linnet.h>
#include <stdarg.h>

#define LN_COUNT(a)  (sizeof(a) / sizeof((a)[0]))
#define LN_MIN(a, b) ((a) < (b) ? (a) : (b))
#define LN_MAX(a, b) ((a) > (b) ? (a) : (b))

/* Fills *err (unless NULL) with `code` and the formatted message, and returns `code`. */
ln_status ln_fail(ln_error *err, ln_status code, const char *fmt, ...) LN_PRINTF(3, 4);
/* Prepends "text: " to the message of *err. Returns err->code, or `code` if err is NULL. */
ln_status ln_prefix(ln_error *err, ln_status code, const char *fmt, ...) LN_PRINTF(3, 4);
#define LN_TRY(x)                                     \
    do {                                              \
        ln_status try_status_ = (x);                  \
        if (try_status_ != LN_OK) return try_status_; \
    } while (0)
/* LN_TRY for a function that cleans up at the label `out:` and returns the variable `st`. */
#define LN_GO(x)                   \
    do {                           \
        st = (x);                  \
        if (st != LN_OK) goto out; \
    } while (0)

/* Calls a callback of the caller whose last argument is `err` (not NULL) and returns its status. Unless that
 * is LN_OK or LN_ECANCELLED, err->code is set to it, and to err->message a default if the callback wrote
 * none. */
#define LN_CALLBACK(call) (err->message[0] = '\0', ln_callback_status((call), err))
ln_status ln_callback_status(ln_status said, ln_error *err);

/* ---- memory ---- */

/* All return NULL on failure and never abort. Blocks are 16-byte aligned. ln_free(NULL) does nothing. */
void *ln_alloc(size_t bytes);                /* not zeroed */
void *ln_zalloc(size_t count, size_t bytes); /* zeroed; NULL if count * bytes overflows */
void *ln_realloc(void *p, size_t bytes);
void ln_free(void *p);
char *ln_strndup(const char *s, size_t bytes); /* adds a terminating NUL; ln_free it */
uint64_t ln_mem_bytes(void);                   /* bytes that are allocated now */
ln_status ln_lock(const void *p, size_t bytes, const char *what,
                  ln_error *err); /* mlock of `what`; LN_EMEMORY if the limit is too low */
/* For tests: the n-th allocation from now on fails, and every later one too if `persistent`; n <= 0 switches
 * this off. Returns how many allocations would still have succeeded under the previous setting, -1 if it was
 * off. */
int64_t ln_mem_fail_at(int64_t n, bool persistent);
#define LN_OOM(err, what) ln_fail(err, LN_EMEMORY, "out of memory while allocating %s", what)

/* Grows a vector of items of `item` bytes: reallocates *p unless its capacity *cap (in items) is at least
 * `need`. LN_EMEMORY; *p and *cap are then unchanged. */
ln_status ln_grow(void **p, size_t *cap, size_t need, size_t item, ln_error *err);

/* An arena: allocations that are freed together. Initialise with zeros; ln_arena_free releases all memory and
 * zeroes the struct. */
typedef struct ln_arena {
    struct ln_arena_block *head;
    size_t used, cap, total;
} ln_arena;
void *ln_arena_alloc(ln_arena *a, size_t bytes); /* zeroed, 16-byte aligned; NULL on failure */
char *ln_arena_strndup(ln_arena *a, const char *s, size_t bytes);
void ln_arena_free(ln_arena *a);

/* Sizes with overflow check: return false on overflow. */
static inline bool ln_mul_size(size_t a, size_t b, size_t *out) { return !__builtin_mul_overflow(a, b, out); }
static inline bool ln_add_size(size_t a, size_t b, size_t *out) { return !__builtin_add_overflow(a, b, out); }

/* ---- strings ---- */

/* A growing byte string. Initialise with zeros, release with ln_str_free. Failure is sticky: an append that
 * cannot allocate sets `failed`, and later appends do nothing. */
typedef struct ln_str {
    char *data; /* NUL-terminated unless NULL */
    size_t len, cap;
    bool failed;
} ln_str;
void ln_str_add(ln_str *s, const char *data, size_t bytes);
void ln_str_adds(ln_str *s, const char *text);
void ln_str_addf(ln_str *s, const char *fmt, ...) LN_PRINTF(2, 3);
void ln_str_free(ln_str *s);
/* Appends `data` as a JSON string literal with quotes; a byte that is not valid UTF-8 becomes U+FFFD. */
void ln_str_json(ln_str *s, const char *data, size_t bytes);
/* Appends a name to a list of `cap` bytes in which `between` separates names, unless the list has it already.
 * An empty name is written as "". The list ends in "..." after the first name that does not fit. */
void ln_list_once(char *list, size_t cap, const char *name, const char *between);
/* Appends `v` with the fewest digits that read back as the same double, independent of the locale; "null" for
 * NaN and infinities. */
void ln_str_double(ln_str *s, double v);
/* Writes a printable excerpt of untrusted bytes for messages to buf: at most 64 bytes, control characters
 * escaped, "..." if it is cut. Returns buf. */
const char *ln_excerpt(char buf[80], const char *data, size_t bytes);
/* The same for a path, with at most 508 bytes. */
#define LN_PATH_TEXT 512
/* Returns advice that follows such a text and begins with a semicolon, or "". */
const char *ln_errno_hint(int number);
/* Converts a message in a buffer of `cap` bytes (8 to 1500) to one printable line: line breaks become
 * blanks, and everything that ln_excerpt would escape is escaped. */
void ln_printable(char *text, size_t cap);
/* Writes the system's text for an errno value to buf, and returns it. */
enum { LN_ERRNO_TEXT = 128 };
const char *ln_errno_text(char buf[LN_ERRNO_TEXT], int number);
const char *ln_path_text(char buf[LN_PATH_TEXT], const char *path);

/* Strict number parsers, independent of the locale: the whole text is one decimal number, without blanks or a
 * plus sign. Return false otherwise or if the value is out of range. */
bool ln_parse_i64(const char *s, size_t bytes, int64_t *out);
bool ln_parse_u64(const char *s, size_t bytes, uint64_t *out);
bool ln_parse_f64(const char *s, size_t bytes, double *out); /* JSON's grammar; 1e400 is out of range */
/* Formats a size as "1.23 GB", "4.5 MB" or "6.7 kB" (powers of 1000), independent of the locale. Returns
 * buf. */
const char *ln_bytes_text(char buf[32], uint64_t bytes);

/* ---- UTF-8 ---- */

/* Decodes the code point at s. Returns its length 1..4, or 0 if the bytes there are not valid UTF-8
 * (overlong encoding, surrogate, beyond U+10FFFF, truncated) or bytes is 0. */
int ln_utf8_get(const char *s, size_t bytes, uint32_t *cp);
/* Encodes a valid code point; returns the number of bytes, 1..4. */
int ln_utf8_put(char out[4], uint32_t cp);
/* The length in bytes of the longest prefix that is valid UTF-8. */
size_t ln_utf8_valid(const char *s, size_t bytes);
/* Checks the start of a text or JSON file for its encoding. *skip is the length of a UTF-8 byte order mark, 3
 * or 0, which the caller skips. LN_EINVALID for UTF-16 or UTF-32, with a mark or recognised by its NUL bytes:
 * the message names the encoding and the command that converts the file `name`. */
ln_status ln_utf8_mark(const char *name, const char *data, size_t bytes, size_t *skip, ln_error *err);
/* The name of the encoding ("UTF-16LE") whose byte order mark the bytes begin with, or that their NUL bytes
 * show; NULL for UTF-8. */
const char *ln_other_encoding(const char *data, size_t bytes);

/* ---- log: passes one sanitised line to the function set by ln_log_set; does nothing if none is set ---- */
void ln_log(ln_level level, const char *fmt, ...) LN_PRINTF(2, 3);

/* ---- time, processors, memory ---- */
double ln_now(void); /* seconds, monotonic */
/* Physical cores that this process may use, at least 1: those of the affinity mask with SMT siblings counted
 * once, limited by the cgroup v1 or v2 CPU quota (rounded up). */
int ln_cores(void);
int ln_logical_cores(void); /* logical processors in the affinity mask */
/* Bytes that can still be allocated: min(MemAvailable, cgroup limit - usage). */
uint64_t ln_memory_available(void);
/* The same less the mapped files of this process, which both count as free, also limited by RLIMIT_AS and
 * RLIMIT_DATA (ulimit): what can be allocated beyond ln_memory_resident. *limit becomes the name of the
 * tightest limit: MemAvailable, cgroup, RLIMIT_AS or RLIMIT_DATA. */
uint64_t ln_memory_left(const char **limit);
uint64_t ln_memory_total(void);
uint64_t ln_memory_resident(void); /* VmRSS */
uint64_t ln_memory_peak(void);     /* VmHWM */

#endif
