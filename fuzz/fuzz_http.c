/* Fuzzes the reader of HTTP requests. The first byte chooses how the rest is cut into pieces; what is read
 * must be the same as from one piece: heads, bodies, ends, and the status of an error. */
#include "fuzz.h"

#include "serve/http.h"

static void fuzz_open(void) {}

/* Hashes what the reader makes of the bytes in pieces of at most `step`, so that two readings compare. */
static ln_status read_all(const char *data, size_t n, size_t step, uint64_t *digest, ln_error *err) {
    http_reader r = {.most_body = 4096};
    ln_str all = {0};
    bool broken = false;
    http_reader_reset(&r);
    for (size_t from = 0; from < n && !broken;) {
        const size_t to = n - from > step ? from + step : n;
        for (http_event e = HTTP_END; e != HTTP_MORE && !broken;) {
            size_t used, at, piece;
            e = http_read(&r, data + from, to - from, &used, &at, &piece);
            must(used <= to - from && at + piece <= used);
            if (e == HTTP_DATA) ln_str_add(&all, data + from + at, piece);
            from += used;
            if (e == HTTP_GOT_HEAD) {
                const http_head *h = &r.head;
                must(h->n_fields <= HTTP_MOST_FIELDS && h->minor <= 1 && !(h->chunked && h->has_length));
                must(h->path.n > 0 && (h->minor == 0 || h->host.n > 0));
                ln_str_addf(&all, "\n%d %.*s\n", (int)h->method, (int)h->path.n, h->path.at);
            }
            must(r.body <= r.most_body);
            if (e == HTTP_END) http_reader_reset(&r);
            broken = e == HTTP_ERROR;
        }
    }
    if (broken) must(r.status >= 400 && r.status <= 505 && r.why);
    ln_str_addf(&all, "\n%d", broken ? r.status : 0);
    ln_status st = broken && r.status != 500 ? ln_fail(err, LN_EINVALID, "%d: %s", r.status, r.why) : LN_OK;
    if (all.failed || (broken && r.status == 500)) st = LN_OOM(err, "a request");
    *digest = hash_of((const uint8_t *)all.data, all.len);
    ln_str_free(&all);
    http_reader_free(&r);
    return st;
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    const char *text = (const char *)data + (bytes > 0);
    uint64_t whole, cut;
    const size_t step = bytes ? 1 + data[0] % 64u : 1;
    bytes -= bytes > 0;
    LN_TRY(read_all(text, bytes, step, &cut, err) == LN_EMEMORY ? LN_OOM(err, "a request") : LN_OK);
    const ln_status st = read_all(text, bytes, SIZE_MAX, &whole, err);
    if (st != LN_EMEMORY) must(whole == cut);
    return st;
}
