/* The head of a request: request line, header fields, and what they say about the body. */
#include "http.h"

static const char *const methods[] = {"GET",   "HEAD",    "POST",  "PUT",     "DELETE",
                                      "PATCH", "OPTIONS", "TRACE", "CONNECT", "QUERY"};

const char *http_method_name(http_method m) { return methods[m]; }

static int refuse(const char **why, int status, const char *text) {
    *why = text;
    return status;
}

/* ---- classes of bytes ---- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static char lower_of(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }
static bool is_token(char c) {
    return c != 0 && (is_alpha(c) || is_digit(c) || strchr("!#$%&'*+-.^_`|~", c));
}
static int hex_of(char c) {
    if (is_digit(c)) return c - '0';
    c = lower_of(c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool http_is_word(http_span s, const char *lower) {
    if (s.n != strlen(lower)) return false;
    for (size_t i = 0; i < s.n; i++)
        if (lower_of(s.at[i]) != lower[i]) return false;
    return true;
}

http_span http_field(const http_head *h, const char *lower) {
    for (int i = 0; i < h->n_fields; i++)
        if (http_is_word(h->fields[i].name, lower)) return h->fields[i].value;
    return (http_span){NULL, 0};
}

int http_count(const http_head *h, const char *lower) {
    int n = 0;
    for (int i = 0; i < h->n_fields; i++) n += http_is_word(h->fields[i].name, lower);
    return n;
}

size_t http_decode(http_span s, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) {
        const bool coded = s.at[i] == '%' && i + 2 < s.n;
        const unsigned byte = coded ? 16u * (unsigned)hex_of(s.at[i + 1]) + (unsigned)hex_of(s.at[i + 2]) : 0;
        out[n++] = coded ? (char)(unsigned char)byte : s.at[i];
        if (coded) i += 2;
    }
    out[n] = '\0';
    return n;
}

/* ---- the request line ---- */

int http_check_line(const char *line, size_t n, const char **why) {
    for (size_t i = 0; i < n; i++) {
        char c = line[i];
        if ((unsigned char)c < 0x20 || (unsigned char)c >= 0x7f)
            return refuse(why, 400, "the request line has a byte that is no printable ASCII character");
        if (i == 0 && !is_token(c)) return refuse(why, 400, "the request line does not begin with a method");
    }
    if (n <= HTTP_MOST_LINE) return 0;
    return memchr(line, ' ', HTTP_MOST_LINE) ? refuse(why, 414, "the request line is longer than 8 KiB")
                                             : refuse(why, 400, "the method is longer than 8 KiB");
}

/* Whether the span is host or host:port with the characters that RFC 3986 allows in names and addresses. */
static bool is_host(http_span h) {
    size_t i = 0;
    if (h.n > 0 && h.at[0] == '[') {
        for (i = 1; i < h.n && h.at[i] != ']'; i++)
            if (hex_of(h.at[i]) < 0 && h.at[i] != ':' && h.at[i] != '.') return false;
        if (i == 1 || i == h.n) return false;
        i++;
    } else {
        while (i < h.n && (is_alpha(h.at[i]) || is_digit(h.at[i]) || strchr("-._~", h.at[i]))) i++;
        if (i == 0) return false;
    }
    if (i == h.n) return true;
    if (h.at[i++] != ':' || h.n - i > 5) return false;
    for (; i < h.n; i++)
        if (!is_digit(h.at[i])) return false;
    return true;
}

/* Checks the characters of a path and query, and that each % is followed by two digits. */
static bool is_path(http_span p) {
    for (size_t i = 0; i < p.n; i++) {
        char c = p.at[i];
        if (!is_alpha(c) && !is_digit(c) && !strchr("-._~!$&'()*+,;=:@/?%", c)) return false;
        if (c != '%') continue;
        if (p.n - i < 3 || hex_of(p.at[i + 1]) < 0 || hex_of(p.at[i + 2]) < 0) return false;
        if (p.at[i + 1] == '0' && p.at[i + 2] == '0') return false;
    }
    return true;
}

