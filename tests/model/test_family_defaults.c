/* The defaults of every family: what a config.json with model_type alone means, compared with the facts and
 * the tensors of the reference's class (family_defaults.jsonl, which tools/family_defaults.py writes). Golden
 * models state every size, so that they cannot find a wrong default. */
/* run: quick */
#include "../io/io_test.h"

#include "model/spec.h"
#include "model/weight_slots.h"

#define FACTS LN_ROOT "/tests/model/family_defaults.jsonl"

static char type[64]; /* the model_type of the line that is compared */

static double real(const json_t *row, const char *key) {
    const json_t *x = json_object_get(row, key);
    if (!json_is_number(x)) fail_msg("%s: no number %s", type, key);
    return json_number_value(x);
}
static void equal(const json_t *row, const char *key, double got) {
    const double want = real(row, key), off = got > want ? got - want : want - got;
    if (off > 1e-6 * want) fail_msg("%s: %s is %.9g, the class has %.9g", type, key, got, want);
}

/* Returns whether a recorded RoPE has the number of frequencies, the second and the last one of *r. */
static bool same_rope(const json_t *recorded, const ln_rope *r) {
    const double want[] = {json_number_value(json_array_get(recorded, 0)),
                           json_number_value(json_array_get(recorded, 1)),
                           json_number_value(json_array_get(recorded, 2))};
    if ((double)r->n != want[0]) return false;
    for (int i = 1; i < 3; i++) {
        const double got = (double)r->freqs[i == 1 ? 1 : r->n - 1];
        if ((got > want[i] ? got - want[i] : want[i] - got) > 1e-6 * want[i]) return false;
    }
    return true;
}
static void check_ropes(const json_t *row, const ln_spec *s) {
    json_t *recorded = json_object_get(row, "ropes"), *x;
    const char *kind;
    json_object_foreach(recorded, kind, x) {
        bool any = false;
        for (int i = 0; i < s->n_ropes; i++) any = any || same_rope(x, &s->ropes[i]);
        if (!any) fail_msg("%s: no RoPE has the frequencies of the class's %s layers", type, kind);
    }
    for (int i = 0; i < s->n_ropes; i++) {
        bool any = false;
        json_object_foreach(recorded, kind, x) any = any || same_rope(x, &s->ropes[i]);
        if (!any) fail_msg("%s: RoPE %d has frequencies that the class has not", type, i);
    }
}

/* Factors and soft caps. null: a class that has the field and does not apply it unless a file sets it. */
static void check_scalars(const json_t *row, const ln_spec *s) {
    const struct {
        const char *key;
        double got;
    } all[] = {{"embedding_multiplier", (double)s->embed_scale},
               {"residual_multiplier", (double)s->residual_scale},
               {"logits_scaling", 1 / (double)s->logit_scale},
               {"logit_scale", (double)s->logit_scale},
               {"attn_logit_softcapping", (double)s->attn[0].softcap},
               {"final_logit_softcapping", (double)s->logit_softcap}};
    const json_t *recorded = json_object_get(row, "scalars");
    size_t n = 0;
    for (size_t i = 0; i < LN_COUNT(all); i++) {
        const json_t *x = json_object_get(recorded, all[i].key);
        n += x != NULL;
        if (json_is_null(x) && all[i].got != 0)
            fail_msg("%s: %s is %g, the class has none", type, all[i].key, all[i].got);
        if (json_is_number(x)) equal(recorded, all[i].key, all[i].got);
    }
    if (n != json_object_size(recorded)) fail_msg("%s: a scalar that is not compared", type);
}

static const char *act_name(ln_act act) {
    static const char *const names[] = {[LN_ACT_SILU] = "silu",
                                        [LN_ACT_GELU_TANH] = "gelu_pytorch_tanh",
                                        [LN_ACT_RELU2] = "relu2",
                                        [LN_ACT_XIELU] = "xielu"};
    return names[act];
}

static void check_facts(const json_t *row, const ln_spec *s) {
    int64_t window = 0;
    int sliding = 0;
    for (int l = 0; l < s->L; l++) {
        const ln_attn_spec *a = ln_attn_of(s, l);
        if (a && a->window) window = a->window, sliding++;
    }
    equal(row, "layers", s->L);
    equal(row, "positions", (double)s->n_ctx);
    equal(row, "eps", s->eps);
    equal(row, "scale", (double)s->attn[0].scale);
    equal(row, "window", (double)window);
    equal(row, "sliding", sliding);
    const char *act = json_string_value(json_object_get(row, "act"));
    if (strcmp(act_name(s->ffn[0].act), act) != 0)
        fail_msg("%s: the activation is %s, the class has %s", type, act_name(s->ffn[0].act), act);
    if (s->tied != json_is_true(json_object_get(row, "tied")))
        fail_msg("%s: tie_word_embeddings is %s, the class has the opposite", type,
                 s->tied ? "true" : "false");
}

