/* Checks the keys of config.json against their table (config_keys.def), and the class that `architectures`
 * names.
 *
 * ln_spec_open calls this before it reads any field: a configuration that would load but compute a different
 * model is refused here, with the name of the key. */
#include "../family.h"
#include "key_sets.h"

#include <string.h>

enum {
    LLAMA = LN_FAMILY_LLAMA,
    QWEN2 = LN_FAMILY_QWEN2,
    QWEN3 = LN_FAMILY_QWEN3,
    GEMMA3 = LN_FAMILY_GEMMA3,
    QWEN = QWEN2 | QWEN3,
    LISTED = LN_FAMILY_LISTED,
    ALL = LLAMA | QWEN | GEMMA3 | LISTED
};

static const ln_key rows[] = {
#define KEY(families, name, kind, same, what) {families, name, LN_KEY_##kind, same, what},
#include "config_keys.def"
#undef KEY
};
const ln_keys ln_config_keys = {rows, LN_COUNT(rows), &ln_generation_keys, false, {NULL, NULL}};

/* Parts of class names of models whose output is something else than next-token logits. */
static const struct {
    const char *part, *what;
} other_heads[] = {
    {"SequenceClassification", "a classifier of texts"},
    {"TokenClassification", "a classifier of tokens"},
    {"QuestionAnswering", "a head that marks answers in a text"},
    {"MultipleChoice", "a head that picks an answer"},
    {"RewardModel", "a head that gives a reward"},
    {"MaskedLM", "a head that fills in masked tokens, and attention to later tokens"},
    {"Bidirectional", "attention to later tokens"},
    {"BiModel", "attention to later tokens"},
    {"BiForMNTP", "attention to later tokens"},
};

static bool predicts_tokens(const char *name) {
    return strstr(name, "CausalLM") || strstr(name, "ConditionalGeneration") || strstr(name, "LMHeadModel");
}

/* transformers selects the class by model_type and by the head that the program asks for, in linnet's case
 * the language-model head. The checkpoint of a classifier has no such head and is refused. The checkpoint of
 * a bare model has none either, but there the embedding serves as the head, as if it were tied. */
static ln_status check_class(const ln_config *c, ln_error *err) {
    const json_t *list = json_object_get(c->root, "architectures");
    char shown[LN_PATH_TEXT], text[80];
    (void)ln_path_text(shown, c->path);
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) if (json_is_string(item) && predicts_tokens(json_string_value(item)) &&
                                          !strstr(json_string_value(item), "Bidirectional")) return LN_OK;
    json_array_foreach(list, i, item) {
        const char *name = json_string_value(item);
        if (!name) continue;
        (void)ln_excerpt(text, name, strlen(name));
        for (size_t k = 0; k < LN_COUNT(other_heads); k++)
            if (strstr(name, other_heads[k].part))
                return ln_fail(err, LN_EUNSUPPORTED,
                               "%s: architectures: %s has %s, which is not supported; linnet runs models "
                               "that predict the next token, "
                               "expected a class that ends in ForCausalLM",
                               shown, text, other_heads[k].what);
        size_t n = strlen(name);
        if (n >= 5 && strcmp(name + n - 5, "Model") == 0)
            ln_log(LN_LOG_WARN,
                   "%s: architectures: %s has no head of its own; logits come from the embedding, as if it "
                   "were tied",
                   shown, text);
        else
            ln_log(LN_LOG_INFO, "%s: architectures: linnet does not know %s; it goes by model_type", shown,
                   text);
    }
    return LN_OK;
}

ln_status ln_config_check(const ln_config *c, const ln_family *family, ln_error *err) {
    ln_key_report report = {0};
    ln_keys keys = ln_config_keys;
    keys.known[0] = family->reads, keys.known[1] = family->ignores;
    LN_TRY(check_class(c, err));
    ln_status st = ln_keys_check(&keys, family->keys, c->root, c->path, "", &report, err);
    if (st == LN_OK && c->text != c->root)
        st = ln_keys_check(&keys, family->keys, c->text, c->path, "text_config.", &report, err);
    if (st == LN_OK) ln_key_report_say(&report, c->path);
    ln_key_report_free(&report);
    return st;
}
