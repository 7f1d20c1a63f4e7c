/* Products with the matrices of experts on AMX. */
#define LN_ISA(name)        name##_amx
#define LN_EXPERTS_PRODUCTS (LN_VECTOR_PRODUCTS | 1 << LN_PRODUCT_I8PAIR_AFFINE)
#include "experts.inc.h"
