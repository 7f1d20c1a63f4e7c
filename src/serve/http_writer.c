/* Heads of responses, and chunks of their bodies. */
#include "http.h"

#include <time.h>

const char *http_reason(int status) {
    static const struct {
        int status;
        const char *reason;
    } all[] = {{100, "Continue"},
               {102, "Processing"},
               {200, "OK"},
               {204, "No Content"},
               {400, "Bad Request"},
               {401, "Unauthorized"},
               {403, "Forbidden"},
               {404, "Not Found"},
               {405, "Method Not Allowed"},
               {408, "Request Timeout"},
               {411, "Length Required"},
               {413, "Content Too Large"},
               {414, "URI Too Long"},
               {415, "Unsupported Media Type"},
               {417, "Expectation Failed"},
               {429, "Too Many Requests"},
               {431, "Request Header Fields Too Large"},
               {500, "Internal Server Error"},
               {501, "Not Implemented"},
               {503, "Service Unavailable"},
               {505, "HTTP Version Not Supported"}};
    for (size_t i = 0; i < LN_COUNT(all); i++)
        if (all[i].status == status) return all[i].reason;
    return "Unknown";
}

void http_put_date(ln_str *out, int64_t seconds) {
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    const time_t t = (time_t)seconds;
    struct tm tm = {0};
    if (!gmtime_r(&t, &tm)) return;
    ln_str_addf(out, "%.3s, %02d %.3s %04d %02d:%02d:%02d GMT", days + 3 * tm.tm_wday, tm.tm_mday,
                months + 3 * tm.tm_mon, tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
}

void http_put_head(ln_str *out, const http_reply *r) {
    ln_str_addf(out, "HTTP/1.1 %d %s\r\nDate: ", r->status, http_reason(r->status));
    http_put_date(out, (int64_t)time(NULL));
    ln_str_adds(out, "\r\n");
    if (r->type) ln_str_addf(out, "Content-Type: %s\r\n", r->type);
    if (r->length >= 0 && r->status != 204)
        ln_str_addf(out, "Content-Length: %lld\r\n", (long long)r->length);
    if (r->length < 0 && r->minor == 1) ln_str_adds(out, "Transfer-Encoding: chunked\r\n");
    if (!r->keep_alive) ln_str_adds(out, "Connection: close\r\n");
    else if (r->minor == 0) ln_str_adds(out, "Connection: keep-alive\r\n");
    ln_str_adds(out, r->more ? r->more : "");
    ln_str_adds(out, "\r\n");
}

void http_put_chunk(ln_str *out, const char *data, size_t n) {
    if (n == 0) return;
    ln_str_addf(out, "%zx\r\n", n);
    ln_str_add(out, data, n);
    ln_str_adds(out, "\r\n");
}

void http_put_last_chunk(ln_str *out) { ln_str_adds(out, "0\r\n\r\n"); }
