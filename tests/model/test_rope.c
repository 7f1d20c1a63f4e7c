/* Inverse frequencies of RoPE compared with the reference's, as bits of f32 (LlamaRotaryEmbedding and
 * modeling_rope_utils.py of transformers 5.23 on PyTorch 2, CPU). PyTorch's power function is within an ulp
 * of the exact value and differs between its builds, so that a few values may be off by an ulp or two; if
 * the llama3 rule mixes two frequencies, the subtraction magnifies that. Most values must be equal to the
 * bit, which a table computed in double and rounded once would not be. */
/* run: quick */
#include "../base/cm.h"

#include <stdio.h>
#include <stdlib.h>

#include "model/family.h"

static const uint32_t
    bits_0[] = {0x3f800000, 0x3ea1e89b, 0x3dcccccd, 0x3d0186e3,
                0x3c23d70a, 0x3b4f3e38, 0x3a83126f, 0x39a5cb60},
    bits_1[] = {0x3f800000, 0x3f21866b, 0x3ecbd4b4, 0x3e809bcc, 0x3e224b06, 0x3dcccccd, 0x3d813855,
                0x3d231091, 0x3ccdc613, 0x3c81d5a0, 0x3c23d70a, 0x3bcec089, 0x3b8273a4, 0x3b249e78,
                0x3acfbc32, 0x3a83126f, 0x3a2566d4, 0x39d0b907, 0x3983b1fa, 0x39263028},
    bits_2[] = {0x3f800000, 0x3f3ff911, 0x3f0ff59a, 0x3ed7e89b, 0x3ea1e89b, 0x3e72d423, 0x3e361887,
                0x3e088d77, 0x3dcccccd, 0x3d99940d, 0x3d6655c2, 0x3d2cba15, 0x3d0186e3, 0x3cc2434f,
                0x3c91ad39, 0x3c5a7bf2, 0x3c23d70a, 0x3bf5b9b0, 0x3bb8449c, 0x3b8a2e77, 0x3b4f3e38,
                0x3b1b690d, 0x3ae91528, 0x3aaec98e, 0x3a83126f, 0x3a44948c, 0x3a136a16, 0x39dd1725,
                0x39a5cb60, 0x3978a815, 0x393a7753, 0x390bd472},
    bits_3[] = {0x3f800000, 0x3f263de0, 0x3ed7e89b, 0x3e8c3504, 0x3e361887, 0x3dec7fd6, 0x3d99940d,
                0x3d47763f, 0x3d0186e3, 0x3ca8398b, 0x3c5a7bf2, 0x3c0de12d, 0x3bb8449c, 0x3b6f520e,
                0x3b1b690d, 0x3ac9d75c, 0x3a83126f, 0x3a2a3b44, 0x39dd1725, 0x398f9272, 0x393a7753,
                0x38f22ce2, 0x389d43a4, 0x384c3fbe, 0x3804a2b2, 0x37ac431d, 0x375fba4f, 0x371148e3,
                0x36bcb0c1, 0x36751070, 0x361f23e4, 0x35ceaf79},
    bits_4[] = {0x3f800000, 0x3f29e1c6, 0x3ee177bc, 0x3e959ee3, 0x3e4693b0, 0x3e03c6a0, 0x3daee4ad,
                0x3d681e67, 0x3d1a08c8, 0x3ccc6f49, 0x3c87a9c3, 0x3c340d6d, 0x3beef74f, 0x3b9e9402,
                0x3b527720, 0x3b0baa41, 0x3ab95d21, 0x3a7603ea, 0x3a23418d, 0x39d8ac81, 0x398fc8f8,
                0x393ed4f4, 0x38fd45c3, 0x38a8126b, 0x385f10c4, 0x381406cb, 0x37c47610, 0x37825f34,
                0x372d07a7, 0x36e5a54d, 0x369864a7, 0x364a41b0},
    bits_5[] = {0x3f800000, 0x3ec794a6, 0x3e1b9871, 0x3d729bb2, 0x3cbd23e7,
                0x3c1374bd, 0x3b65eab9, 0x3ab33efb, 0x3a0bbe08, 0x3959e3bf},
    bits_6[] = {0x3e000000, 0x3d953ba8, 0x3d2dfcff, 0x3ccad998, 0x3c6c7fd6, 0x3c09dd84, 0x3ba0bc1d,
                0x3b3b65e3, 0x3ada7bf2, 0x3a7eba1b, 0x3a147dae, 0x39ad1f81, 0x3949d75c, 0x38eb52c3,
                0x38892e02, 0x381fef7e, 0x37ba7753, 0x375965ce, 0x36fd75d4, 0x3693c0a5, 0x362c431d,
                0x35c8d669, 0x356a2732, 0x35087f60, 0x349f23e4, 0x343989f2},
    bits_7[] = {0x3ecccccd, 0x3e231090, 0x3d81d59e, 0x3ccec088, 0x3c249e76,
                0x3b83126e, 0x3ad0b906, 0x3a263028, 0x39845243, 0x38d2b65d},
    bits_8[] = {0x3f800000, 0x3f29e1c6, 0x3ee177bc, 0x3e959ee3, 0x3e4693b0, 0x3e03c6a0, 0x3daee4ad,
                0x3d681e67, 0x3d1a08c8, 0x3ccc6f49, 0x3c87a9c3, 0x3c340d6d, 0x3beef74f, 0x3b9e9402,
                0x3b527720, 0x3ab3d11d, 0x3a0995d2, 0x393b2dd2, 0x38a3418d, 0x3858ac81, 0x380fc8f8,
                0x37bed4f4, 0x377d45c3, 0x3728126b, 0x36df10c4, 0x369406cb, 0x36447610, 0x36025f34,
                0x35ad07a7, 0x3565a54d, 0x351864a7, 0x34ca41b0},
    bits_9[] = {0x3f800000, 0x3f29e1c6, 0x3ee177bc, 0x3e959ee3, 0x3e4693b0, 0x3e03c6a0, 0x3daee4ad,
                0x3d681e67, 0x3d1a08c8, 0x3ccc6f49, 0x3c87a9c3, 0x3c340d6d, 0x3beef74f, 0x3b9e9402,
                0x3b527720, 0x3aa9279b, 0x39e13620, 0x38cb98f7, 0x37a3418d, 0x3758ac81, 0x370fc8f8,
                0x36bed4f4, 0x367d45c3, 0x3628126b, 0x35df10c4, 0x359406cb, 0x35447610, 0x35025f34,
                0x34ad07a7, 0x3465a54d, 0x341864a7, 0x33ca41b0},
    bits_10[] = {0x3f800000, 0x3f2e6928, 0x3eeda63c, 0x3ea1e89b, 0x3e483958, 0x3da0d4df,
                 0x3ce65e04, 0x3c8b8754, 0x3c3e1e95, 0x3c0186e3, 0x3bb07dc6, 0x3b707bf6,
                 0x3b23d70a, 0x3adf3ee9, 0x3a98187a, 0x3a4f3e38, 0x3a0d3169, 0x39c0632e,
                 0x3983126f, 0x393298ba, 0x38f35a5c, 0x38a5cb60, 0x3861e8a7, 0x3819e8f2},
    bits_11[] = {0x3f800000, 0x3f263de0, 0x3ed7e89b, 0x3e8c3504, 0x3e361887, 0x3dec7fd6, 0x3d99940d,
                 0x3d47763f, 0x3d0186e3, 0x3ca8398b, 0x3c5a7bf2, 0x3c0de12d, 0x3bb02377, 0x3b4fa550,
                 0x3af241df, 0x3a8b8207, 0x3a1e0eb2, 0x39af3d02, 0x393c93be, 0x38c23e9a, 0x383a7753,
                 0x37f22ce2, 0x379d43a4, 0x374c3fbe, 0x3704a2b2, 0x36ac431d, 0x365fba4f, 0x361148e3,
                 0x35bcb0c1, 0x35751070, 0x351f23e4, 0x34ceaf79},
    bits_12[] = {0x3f800000, 0x3f3ff911, 0x3f0ff59a, 0x3ed7e89b, 0x3ea1e89b, 0x3e72d423, 0x3e361887,
                 0x3e088d77, 0x3dcccccd, 0x3d99940d, 0x3d6655c2, 0x3d2cba15, 0x3d0186e3, 0x3cae06f7,
                 0x3c66a79a, 0x3c163536, 0x3bbf258c, 0x3b6b7c9d, 0x3b0a3374, 0x3a95b256, 0x3a0a297a,
                 0x391b690d, 0x38e91528, 0x38aec98e, 0x3883126f, 0x3844948c, 0x38136a16, 0x37dd1725,
                 0x37a5cb60, 0x3778a815, 0x373a7753, 0x370bd472},
    bits_13[] = {0x3f800000, 0x3f22b8b1, 0x3ecca80c, 0x3e7dfc9d, 0x3e1aef90, 0x3db8cc34,
                 0x3d5598d8, 0x3ceba3fc, 0x3c817a8a, 0x3c359861, 0x3bfeb078, 0x3bb29a2c,
                 0x3b7a7dda, 0x3b2fa899, 0x3af65cf8, 0x3aacc373, 0x3a724d79, 0x3a29ea86,
                 0x39ee4f23, 0x39a71d94, 0x396a61a8, 0x39245c7a, 0x38e684b6, 0x38a1a700};

