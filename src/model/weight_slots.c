/* The rows of weights.def. */
#include "weight_slots.h"

const ln_slot_row ln_slot_rows[LN_W_COUNT] = {
#define LN_WEIGHT(E, n, sh, f, split, when) [LN_W_##E] = {n, sh, f, LN_SPLIT_##split},
#include "weights.def"
#undef LN_WEIGHT
};

bool ln_slot_wanted(const ln_spec *s, int slot, int l) {
    const ln_attn_spec *a = l < 0 ? NULL : ln_attn_of(s, l);
    const ln_recur_spec *r = l < 0 ? NULL : ln_recur_of(s, l);
    const ln_ffn_spec *f = l < 0 ? NULL : ln_ffn_of(s, l);
    if ((l >= 0) != ((ln_slot_rows[slot].flags & LN_WF_LAYER) != 0)) return false;
    switch (slot) {
#define LN_WEIGHT(E, n, sh, flags, split, when) \
    case LN_W_##E:                              \
        return when;
#include "weights.def"
#undef LN_WEIGHT
    default: return false;
    }
}

const ln_slot_name *ln_slot_name_of(const ln_spec *s, int slot) {
    for (size_t i = 0; i < s->n_names; i++)
        if ((int)s->names[i].slot == slot) return &s->names[i];
    return NULL;
}

static int64_t recurrent_size(const ln_recur_spec *r, char letter) {
    const ln_recur_sizes *z = &r->sizes;
    switch (letter) {
    case 'C': return z->channels;
    case 'J': return (int64_t)z->channels * z->taps;
    case 'A': return 3 * (int64_t)z->channels;
    case 'g': return z->n_v_heads;
    case 'Z': return (int64_t)z->n_v_heads * z->v_dim;
    case 'L': return z->v_dim;
    default: return 0;
    }
}

int64_t ln_slot_size(const ln_spec *s, char letter, int l) {
    if (letter == 'D') return s->D;
    if (letter == 'V') return s->V;
    if (letter == 'I') return s->per_layer;
    if (letter == 'R') return s->per_layer * s->L;
    if (letter == 'U') return s->per_layer_rows;
    if (l < 0) return 0;
    const ln_attn_spec *a = ln_attn_of(s, l);
    if (letter == 'F') return ln_ffn_of(s, l)->F;
    if (letter == 'X') return ln_ffn_of(s, l)->moe.n_experts;
    if (letter == 'G') return ln_ffn_of(s, l)->moe.F;
    if (letter == 'S') return ln_ffn_of(s, l)->moe.shared_F;
    if (letter == '1') return 1;
    if (!a) return recurrent_size(ln_recur_of(s, l), letter);
    switch (letter) {
    case 'E': return a->E;
    case 'H': return a->H;
    case 'B': return (int64_t)a->H * a->E * (a->gate_in_q ? 2 : 1);
    case 'P': return (int64_t)a->K * a->E;
    case 'Y': return (int64_t)a->H * a->Ev;
    case 'W': return (int64_t)a->K * a->Ev;
    case 'N': return a->qk_norm == LN_QK_NORM_WHOLE ? (int64_t)a->H * a->E : a->E;
    case 'M': return a->qk_norm == LN_QK_NORM_WHOLE ? (int64_t)a->K * a->E : a->E;
    default: return 0;
    }
}

/* Adds the rows that one key head has of a slot: of q, k and v those of each. Returns how many they are. */
static int64_t add_pieces(const ln_recur_sizes *z, int slot, int64_t rows, int64_t row0, ln_row_pieces *out) {
    const int64_t values = (int64_t)z->n_v_heads / z->n_k_heads * z->v_dim;
    const int64_t sizes[LN_PIECES] = {z->k_dim, z->k_dim, values};
    const bool qkv = slot == LN_W_DELTA_QKV;
    out->n_pieces = qkv ? LN_PIECES : 1;
    for (int i = 0; i < out->n_pieces; i++) {
        out->piece[i].row0 = row0;
        out->piece[i].n = qkv ? sizes[i] : rows / z->n_k_heads;
        row0 += out->piece[i].n;
    }
    return rows / z->n_k_heads;
}

void ln_slot_pieces(const ln_spec *s, const ln_slot_name *own, int slot, int l, ln_row_pieces *out) {
    const ln_recur_sizes *z = &ln_recur_of(s, l)->sizes;
    ln_row_pieces other;
    out->n_periods = z->n_k_heads;
    out->period = 0;
    for (int i = 0; i < own->n_parts; i++) {
        const int part = (int)own->parts[i];
        const int64_t rows = ln_slot_size(s, ln_slot_rows[part].shape[0], l);
        out->period += add_pieces(z, part, rows, out->period, part == slot ? out : &other);
    }
}