/* Takes http://HOST off an absolute target. */
static bool take_authority(http_span *target, http_span *host) {
    static const char scheme[] = "http://";
    const size_t n = sizeof scheme - 1;
    if (target->n <= n || !http_is_word((http_span){target->at, n}, scheme)) return false;
    const char *begin = target->at + n, *end = target->at + target->n, *at = begin;
    while (at < end && *at != '/' && *at != '?') at++;
    *host = (http_span){begin, (size_t)(at - begin)};
    *target = (http_span){at, (size_t)(end - at)};
    return true;
}

static int parse_target(http_head *h, http_span t, const char **why) {
    if (h->method == HTTP_CONNECT) { /* no route takes it: 405 */
        h->path = t;
        return is_host(t) ? 0 : refuse(why, 400, "the target of CONNECT is not HOST:PORT");
    }
    if (http_is(t, "*")) {
        h->path = t;
        return h->method == HTTP_OPTIONS ? 0 : refuse(why, 400, "the target * is for OPTIONS only");
    }
    if (t.n > 0 && t.at[0] != '/' && (!take_authority(&t, &h->host) || !is_host(h->host)))
        return refuse(why, 400, "the target is neither a path nor http://HOST/PATH");
    if (t.n == 0) t = (http_span){"/", 1};
    if (t.at[0] != '/' || !is_path(t)) return refuse(why, 400, "the target has characters that no path has");
    const char *mark = memchr(t.at, '?', t.n);
    h->path = (http_span){t.at, mark ? (size_t)(mark - t.at) : t.n};
    if (mark) h->query = (http_span){mark + 1, t.n - h->path.n - 1};
    return 0;
}

