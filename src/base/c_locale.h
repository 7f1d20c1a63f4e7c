/* Formatting and comparison of text independent of the locale of the process or of the calling thread. */
#ifndef LN_BASE_C_LOCALE_H
#define LN_BASE_C_LOCALE_H

#include "base.h"

#include <locale.h>
#include <time.h>

/* snprintf and vsnprintf in the C locale. All real numbers are printed with these. */
int ln_snprintf(char *buf, size_t cap, const char *fmt, ...) LN_PRINTF(3, 4);
int ln_vsnprintf(char *buf, size_t cap, const char *fmt, va_list args) LN_PRINTF(3, 0);

/* Switches the calling thread to the C locale, for calls of libraries that print numbers. The caller passes
 * the result to ln_locale_leave. */
locale_t ln_locale_enter(void);
void ln_locale_leave(locale_t was);

/* strftime with the C locale's names of days and months. */
size_t ln_strftime(char *buf, size_t cap, const char *fmt, const struct tm *t);

/* Whether two texts are equal when the case of ASCII letters is ignored. */
bool ln_same_ascii(const char *a, const char *b);

#endif
