/* Dequantisation for int8 digit pairs: packed codes of affine groups become B tiles of digits H and L.
 *
 *     packed group (pack.h)                        two B tiles for 64 columns
 *     | bits x 64 x group / 32 bytes | constants | -> H: 16 lines of 64 bytes, L: 16 lines of 64 bytes
 *                                                     line i: columns 4i .. 4i+3 of output 0, of output 1, ..
 *
 *     up to 4 bits   H = mh q + ch + z, L = ml q + cl         VPMULLW and VPADDW, two columns an element
 *     5 to 8 bits    W = round(q' s 2^(bits-1)) + round(..)   VPMULHRSW; H and L are the two bytes of W
 *
 * Part of gemm_i8pair_amx.inc.h, whose names it uses; gemm_i8pair_vnni.inc.h uses it too. */

/* Digits of 16 outputs in radix 30 as linear functions of the code q (quant/block_float.c, ln_i8pair_weight):
 * H = mh q + ch without the zero point, L = ml q + cl. */
typedef struct linear_digits {
    vf mh, ch, ml, cl;
} linear_digits;
/* numbers: 16 scales, then 16 biases. */
INLINE linear_digits linear_digits_of(const int bits, const float *numbers, vf inverse_scale) {
    const float half = (float)((1 << bits) - 1) / 2;
    const vf minus = vf_set1(-30), over = vf_set1(1 / 30.0f), s = vf_mul(vf_load(numbers), inverse_scale),
             m = vf_round(s);
    const vf c =
        vf_round(vf_fma(vf_sub(s, m), vf_set1(half), vf_mul(vf_load(numbers + TILE_ROWS), inverse_scale)));
    linear_digits k;
    k.mh = vf_round(vf_mul(m, over));
    k.ml = vf_fma(minus, k.mh, m);
    k.ch = vf_floor(vf_mul(vf_sub(c, vf_fma(vf_set1(-half), k.ml, vf_set1(113))), over));
    k.cl = vf_fma(minus, k.ch, c);
    return k;
}
/* The dequantisation constants of n groups (ln_cpu_i8pair_constants_amx), one 32-bit lane an output:
 *
 *     byte 0: mh   byte 1: ch + zero point   byte 2: ml   byte 3: cl
 *
 * All of them fit a byte, since H and L of code 0 do as those of any code. */
static void pack_dequant_constants(uint8_t *out, int64_t pitch, const float *numbers, int64_t n, int bits,
                                   const float *units) {
    const vf inverse_scale = vf_load(units);
    for (int64_t g = 0; g < n; g++, out += pitch, numbers += 2 * TILE_ROWS) {
        const linear_digits k = linear_digits_of(bits, numbers, inverse_scale);
        const vi zero_point = vi_set32(ln_i8pair_zero_point(bits)),
                 h = vi_or(vi_and32(vi_round_i32(k.mh), 0xff),
                           vi_shl32(vi_add(vi_round_i32(k.ch), zero_point), 8));
        vi_store(out, vi_or(h, vi_or(vi_shl32(vi_and32(vi_round_i32(k.ml), 0xff), 16),
                                     vi_shl32(vi_round_i32(k.cl), 24))));
    }
}

/* From what follows a group's codes: up to 4 bits its dequantisation constants, else its scales and biases,
 * whose factors, if they have some, are at `factors`. */
INLINE dequant load_dequant(const int bits, ln_dtype t, const uint8_t *units, const uint8_t *factors,
                            vf inverse_scale) {
    if (bits <= 4) {
        const vi k = vi_load(units);
        return (dequant){vi_dup_byte_i16(k, 0), vi_dup_byte(k, 1), vi_dup_byte_i16(k, 2), vi_dup_byte(k, 3)};
    }
    const vf s = vf_mul(load_unit(t, units, factors, 0), inverse_scale),
             b = vf_mul(load_unit(t, units, factors, TILE_ROWS), inverse_scale),
             half = vf_set1((float)(1 << (bits - 1)));
    return (dequant){.a = vi_dup_low16(vi_round_i32(vf_mul(s, half))),
                     .b = vi_xor32(vi_dup_low16(vi_round_i32(vf_fma(s, half, b))), 0x80008000u)};
}

/* Four columns of 16 outputs become one line of the H tile and one of the L tile. Radix 30: q holds the four
 * codes as bytes. Radix 256: `even` and `odd` columns as 16-bit elements of codes less their zero point, in
 * the upper bits. */
INLINE void store_linear_lines(const dequant *k, vi q, uint8_t *h, uint8_t *l) {
    vi_store(h, vi_add16(vi_mul16(q, k->a), k->b));
    vi_store(l, vi_add16(vi_mul16(q, k->c), k->d));
}
INLINE void rounded_lines(const dequant *k, vi even, vi odd, vi *H, vi *L) {
    const vi e = vi_add16(vi_mulrs16(even, k->a), k->b), o = vi_add16(vi_mulrs16(odd, k->a), k->b);
    *H = vi_select_bits(0x00ff00ff, vi_shr16(e, 8), o);
    *L = vi_select_bits(0x00ff00ff, e, vi_shl16(o, 8));
}
/* Of a 32-bit lane of four 8-bit codes the even and the odd columns, as 16-bit elements. */
INLINE vi even_of_8(vi w) { return vi_xor32(vi_shl16(w, 8), 0x80008000u); }
INLINE vi odd_of_8(vi w) { return vi_xor_and32(w, 0x80008000u, 0xff00ff00u); }