static int parse_version(http_head *h, http_span v, const char **why) {
    if (v.n != 8 || memcmp(v.at, "HTTP/", 5) != 0 || !is_digit(v.at[5]) || v.at[6] != '.' ||
        !is_digit(v.at[7]))
        return refuse(why, 400, "the request line does not end with HTTP/1.1");
    h->minor = v.at[7] - '0';
    return v.at[5] == '1' && h->minor <= 1 ? 0
                                           : refuse(why, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
}

static int parse_line(http_head *h, const char *line, size_t n, const char **why) {
    const char *first = memchr(line, ' ', n);
    const char *last = first;
    for (const char *p = first; p && p < line + n; p++)
        if (*p == ' ') last = p;
    if (!first || first == last || first == line)
        return refuse(why, 400, "the request line has not three parts");
    const http_span method = {line, (size_t)(first - line)}, target = {first + 1, (size_t)(last - first - 1)},
                    version = {last + 1, (size_t)(line + n - last - 1)};
    for (size_t i = 0; i < method.n; i++)
        if (!is_token(method.at[i])) return refuse(why, 400, "the method has characters that no method has");
    if (target.n == 0 || memchr(target.at, ' ', target.n)) return refuse(why, 400, "the target has a blank");
    const int bad = parse_version(h, version, why);
    if (bad) return bad;
    for (size_t i = 0; i < LN_COUNT(methods); i++)
        if (http_is(method, methods[i])) {
            h->method = (http_method)i;
            return parse_target(h, target, why);
        }
    return refuse(why, 501, "the method is unknown");
}

/* ---- fields ---- */

static bool is_blank(char c) { return c == ' ' || c == '\t'; }

int http_parse_field(const char *line, size_t n, http_span *name, http_span *value, const char **why) {
    size_t i = 0, end = n;
    if (n > 0 && is_blank(line[0])) return refuse(why, 400, "a header field is folded onto a second line");
    while (i < n && is_token(line[i])) i++;
    if (i == 0 || i == n || line[i] != ':') return refuse(why, 400, "a header field is not NAME: VALUE");
    *name = (http_span){line, i++};
    while (i < end && is_blank(line[i])) i++;
    while (end > i && is_blank(line[end - 1])) end--;
    *value = (http_span){line + i, end - i};
    for (; i < end; i++)
        if (((unsigned char)line[i] < 0x20 && line[i] != '\t') || line[i] == 0x7f)
            return refuse(why, 400, "a header field has a control character");
    return 0;
}

/* Calls the words of a list, which commas separate, one by one. */
static bool next_word(http_span *list, http_span *word) {
    while (list->n > 0 && (is_blank(*list->at) || *list->at == ',')) list->at++, list->n--;
    if (list->n == 0) return false;
    size_t n = 0;
    while (n < list->n && list->at[n] != ',') n++;
    *word = (http_span){list->at, n};
    list->at += n, list->n -= n;
    while (word->n > 0 && is_blank(word->at[word->n - 1])) word->n--;
    return true;
}

static void read_connection(http_head *h) {
    bool close = false, keep = false;
    for (int i = 0; i < h->n_fields; i++) {
        http_span list = h->fields[i].value, word;
        if (!http_is_word(h->fields[i].name, "connection")) continue;
        while (next_word(&list, &word)) {
            close |= http_is_word(word, "close");
            keep |= http_is_word(word, "keep-alive");
        }
    }
    h->keep_alive = !close && (h->minor == 1 || keep);
}

static int read_host(http_head *h, const char **why) {
    const http_span host = http_field(h, "host");
    const int n = http_count(h, "host");
    if (n > 1) return refuse(why, 400, "there are two Host fields");
    if (n == 0) return h->minor == 1 ? refuse(why, 400, "there is no Host field") : 0;
    if (!is_host(host)) return refuse(why, 400, "the Host field is not HOST or HOST:PORT");
    if (h->host.n > 0 && (h->host.n != host.n || memcmp(h->host.at, host.at, host.n) != 0))
        return refuse(why, 400, "the Host field and the target name different hosts");
    h->host = host;
    return 0;
}

static int read_length(http_head *h, const char **why) {
    const http_span v = http_field(h, "content-length");
    const int n = http_count(h, "content-length");
    if (n == 0) return 0;
    if (n > 1) return refuse(why, 400, "there are two Content-Length fields");
    h->has_length = ln_parse_u64(v.at, v.n, &h->length);
    for (size_t i = 0; i < v.n; i++) h->has_length = h->has_length && is_digit(v.at[i]);
    return h->has_length ? 0 : refuse(why, 400, "the Content-Length is no decimal number");
}

static int read_coding(http_head *h, const char **why) {
    const http_span v = http_field(h, "transfer-encoding");
    const int n = http_count(h, "transfer-encoding");
    if (n == 0) return 0;
    if (h->minor == 0) return refuse(why, 400, "HTTP/1.0 has no Transfer-Encoding");
    if (h->has_length) return refuse(why, 400, "there are both Content-Length and Transfer-Encoding");
    if (n > 1) return refuse(why, 400, "there are two Transfer-Encoding fields");
    h->chunked = http_is_word(v, "chunked");
    return h->chunked ? 0 : refuse(why, 501, "the only Transfer-Encoding is chunked");
}

static int read_expect(http_head *h, const char **why) {
    const http_span v = http_field(h, "expect");
    if (!v.at) return 0;
    if (http_count(h, "expect") > 1 || !http_is_word(v, "100-continue"))
        return refuse(why, 417, "the only Expect is 100-continue");
    h->expects_continue = h->minor == 1;
    return 0;
}

static int read_meaning(http_head *h, const char **why) {
    int bad = read_host(h, why);
    if (!bad) bad = read_length(h, why);
    if (!bad) bad = read_coding(h, why);
    if (!bad) bad = read_expect(h, why);
    if (bad) return bad;
    read_connection(h);
    const bool has_body =
        h->method == HTTP_POST || h->method == HTTP_PUT || h->method == HTTP_PATCH || h->method == HTTP_QUERY;
    if (has_body && !h->chunked && !h->has_length) return refuse(why, 411, "a Content-Length is required");
    return 0;
}

int http_parse_head(http_head *h, const char *text, size_t n, const char **why) {
    *h = (http_head){0};
    const char *end = text + n, *line = text;
    for (bool first = true;; first = false) {
        const char *stop =
            memchr(line, '\r', (size_t)(end - line)); /* the reader has checked that \n follows */
        if (!stop || stop + 1 >= end) return refuse(why, 400, "the head does not end");
        const size_t bytes = (size_t)(stop - line);
        int bad = 0;
        if (first) bad = parse_line(h, line, bytes, why);
        else if (bytes == 0) return read_meaning(h, why);
        else if (h->n_fields == HTTP_MOST_FIELDS)
            bad = refuse(why, 431, "there are more than 100 header fields");
        else
            bad = http_parse_field(line, bytes, &h->fields[h->n_fields].name, &h->fields[h->n_fields].value,
                                   why);
        if (bad) return bad;
        h->n_fields += !first;
        line = stop + 2;
    }
}
