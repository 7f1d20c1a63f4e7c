/* The reader of requests: a machine of states over bytes that arrive in any pieces.
 *
 *   LINE -> FIELDS -> (head) -> BODY ------------------------------> (end)
 *                            -> SIZE -> CHUNK -> CHUNK_END -> SIZE
 *                                    -> TRAILER ------------------> (end)
 *
 * Lines end with CRLF. A lone CR, a lone LF and a NUL are errors wherever a line is read. */
#include "http.h"

enum { MOST_KEPT = 4096 }; /* bytes of buffers that a connection keeps from one request to the next */
enum { LINE = 0, FIELDS, GIVE_HEAD, BODY, SIZE, CHUNK, CHUNK_CR, CHUNK_LF, TRAILER, GIVE_END, ENDED, BROKEN };

void http_reader_reset(http_reader *r) {
    const uint64_t most = r->most_body;
    if (r->text.cap > MOST_KEPT) ln_str_free(&r->text);
    if (r->tail.cap > MOST_KEPT) ln_str_free(&r->tail);
    ln_str head = r->text, tail = r->tail;
    head.len = tail.len = 0;
    head.failed = tail.failed = false;
    *r = (http_reader){.most_body = most, .text = head, .tail = tail};
}

void http_reader_free(http_reader *r) {
    ln_str_free(&r->text);
    ln_str_free(&r->tail);
}

bool http_reader_idle(const http_reader *r) { return r->state == LINE && r->text.len == 0 && !r->blank; }

static http_event fail(http_reader *r, int status, const char *why) {
    r->state = BROKEN;
    r->status = status;
    r->why = why;
    return HTTP_ERROR;
}

/* The head is kept, because its spans point into the buffer; lines of chunks and trailers are not. */
static bool in_tail(const http_reader *r) { return r->state == SIZE || r->state == TRAILER; }
static const char *last_line(const http_reader *r) {
    return in_tail(r) ? r->tail.data : r->text.data + r->line_at;
}
static size_t last_bytes(const http_reader *r) { return in_tail(r) ? r->tail.len : r->text.len - r->line_at; }

/* The limit that the unfinished line, or the head that it is part of, has passed; 0: none. */
static int over_limit(const http_reader *r, const char **why) {
    const size_t n = last_bytes(r);
    *why = "the header fields are longer than 32 KiB";
    if (r->state == FIELDS) return r->text.len - r->fields_at > HTTP_MOST_HEAD ? 431 : 0;
    *why = "the trailers are longer than 8 KiB";
    if (r->state == TRAILER) return r->trailer + n > HTTP_MOST_HEAD / 4 ? 431 : 0;
    *why = "the line before a chunk is longer than 256 bytes";
    if (r->state == SIZE) return n > HTTP_MOST_CHUNK_LINE ? 400 : 0;
    return 0;
}

/* Bytes of the line so far without its end, or without the CR that may become it. */
static size_t without_end(const http_reader *r) {
    const size_t n = last_bytes(r);
    return n > 0 && last_line(r)[n - 1] == '\r' ? n - 1 : n;
}

/* Refuses a NUL, and a CR or LF that is not a part of CRLF, from byte `from` of the last line on. */
static int check_ends(const http_reader *r, size_t from, const char **why) {
    const char *line = last_line(r);
    const size_t n = last_bytes(r);
    for (size_t i = from; i < n; i++) {
        const char c = line[i], next = i + 1 < n ? line[i + 1] : '\n';
        *why = "a line has a NUL";
        if (c == 0) return 400;
        *why = "a line ends with CR or LF alone; lines end with CRLF";
        if ((c == '\r' && next != '\n') || (c == '\n' && (i == 0 || line[i - 1] != '\r'))) return 400;
    }
    return 0;
}

/* Takes bytes up to the end of a line. *whole: it has come. Returns 0 or a status. */
static int take_line(http_reader *r, const char *data, size_t n, size_t *used, bool *whole,
                     const char **why) {
    const size_t look = LN_MIN(n, (size_t)HTTP_MOST_HEAD + 2), before = last_bytes(r);
    ln_str *to = in_tail(r) ? &r->tail : &r->text;
    const char *end = memchr(data, '\n', look);
    *used = end ? (size_t)(end - data) + 1 : look;
    *whole = end != NULL;
    ln_str_add(to, data, *used);
    *why = "out of memory";
    if (to->failed) return 500;
    int bad = check_ends(r, before > 0 ? before - 1 : 0, why); /* a CR may have come last time */
    if (!bad) bad = over_limit(r, why);
    if (bad || r->state != LINE) return bad;
    return http_check_line(last_line(r), *whole ? last_bytes(r) - 2 : without_end(r), why);
}