static const struct {
    const char *name;
    ln_rope_rule rule;
    int width, step; /* every step-th frequency is recorded */
    const uint32_t *bits;
} cases[] = {
    {"theta 10,000, width 16",
     {.type = LN_ROPE_DEFAULT, .theta = 10000.0, .factor = 1, .low = 1, .high = 4, .original = 1},
     16,
     1,
     bits_0},
    {"theta 10,000, width 80",
     {.type = LN_ROPE_DEFAULT, .theta = 10000.0, .factor = 1, .low = 1, .high = 4, .original = 1},
     80,
     2,
     bits_1},
    {"theta 10,000, width 128",
     {.type = LN_ROPE_DEFAULT, .theta = 10000.0, .factor = 1, .low = 1, .high = 4, .original = 1},
     128,
     2,
     bits_2},
    {"theta 1,000,000, width 128 (Qwen 3)",
     {.type = LN_ROPE_DEFAULT, .theta = 1000000.0, .factor = 1, .low = 1, .high = 4, .original = 1},
     128,
     2,
     bits_3},
    {"theta 500,000, width 64",
     {.type = LN_ROPE_DEFAULT, .theta = 500000.0, .factor = 1, .low = 1, .high = 4, .original = 1},
     64,
     1,
     bits_4},
    {"theta 12,345.678, width 20",
     {.type = LN_ROPE_DEFAULT, .theta = 12345.678, .factor = 1, .low = 1, .high = 4, .original = 1},
     20,
     1,
     bits_5},
    {"linear by 8, theta 1,000,000, width 256 (Gemma 3 4B, global)",
     {.type = LN_ROPE_LINEAR, .theta = 1000000.0, .factor = 8, .low = 1, .high = 4, .original = 1},
     256,
     5,
     bits_6},
    {"linear by 2.5, theta 10,000, width 20",
     {.type = LN_ROPE_LINEAR, .theta = 10000.0, .factor = 2.5, .low = 1, .high = 4, .original = 1},
     20,
     1,
     bits_7},
    {"llama3 by 8, theta 500,000, width 128 (Llama 3.1 8B)",
     {.type = LN_ROPE_LLAMA3, .theta = 500000.0, .factor = 8, .low = 1, .high = 4, .original = 8192},
     128,
     2,
     bits_8},
    {"llama3 by 32, theta 500,000, width 64 (Llama 3.2 1B)",
     {.type = LN_ROPE_LLAMA3, .theta = 500000.0, .factor = 32, .low = 1, .high = 4, .original = 8192},
     64,
     1,
     bits_9},
    {"llama3 by 4, low 1.5, high 3.7, original 100, theta 10,000, width 48",
     {.type = LN_ROPE_LLAMA3, .theta = 10000.0, .factor = 4, .low = 1.5, .high = 3.7, .original = 100},
     48,
     1,
     bits_10},
    {"yarn by 4 from 32,768, theta 1,000,000, width 128 (Qwen's model cards)",
     {.type = LN_ROPE_YARN,
      .theta = 1000000.0,
      .factor = 4,
      .original = 32768,
      .beta_fast = 32,
      .beta_slow = 1,
      .truncate = true},
     128,
     2,
     bits_11},
    {"yarn by 16, theta 10,000, width 64, beta 16 and 2",
     {.type = LN_ROPE_YARN,
      .theta = 10000.0,
      .factor = 16,
      .original = 4096,
      .beta_fast = 16,
      .beta_slow = 2,
      .truncate = true},
     64,
     1,
     bits_12},
    {"yarn by 3.7, original 100, theta 5,000, width 48, not truncated",
     {.type = LN_ROPE_YARN, .theta = 5000.0, .factor = 3.7, .original = 100, .beta_fast = 32, .beta_slow = 1},
     48,
     1,
     bits_13},
};

