/* HTTP/1.1 as a server reads and writes it (RFC 9110, RFC 9112): bytes in, bytes out, no sockets.
 *
 * The reader is strict: what RFC 9112 forbids is refused, and nothing is normalised, because two programs
 * that read the same bytes differently are how requests are smuggled. Its result does not depend on how the
 * bytes were cut into pieces (tests/serve/test_http.c tries every cut). It keeps one head, at most
 * HTTP_MOST_HEAD bytes, and nothing of a body. After an error the connection must be closed. */
#ifndef LN_HTTP_H
#define LN_HTTP_H

#include "../base/base.h"

#include <string.h>

enum {
    HTTP_MOST_LINE = 8 << 10,    /* bytes of a request line, without its end */
    HTTP_MOST_HEAD = 32 << 10,   /* bytes of all header fields; of the trailers, a quarter */
    HTTP_MOST_FIELDS = 100,      /* header fields */
    HTTP_MOST_CHUNK_LINE = 256,  /* bytes of the line before a chunk */
    HTTP_MOST_CHUNK_DIGITS = 16, /* of a chunk's size */
};

typedef enum http_method {
    HTTP_GET = 0,
    HTTP_HEAD,
    HTTP_POST,
    HTTP_PUT,
    HTTP_DELETE,
    HTTP_PATCH,
    HTTP_OPTIONS,
    HTTP_TRACE,
    HTTP_CONNECT,
    HTTP_QUERY
} http_method;
const char *http_method_name(http_method m);

/* A part of the head. Not terminated. */
typedef struct http_span {
    const char *at;
    size_t n;
} http_span;
static inline bool http_is(http_span s, const char *text) {
    return s.n == strlen(text) && memcmp(s.at, text, s.n) == 0;
}
/* The same without regard to the case of ASCII letters. */
bool http_is_word(http_span s, const char *lower);

/* The head of a request. The spans point into the reader's buffer and are valid until it is reset. */
typedef struct http_head {
    http_method method;
    int minor;       /* of HTTP/1.0 and HTTP/1.1 */
    http_span path;  /* begins with / (or is *), percent-encoded as it was sent */
    http_span query; /* what follows the question mark */
    http_span host;  /* of the field Host or the absolute target, with its port; empty in HTTP/1.0 at most */
    struct {
        http_span name, value; /* the value without blanks at its ends */
    } fields[HTTP_MOST_FIELDS];
    int n_fields;
    bool keep_alive;
    bool expects_continue; /* Expect: 100-continue */
    bool chunked, has_length;
    uint64_t length; /* of the body, with has_length */
} http_head;

/* The value of the first field of that name (lower case); at NULL where there is none. */
http_span http_field(const http_head *h, const char *lower);
int http_count(const http_head *h, const char *lower);
/* Decodes %HH to `out`, which has room for s.n + 1 bytes, and adds a NUL. Returns the length. The reader has
 * checked that each % is followed by two digits and none of them is %00. */
size_t http_decode(http_span s, char *out);

/* MORE: all bytes were used. HEAD: a head is complete, in http_reader.head. DATA: a piece of the body. END:
 * the request is complete. ERROR: http_reader.status says why; nothing more can be read. */
typedef enum http_event { HTTP_MORE = 0, HTTP_GOT_HEAD, HTTP_DATA, HTTP_END, HTTP_ERROR } http_event;

typedef struct http_reader {
    int state;          /* see http_reader.c */
    uint64_t most_body; /* 413 beyond it */
    uint64_t left;      /* of the body, or of the chunk */
    uint64_t body;      /* bytes of the body so far */
    ln_str text;        /* the head so far */
    size_t line_at;     /* where its last, unfinished line begins */
    size_t fields_at;   /* where the header fields begin */
    ln_str tail;        /* the line of a chunk, or of a trailer, so far */
    size_t trailer;     /* bytes of trailers so far */
    bool blank;         /* an empty line came before the request line */
    http_head head;
    int status;      /* of an error */
    const char *why; /* static */
} http_reader;

/* Prepares for the first request of a connection, or the next one: the limit stays. */
void http_reader_reset(http_reader *r);
void http_reader_free(http_reader *r);
/* Whether not one byte of a request was read. */
bool http_reader_idle(const http_reader *r);
/* Reads from data[n) up to the next event. *used: the bytes that it took. DATA: the piece is data[*at, *at +
 * *piece). ERROR: 400, 411, 413, 414, 417, 431, 501, 505, or 500 where memory ran out. */
http_event http_read(http_reader *r, const char *data, size_t n, size_t *used, size_t *at, size_t *piece);

/* ---- http_head.c, for the reader ---- */

/* Judges what of a request line has come so far, line[n), without its end: a status other than 0 refuses it.
 */
int http_check_line(const char *line, size_t n, const char **why);
/* Parses a whole head: request line and fields, each ended by CRLF, and the empty line. 0 or a status. */
int http_parse_head(http_head *h, const char *text, size_t n, const char **why);
/* Parses one field line, line[n) without its end. 0 or a status. */
int http_parse_field(const char *line, size_t n, http_span *name, http_span *value, const char **why);

/* ---- writing (http_writer.c) ---- */

typedef struct http_reply {
    int status;
    const char *type; /* Content-Type, or NULL: no body */
    int64_t length;   /* of the body; -1: not known, chunked (HTTP/1.1) or up to the connection's end */
    bool keep_alive;  /* the connection stays open */
    int minor;        /* of the request */
    const char *more; /* further fields, each with CRLF at its end; "" */
} http_reply;
const char *http_reason(int status);
/* Appends status line, fields and the empty line. */
void http_put_head(ln_str *out, const http_reply *r);
/* Appends a chunk; nothing where n is 0. */
void http_put_chunk(ln_str *out, const char *data, size_t n);
void http_put_last_chunk(ln_str *out);
/* Appends a time as RFC 9110 has it: Sun, 06 Nov 1994 08:49:37 GMT. */
void http_put_date(ln_str *out, int64_t seconds);

#endif
