/* One column of an f32 micro-kernel with lanes along outputs: acc[m][v] += x(m) w(v) for M rows and V
 * vectors of outputs. Of weights and rows those that are fewer are loaded first, since the accumulators fill
 * the registers.
 *
 * A macro with explicit arguments, W being an expression of the vector's number v and X one of the row's
 * number m: as an inline function gcc 12 and 13 compute addresses of x and w anew, up to a tenth more
 * instructions in the inner loop. */
#ifndef LN_GEMM_FMA_COLUMN_H
#define LN_GEMM_FMA_COLUMN_H

#define FMA_COLUMN(M, V, acc, W, X)                                                                        \
    if ((M) < (V)) {                                                                                       \
        vf a[8];                                                                                           \
        _Pragma("GCC unroll 8") for (int m = 0; m < (M); m++) a[m] = vf_set1(X);                           \
        _Pragma("GCC unroll 16") for (int v = 0; v < (V); v++) {                                           \
            vf b = W;                                                                                      \
            _Pragma("GCC unroll 8") for (int m = 0; m < (M); m++) acc[m][v] = vf_fma(a[m], b, acc[m][v]);  \
        }                                                                                                  \
    } else {                                                                                               \
        vf b[8];                                                                                           \
        _Pragma("GCC unroll 16") for (int v = 0; v < (V); v++) b[v] = W;                                   \
        _Pragma("GCC unroll 8") for (int m = 0; m < (M); m++) {                                            \
            vf a = vf_set1(X);                                                                             \
            _Pragma("GCC unroll 16") for (int v = 0; v < (V); v++) acc[m][v] = vf_fma(a, b[v], acc[m][v]); \
        }                                                                                                  \
    }

#endif
