/* cmocka wants these four before its own header. */
#ifndef LN_TESTS_CM_H
#define LN_TESTS_CM_H
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#endif