/* The rows of the tensor of a slot, which may hold the rows of several slots. */
static int64_t rows_of(const ln_spec *s, int slot, int l) {
    const ln_slot_name *own = ln_slot_name_of(s, slot);
    int64_t n = 0;
    for (int i = 0; own && i < own->n_parts; i++)
        n += ln_slot_size(s, ln_slot_rows[own->parts[i]].shape[0], l);
    return n ? n : ln_slot_size(s, ln_slot_rows[slot].shape[0], l);
}
/* Compares the tensor of a slot with the class's, and marks that it has been compared. Matrices of experts
 * have several names and layouts in files, and are left out. */
static void check_slot(json_t *tensors, json_t *seen, const ln_spec *s, int slot, int l) {
    if (!ln_slot_wanted(s, slot, l) || strstr(ln_slot_rows[slot].name, ".experts.")) return;
    const char *shape = ln_slot_rows[slot].shape;
    char name[160];
    ln_weight_name(name, s, (ln_slot)slot, l);
    const json_t *want = json_object_get(tensors, name);
    if (!want && (ln_slot_rows[slot].flags & LN_WF_OPTIONAL)) return;
    if (!want) fail_msg("%s: %s is a weight of linnet's and none of the class's", type, name);
    const int64_t got[] = {rows_of(s, slot, l), shape[1] ? ln_slot_size(s, shape[1], l) : 1};
    int64_t elements = 1;
    size_t i;
    const json_t *x;
    json_array_foreach(want, i, x) elements *= json_integer_value(x);
    if (elements != got[0] * got[1] ||
        (shape[1] && (json_array_size(want) != 2 || json_integer_value(json_array_get(want, 0)) != got[0])))
        fail_msg("%s: %s is %lld x %lld, the class has %s", type, name, (long long)got[0], (long long)got[1],
                 json_dumps(want, 0));
    json_object_set_new(seen, name, json_true());
}
static void check_tensors(const json_t *row, const ln_spec *s) {
    json_t *tensors = json_object_get(row, "tensors"), *seen = json_object(), *x;
    const char *name;
    for (int slot = 0; slot < LN_W_COUNT; slot++) {
        check_slot(tensors, seen, s, slot, -1);
        check_slot(tensors, seen, s, slot, 0);
        if (s->L > 1) check_slot(tensors, seen, s, slot, s->L - 1);
    }
    json_object_foreach(tensors, name, x) if (!json_object_get(seen, name))
        fail_msg("%s: %s is a tensor of the class, and no weight of linnet's", type, name);
    json_decref(seen);
}

/* Compares the line of one family. */
static void check_line(const json_t *row) {
    const json_t *config = json_object_get(row, "config");
    char *text = json_dumps(config, 0);
    put_text("c/config.json", text);
    free(text);
    ln_config c;
    ln_spec s;
    OK(ln_config_open(&c, at("c"), err));
    OK(ln_spec_open(&s, &c, err));
    /* Mistral3Config says that heads are tied, but the files without the key (Mistral Small 3.1) have a head
     * of their own. The tensors decide, and a wrapper's default would only add a warning. */
    if (json_object_get(config, "text_config")) s.tied = json_is_true(json_object_get(row, "tied"));
    check_facts(row, &s);
    check_scalars(row, &s);
    check_ropes(row, &s);
    check_tensors(row, &s);
    ln_spec_close(&s);
    ln_config_close(&c);
}

static const char *const types[] = {
#define FAMILY(model_type, keys, reader, reads, ignores, text_types) model_type,
#include "model/families/registry.def"
#undef FAMILY
};

static void test_defaults(void **state) {
    (void)state;
    static char line[1 << 16];
    bool compared[LN_COUNT(types)] = {false};
    FILE *f = fopen(FACTS, "r");
    if (!f) fail_msg("%s: cannot be read", FACTS);
    while (fgets(line, sizeof line, f)) {
        json_t *row = json_loads(line, 0, NULL);
        const char *name = json_string_value(json_object_get(json_object_get(row, "config"), "model_type"));
        size_t i = 0;
        if (!name) fail_msg("%s: no model_type: %.80s", FACTS, line);
        (void)snprintf(type, sizeof type, "%s", name);
        while (i < LN_COUNT(types) && strcmp(types[i], type) != 0) i++;
        if (i < LN_COUNT(types)) check_line(row), compared[i] = true;
        else print_message("SKIP: registry.def has no %s\n", type);
        json_decref(row);
    }
    (void)fclose(f);
    for (size_t i = 0; i < LN_COUNT(types); i++)
        if (!compared[i]) fail_msg("%s: no line of %s; tools/family_defaults.py writes it", FACTS, types[i]);
    print_message("%zu families\n", LN_COUNT(types));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_defaults)};
    return cmocka_run_group_tests(tests, dir_make, dir_remove);
}
