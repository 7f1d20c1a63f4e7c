/* The key tables of generation_config.json, tokenizer_config.json and the quantization block. The kinds are
 * explained at the head of each .def file. */
#include "io.h"

enum { GREEDY = LN_KEYS_GREEDY, DRAWN = LN_KEYS_DRAWN };

static const ln_key generation[] = {
#define KEY(name, kind, same, what) {GREEDY | DRAWN, name, LN_KEY_##kind, same, what},
#define DRAW(name, kind, same, what) \
    {DRAWN, name, LN_KEY_##kind, same, what}, {GREEDY, name, LN_KEY_HARMLESS, "*", ""},
#include "generation_keys.def"
#undef DRAW
#undef KEY
};
const ln_keys ln_generation_keys = {generation, LN_COUNT(generation), NULL, false, {NULL, NULL}};

static const ln_key tokenizer[] = {
#define KEY(name, kind, same, what) {1, name, LN_KEY_##kind, same, what},
#include "tokenizer_keys.def"
#undef KEY
};
const ln_keys ln_tokenizer_keys = {tokenizer, LN_COUNT(tokenizer), NULL, false, {NULL, NULL}};

static const ln_key quantization[] = {
#define KEY(name, kind, same, what) {1, name, LN_KEY_##kind, same, what},
#include "quantization_keys.def"
#undef KEY
};
const ln_keys ln_quantization_keys = {quantization, LN_COUNT(quantization), NULL, true, {NULL, NULL}};