static http_event end_head(http_reader *r) {
    const char *why = NULL;
    const int bad = http_parse_head(&r->head, r->text.data, r->text.len, &why);
    if (bad) return fail(r, bad, why);
    if (r->head.has_length && r->head.length > r->most_body)
        return fail(r, 413, "the body is longer than the server takes");
    r->left = r->head.has_length ? r->head.length : 0;
    r->state = r->head.chunked ? SIZE : r->left > 0 ? BODY : GIVE_END;
    return HTTP_GOT_HEAD;
}

static http_event end_request_line(http_reader *r) {
    if (last_bytes(r) == 2) { /* RFC 9112 2.2: one empty line before a request is ignored */
        if (r->blank) return fail(r, 400, "the request begins with empty lines");
        r->blank = true;
        r->text.len = 0;
        return HTTP_MORE;
    }
    r->state = FIELDS;
    r->line_at = r->fields_at = r->text.len;
    return HTTP_MORE;
}

static int hex_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static http_event end_size(http_reader *r) {
    const char *line = last_line(r);
    const size_t n = last_bytes(r) - 2;
    size_t k = 0;
    uint64_t size = 0;
    for (; k < n && k < HTTP_MOST_CHUNK_DIGITS && hex_of(line[k]) >= 0; k++)
        size = size << 4 | (uint64_t)hex_of(line[k]);
    if (k == 0 || (k < n && line[k] != ';'))
        return fail(r, 400, "the size of a chunk is no hexadecimal number");
    for (size_t i = k; i < n; i++)
        if (((unsigned char)line[i] < 0x20 && line[i] != '\t') || line[i] == 0x7f)
            return fail(r, 400, "the extension of a chunk has a control character");
    if (size > r->most_body - r->body) return fail(r, 413, "the body is longer than the server takes");
    r->tail.len = 0;
    r->left = size;
    r->state = size > 0 ? CHUNK : TRAILER;
    return HTTP_MORE;
}

static http_event end_trailer(http_reader *r) {
    http_span name, value;
    const char *why = NULL;
    const size_t n = last_bytes(r);
    if (n > 2) { /* checked and ignored */
        const int bad = http_parse_field(last_line(r), n - 2, &name, &value, &why);
        if (bad) return fail(r, bad, why);
    }
    r->trailer += n;
    r->tail.len = 0;
    if (n == 2) r->state = GIVE_END;
    return HTTP_MORE;
}

static http_event end_line(http_reader *r) {
    switch (r->state) {
    case LINE: return end_request_line(r);
    case SIZE: return end_size(r);
    case TRAILER: return end_trailer(r);
    default: break;
    }
    const bool last = last_bytes(r) == 2;
    r->line_at = r->text.len;
    return last ? end_head(r) : HTTP_MORE;
}

static http_event read_data(http_reader *r, size_t n, size_t *used, size_t *piece) {
    *used = *piece = (size_t)LN_MIN((uint64_t)n, r->left);
    r->left -= *piece;
    r->body += *piece;
    if (r->left == 0) r->state = r->state == CHUNK ? CHUNK_CR : GIVE_END;
    return HTTP_DATA;
}

/* Reads the CRLF after a chunk's data. */
static http_event read_end(http_reader *r, char c, size_t *used) {
    if (c != (r->state == CHUNK_CR ? '\r' : '\n')) return fail(r, 400, "no CRLF follows the data of a chunk");
    *used = 1;
    r->state = r->state == CHUNK_CR ? CHUNK_LF : SIZE;
    return HTTP_MORE;
}

/* One move of the machine. */
static http_event move(http_reader *r, const char *data, size_t n, size_t *used, size_t *piece) {
    const char *why = NULL;
    bool whole = false;
    *used = 0;
    if (r->state == GIVE_END) {
        r->state = ENDED;
        return HTTP_END;
    }
    if (n == 0 || r->state == ENDED) return HTTP_MORE;
    if (r->state == BROKEN) return HTTP_ERROR;
    if (r->state == BODY || r->state == CHUNK) return read_data(r, n, used, piece);
    if (r->state == CHUNK_CR || r->state == CHUNK_LF) return read_end(r, *data, used);
    const int bad = take_line(r, data, n, used, &whole, &why);
    if (bad) return fail(r, bad, why);
    return whole ? end_line(r) : HTTP_MORE;
}

http_event http_read(http_reader *r, const char *data, size_t n, size_t *used, size_t *at, size_t *piece) {
    *used = *at = *piece = 0;
    for (;;) {
        size_t k = 0;
        const http_event e = move(r, data + *used, n - *used, &k, piece);
        *at = *used;
        *used += k;
        if (e != HTTP_MORE || (k == 0 && r->state != GIVE_END) || r->state == ENDED) return e;
    }
}
