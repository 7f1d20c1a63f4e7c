/* Text that does not depend on the locale of the process or of the calling thread. */
#ifndef LN_BASE_C_LOCALE_H
#define LN_BASE_C_LOCALE_H

#include "base.h"

#include <locale.h>
#include <time.h>

/* snprintf and vsnprintf in the C locale: every real number is printed with these. */
int ln_snprintf(char *buf, size_t cap, const char *fmt, ...) LN_PRINTF(3, 4);
int ln_vsnprintf(char *buf, size_t cap, const char *fmt, va_list args) LN_PRINTF(3, 0);

/* Switches the calling thread to the C locale, for code of others that prints numbers; hand the result to ln_locale_leave. */
locale_t ln_locale_enter(void);
void ln_locale_leave(locale_t was);

/* strftime with the C locale's names of days and months. */
size_t ln_strftime(char *buf, size_t cap, const char *fmt, const struct tm *t);

/* Whether two texts are the same but for the case of ASCII letters. */
bool ln_same_ascii(const char *a, const char *b);

#endif
