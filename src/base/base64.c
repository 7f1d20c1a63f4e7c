/* Base64 (RFC 4648, with padding). */
#include "base64.h"

#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void ln_str_base64(ln_str *out, const void *data, size_t n) {
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i += 3) {
        const size_t left = LN_MIN(n - i, (size_t)3);
        const uint32_t b =
            (uint32_t)p[i] << 16 | (left > 1 ? (uint32_t)p[i + 1] << 8 : 0) | (left > 2 ? p[i + 2] : 0);
        const char text[4] = {digits[b >> 18], digits[b >> 12 & 63], left > 1 ? digits[b >> 6 & 63] : '=',
                              left > 2 ? digits[b & 63] : '='};
        ln_str_add(out, text, sizeof text);
    }
}

bool ln_str_unbase64(ln_str *out, const char *text, size_t n) {
    const size_t from = out->len;
    for (size_t i = 0; i < n; i += 4) {
        const size_t left = LN_MIN(n - i, (size_t)4),
                     marks = i + 4 < n ? 0 : (size_t)(text[n - 1] == '=') + (left > 2 && text[n - 2] == '=');
        uint32_t b = 0;
        bool good = left == 4;
        for (size_t k = 0; good && k < 4; k++) {
            const char *digit = k < 4 - marks && text[i + k] ? strchr(digits, text[i + k]) : NULL;
            good = digit || k >= 4 - marks;
            b = b << 6 | (digit ? (uint32_t)(digit - digits) : 0);
        }
        if (!good) {
            out->len = from;
            return false;
        }
        const char bytes[3] = {(char)(b >> 16), (char)(b >> 8), (char)b};
        ln_str_add(out, bytes, 3 - marks);
    }
    return true;
}
