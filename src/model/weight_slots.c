/* The rows of weights.def. */
#include "weight_slots.h"

const ln_slot_row ln_slot_rows[LN_W_COUNT] = {
#define LN_WEIGHT(E, n, sh, f, when) [LN_W_##E] = {n, sh, f},
#include "weights.def"
#undef LN_WEIGHT
};

bool ln_slot_wanted(const ln_spec *s, int slot) {
    switch (slot) {
#define LN_WEIGHT(E, n, sh, f, when) \
    case LN_W_##E:                   \
        return when;
#include "weights.def"
#undef LN_WEIGHT
    default: return false;
    }
}

int64_t ln_slot_size(const ln_spec *s, char letter) {
    switch (letter) {
    case 'D': return s->D;
    case 'F': return s->F;
    case 'V': return s->V;
    case 'E': return s->E;
    case 'Q': return (int64_t)s->H * s->E;
    case 'P': return (int64_t)s->K * s->E;
    default: return 0;
    }
}
