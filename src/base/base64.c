/* Base64 (RFC 4648, with padding). */
#include "base64.h"

void ln_str_base64(ln_str *out, const void *data, size_t n) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
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
