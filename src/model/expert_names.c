/* Names of the tensors and modules of experts: what expert_names.def lists, and what follows from it. */
#include "expert_names.h"
#include "../base/c_locale.h"
#include "../base/dir_names.h"
#include "weight_slots.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 192 };

static const ln_expert_row rows[] = {
#define EXPERT_NAME(E, name, how) {LN_W_##E, name, LN_EXPERTS_##how},
#include "expert_names.def"
#undef EXPERT_NAME
};
const ln_expert_row *ln_expert_rows(size_t *n) {
    *n = LN_COUNT(rows);
    return rows;
}

uint8_t ln_expert_row_in(const ln_expert_row *row, const ln_moe_spec *m) {
    const bool module =
        strstr(row->name, ".experts.") && !strstr(row->name, ".weight") && !strstr(row->name, ".bias");
    if (!m->interleaved || !module) return (uint8_t)row->in;
    const bool vector = strstr(row->name, "_bias");
    return (uint8_t)((row->in == LN_EXPERTS_FIRST    ? LN_EXPERTS_EVEN
                      : row->in == LN_EXPERTS_SECOND ? LN_EXPERTS_ODD
                                                     : row->in) |
                     (vector ? 0 : LN_EXPERTS_OUT_LAST));
}

/* ---- names that are written ---- */

static void fill_layer(char out[NAME_BYTES], const char *name, int layer) {
    const char *mark = strstr(name, "{}");
    (void)snprintf(out, NAME_BYTES, "%.*s%d%s", (int)(mark - name), name, layer, mark + 2);
}

bool ln_expert_name(char out[160], const ln_spec *s, ln_slot slot, int layer, int64_t expert) {
    static const char gate[] = "gate.weight";
    char router[160], name[NAME_BYTES];
    ln_weight_name(router, s, LN_W_ROUTER, layer);
    const size_t module = strlen(router) - LN_MIN(strlen(router), sizeof gate - 1);
    if (strcmp(router + module, gate) != 0) return false;
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        if (rows[i].slot != (int)slot || rows[i].in != LN_EXPERTS_EACH) continue;
        fill_layer(name, rows[i].name, layer);
        const char *mark = strstr(name, "{x}");
        if (!mark || strncmp(name, router, module) != 0) continue;
        (void)snprintf(out, 160, "%.*s%lld%s", (int)(mark - name), name, (long long)expert, mark + 3);
        return true;
    }
    return false;
}

/* Whether files of mlx-lm, or of the reference, have a tensor of all experts with a name. */
static bool is_name_of_mlx(const ln_expert_row *row, bool interleaved) {
    if (row->in != LN_EXPERTS_STACKED) return false;
    if (!interleaved) return strstr(row->name, ".switch_") != NULL;
    return strstr(row->name, ".mlp.experts.") &&
           (ln_ends_with(row->name, "_proj.weight") || ln_ends_with(row->name, ".bias"));
}
static bool is_name_of_reference(const ln_expert_row *row) {
    return row->in != LN_EXPERTS_EACH && !strstr(row->name, ".switch_") &&
           !ln_ends_with(row->name, "_proj.weight") && !ln_ends_with(row->name, ".bias");
}
/* Whether a name goes on like this after the module that it shares with the router's. */
static bool is_of_experts(const char *rest) {
    static const char *const parts[] = {"switch_", "experts.", "input_linear.", "output_linear."};
    for (size_t i = 0; i < LN_COUNT(parts); i++)
        if (strncmp(rest, parts[i], strlen(parts[i])) == 0) return true;
    return false;
}
/* Returns the row of a slot whose name is in the module of the layer's router, and writes it; NULL: there is
 * none. */
static const ln_expert_row *find_joint_name(char out[160], const ln_spec *s, ln_slot slot, int layer,
                                            bool mlx) {
    const bool interleaved = ln_ffn_of(s, layer)->moe.interleaved;
    const ln_expert_row *found = NULL;
    char router[160], name[NAME_BYTES];
    size_t best = 0;
    ln_weight_name(router, s, LN_W_ROUTER, layer);
    out[0] = '\0';
    for (size_t i = 0; i < LN_COUNT(rows); i++) {
        if (rows[i].slot != (int)slot) continue;
        if (!(mlx ? is_name_of_mlx(&rows[i], interleaved) : is_name_of_reference(&rows[i]))) continue;
        fill_layer(name, rows[i].name, layer);
        size_t n = 0;
        while (name[n] && name[n] == router[n]) n++;
        if (n <= best || !is_of_experts(name + n)) continue;
        best = n, found = &rows[i];
        (void)snprintf(out, 160, "%.159s", name);
    }
    return found;
}
void ln_stacked_name(char out[160], const ln_spec *s, ln_slot slot, int layer) {
    (void)find_joint_name(out, s, slot, layer, true);
}
bool ln_joint_name(char out[160], const ln_spec *s, ln_slot slot, int layer, uint8_t *in) {
    const ln_expert_row *row = find_joint_name(out, s, slot, layer, false);
    if (row) *in = ln_expert_row_in(row, &ln_ffn_of(s, layer)->moe);
    return row != NULL;
}

/* ---- modules of adapters ---- */

/* Reads a number between dots at the beginning of a text; *rest is what follows. */
static bool read_number(const char *text, int64_t *n, const char **rest) {
    const size_t digits = strspn(text, "0123456789");
    *rest = text + digits;
    return digits > 0 && text[digits] == '.' && ln_parse_i64(text, digits, n);
}
/* Whether a path of a module is a row's name, without .weight. */
static bool is_module_of(const ln_expert_row *row, const char *path, int64_t *layer, int64_t *expert) {
    const char *p = row->name;
    *expert = -1;
    while (*p && *path) {
        if (p[0] == '{') {
            const bool one = p[1] == 'x';
            if (!read_number(path, one ? expert : layer, &path)) return false;
            p += one ? 3 : 2;
        } else if (*p++ != *path++) return false;
    }
    return !*path && strcmp(p, ".weight") == 0;
}
int ln_expert_slot(const char *path, int64_t *layer, int64_t *expert) {
    for (size_t i = 0; i < LN_COUNT(rows); i++)
        if (ln_slot_rows[rows[i].slot].shape[2] && is_module_of(&rows[i], path, layer, expert))
            return rows[i].slot;
    return LN_W_COUNT;
}

bool ln_is_experts_module(const ln_spec *s, const char *path, int64_t *layer) {
    static const char start[] = "layers.", end[] = "experts";
    const char *rest;
    char router[160];
    if (strncmp(path, start, sizeof start - 1) != 0) return false;
    if (!read_number(path + sizeof start - 1, layer, &rest) || *layer >= s->L) return false;
    const size_t n = strlen(path), m = sizeof end - 1;
    if (n < m || strcmp(path + n - m, end) != 0 || ln_ffn_of(s, (int)*layer)->moe.n_experts == 0)
        return false;
    ln_weight_name(router, s, LN_W_ROUTER, (int)*layer);
    if (strncmp(path, router, n - m) == 0 && path[n - m - 1] == '.') return true;
    return strcmp(rest, ".mlp.experts") == 0; /* so classes call it whose files do not */
}