/* n columns, whole lines of a tile, of a packed group from its column `from` on. */
INLINE void dequant_lines(const int bits, const dequant *k, const uint8_t *words, int64_t from, int64_t n,
                          uint8_t *h, uint8_t *l) {
    for (int64_t i = from; i < from + n; i += bits == 4 ? 8 : 4, h += ROW_BYTES, l += ROW_BYTES) {
        if (bits == 4) {
            const vi w = vi_load(words + i / 8 * ROW_BYTES);
            store_linear_lines(k, vi_and32(w, 0x0f0f0f0f), h, l);
            store_linear_lines(k, vi_and32(vi_shr32(w, 4), 0x0f0f0f0f), h += ROW_BYTES, l += ROW_BYTES);
            continue;
        }
        vi H, L;
        if (bits == 8) {
            const vi w = vi_load(words + i / 4 * ROW_BYTES);
            rounded_lines(k, even_of_8(w), odd_of_8(w), &H, &L);
        } else {
            const vi even = vi_or(load_code(words, bits, i), vi_shl32(load_code(words, bits, i + 2), 16)),
                     odd = vi_or(load_code(words, bits, i + 1), vi_shl32(load_code(words, bits, i + 3), 16));
            if (bits < 4) {
                store_linear_lines(k, vi_or(even, vi_shl32(odd, 8)), h, l);
                continue;
            }
            rounded_lines(k, vi_xor32(vi_shl32(even, 16 - bits), 0x80008000u),
                          vi_xor32(vi_shl32(odd, 16 - bits), 0x80008000u), &H, &L);
        }
        vi_store(h, H);
        vi_store(l, L);
    }
}
/* The stream of block b from column k on, where a tile begins. */
INLINE dequant_stream stream_at(const i8pair_gemm *t, int64_t b, int64_t k) {
    const int64_t g = k / t->w->code.group;
    return (dequant_stream){.group = codes_of_block(t, b) + g * t->group_bytes,
                            .factors = factors_of_group(t, b, g),
                            .left = t->shared ? t->shared - g % t->shared : 0,
                            .inverse_scale = inverse_scale_of(t, b)};
}
INLINE dequant group_dequant(const int bits, const int64_t group, const i8pair_gemm *t,
                             const dequant_stream *s) {
    return load_dequant(bits, t->w->dtype, s->group + ROW_BYTES * (group * bits / 32), s->factors,
                        s->inverse_scale);
}
INLINE void next_group(const int bits, const i8pair_gemm *t, dequant_stream *s) {
    s->group += t->group_bytes;
    if (bits > 4 && s->factors && --s->left == 0) s->left = t->shared, s->factors += LN_PACK_FACTOR_BYTES;
}
/* The next 64 columns of a stream, from column k on, as one tile of H and one of L; is_first: the stream
 * begins here. `group` is a power of two. */
INLINE void dequant_tiles(const int bits, const int64_t group, const i8pair_gemm *t, dequant_stream *s,
                          bool is_first, int64_t k, uint8_t *h) {
    if (group == ROW_BYTES) {
        if (is_first) s->prepared = group_dequant(bits, group, t, s);
        dequant_lines(bits, &s->prepared, s->group, 0, ROW_BYTES, h, h + TILE_BYTES);
        next_group(bits, t, s);
        if (k + ROW_BYTES < t->C) s->prepared = group_dequant(bits, group, t, s);
        return;
    }
    const int64_t n = group % ROW_BYTES ? LN_MIN((int64_t)ROW_BYTES, t->C - k) : ROW_BYTES,
                  columns = LN_MIN(group, (int64_t)ROW_BYTES);
    for (int64_t i = 0, from = k & (LN_MAX(group, (int64_t)ROW_BYTES) - 1); i < n;
         i += columns, from = 0, h += columns * TILE_ROWS) {
        const dequant k_of_group = group_dequant(bits, group, t, s);
        dequant_lines(bits, &k_of_group, s->group, from, columns, h, h + TILE_BYTES);
        if (from + columns == group) next_group(bits, t, s);
    }
    if (n < ROW_BYTES) memset(h, 0, TILE_BYTES / 2), memset(h + TILE_BYTES, 0, TILE_BYTES / 2);
}
/* One copy for each code width, and for 4 and 8 bits one for groups of 64, whose loops have constant bounds.
 */
static void dequant_tile(const i8pair_gemm *t, dequant_stream *s, bool is_first, int64_t k, uint8_t *h) {
    const int64_t group = t->w->code.group;
    switch (t->w->code.bits) {
    case 2: dequant_tiles(2, group, t, s, is_first, k, h); break;
    case 3: dequant_tiles(3, group, t, s, is_first, k, h); break;
    case 4:
        group == ROW_BYTES ? dequant_tiles(4, ROW_BYTES, t, s, is_first, k, h)
                           : dequant_tiles(4, group, t, s, is_first, k, h);
        break;
    case 5: dequant_tiles(5, group, t, s, is_first, k, h); break;
    case 6: dequant_tiles(6, group, t, s, is_first, k, h); break;
    default:
        group == ROW_BYTES ? dequant_tiles(8, ROW_BYTES, t, s, is_first, k, h)
                           : dequant_tiles(8, group, t, s, is_first, k, h);
    }
}
