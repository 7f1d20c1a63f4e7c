/* Base64 (RFC 4648, with padding), as JSON carries bytes. */
#ifndef LN_BASE64_H
#define LN_BASE64_H

#include "base.h"

/* Appends the base64 text of data[n): 4 characters for each 3 bytes begun. out->failed: out of memory. */
void ln_str_base64(ln_str *out, const void *data, size_t n);
/* Appends the bytes of a base64 text of n characters. Returns false, with *out as before, if it is none. */
bool ln_str_unbase64(ln_str *out, const char *text, size_t n);

#endif