static void test_against_the_reference(void **state) {
    (void)state;
    int n = 0, equal = 0, off = 0;
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        float freqs[128];
        ln_rope_freqs(&cases[i].rule, cases[i].width, false, freqs);
        /* yarn adds two terms; each has a power that may be off by an ulp, and four rounding steps */
        int allowed = cases[i].rule.type == LN_ROPE_LLAMA3 ? 12 : cases[i].rule.type == LN_ROPE_YARN ? 5 : 2;
        for (int k = 0; k < cases[i].width / 2; k += cases[i].step) {
            uint32_t want = cases[i].bits[k / cases[i].step];
            int d = abs((int)ln_f32_bits(freqs[k]) - (int)want);
            if (d > allowed)
                fail_msg("%s: frequency %d is %.9g, the reference has %.9g, %d ulp away", cases[i].name, k,
                         (double)freqs[k], (double)ln_bits_f32(want), d);
            n++;
            equal += d == 0;
            off = LN_MAX(off, d);
        }
    }
    print_message("%d frequencies, %d equal to the bit, at most %d ulp apart\n", n, equal, off);
    assert_true(equal * 100 >= n * 95);
}

/* Properties of every rule: the first frequency is 1 (linear: 1 / factor), frequencies decrease and are
 * positive. */
static void test_shape(void **state) {
    (void)state;
    for (size_t i = 0; i < LN_COUNT(cases); i++) {
        float freqs[128];
        ln_rope_freqs(&cases[i].rule, cases[i].width, false, freqs);
        assert_true(freqs[0] ==
                    (cases[i].rule.type == LN_ROPE_LINEAR ? 1.0f / (float)cases[i].rule.factor : 1.0f));
        for (int k = 1; k < cases[i].width / 2; k++) assert_true(freqs[k] > 0 && freqs[k] < freqs[k - 1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_the_reference),
                                       cmocka_unit_test(test_shape)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
