/* Key tables: how linnet treats every key of a JSON file of a model.
 *
 * The table of a file (a .def file) says of each key whether it is read, has no effect on results, or
 * requests something that linnet does not do. The last kind only counts if the value differs from what linnet
 * does anyway. A configuration can therefore not describe a model other than the one that is computed without
 * an error or a message. */
#include "io.h"

#include <string.h>

enum { NAMES_MOST = 32 }; /* names listed in one log line */

/* Whether the value is a list of ones (or true), for the pattern `[1,...]`. */
static bool all_ones(const json_t *value) {
    size_t i;
    json_t *item;
    if (!json_is_array(value)) return false;
    json_array_foreach(value, i, item) {
        if (!json_is_true(item) && (!json_is_number(item) || json_number_value(item) != 1)) return false;
    }
    return true;
}

static bool is_word(const json_t *value, const char *word, size_t n) {
    double number;
    if (n == 1 && word[0] == '*') return true;
    if (n == 4 && memcmp(word, "null", 4) == 0) return json_is_null(value);
    if (n == 4 && memcmp(word, "true", 4) == 0) return json_is_true(value);
    if (n == 5 && memcmp(word, "false", 5) == 0) return json_is_false(value);
    if (n == 2 && memcmp(word, "[]", 2) == 0) return json_is_array(value) && json_array_size(value) == 0;
    if (n == 2 && memcmp(word, "{}", 2) == 0) return json_is_object(value) && json_object_size(value) == 0;
    if (n == 7 && memcmp(word, "[1,...]", 7) == 0) return all_ones(value);
    if (ln_parse_f64(word, n, &number)) return json_is_number(value) && json_number_value(value) == number;
    return json_is_string(value) && json_string_length(value) == n &&
           memcmp(json_string_value(value), word, n) == 0;
}

bool ln_key_is_same(const ln_key *key, const json_t *value) {
    for (const char *w = key->same; *w;) {
        size_t n = strcspn(w, "|");
        if (is_word(value, w, n)) return true;
        w += n + (w[n] == '|');
    }
    return false;
}

bool ln_key_listed(const char *names, const char *name) {
    const size_t n = strlen(name);
    for (const char *at = names; at && *at;) {
        const size_t word = strcspn(at, " ");
        if (word == n && memcmp(at, name, n) == 0) return true;
        at += word + (at[word] == ' ');
    }
    return false;
}

const ln_key *ln_key_find(const ln_keys *table, unsigned group, const char *name) {
    for (size_t i = 0; i < table->n; i++)
        if ((table->rows[i].groups & group) && strcmp(table->rows[i].name, name) == 0) return &table->rows[i];
    return NULL;
}

/* Writes the values of a row for a message: "true or false", "no such key". */
static void expected(const ln_key *key, char out[120]) {
    size_t used = 0;
    out[0] = '\0';
    for (const char *w = key->same; *w;) {
        size_t n = strcspn(w, "|");
        if (n != 4 || memcmp(w, "null", 4) != 0)
            used += (size_t)snprintf(out + used, 120 - used, "%s%.*s", used ? " or " : "",
                                     (int)LN_MIN(n, (size_t)20), w);
        if (used > 80) break;
        w += n + (w[n] == '|');
    }
    if (!used) (void)snprintf(out, 120, "no such key");
}

static ln_status refuse(const ln_key *key, const json_t *value, const char *path, const char *where,
                        ln_error *err) {
    char wanted[120], text[80], shown[LN_PATH_TEXT];
    expected(key, wanted);
    return ln_fail(err, LN_EUNSUPPORTED,
                   "%s: %s%s: %s is not supported: expected %s, found %s; linnet would compute another model "
                   "than this one, use "
                   "software that knows this key",
                   ln_path_text(shown, path), where, key->name, key->what, wanted, ln_json_text(value, text));
}

static void add_name(ln_str *list, size_t *n, const char *where, const char *name, const json_t *value,
                     const char *what) {
    char text[80];
    if (++*n > NAMES_MOST) return;
    ln_str_addf(list, "%s%s%s", list->len ? ", " : "", where, ln_excerpt(text, name, strlen(name)));
    if (what) ln_str_addf(list, " %s (%s)", ln_json_text(value, text), what);
}

ln_status ln_keys_check(const ln_keys *table, unsigned group, const json_t *object, const char *path,
                        const char *where, ln_key_report *report, ln_error *err) {
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        if (ln_key_listed(table->known[0], name) || ln_key_listed(table->known[1], name)) continue;
        const ln_key *key = ln_key_find(table, group, name);
        if (!key && table->modules && (json_is_object(value) || json_is_boolean(value))) continue;
        if (!key && table->also && ln_key_find(table->also, ~0u, name)) continue;
        if (!key) {
            add_name(&report->unknown, &report->n_unknown, where, name, NULL, NULL);
            continue;
        }
        if (key->kind == LN_KEY_READ || key->kind == LN_KEY_HARMLESS || ln_key_is_same(key, value)) continue;
        if (key->kind == LN_KEY_REFUSED) return refuse(key, value, path, where, err);
        add_name(&report->warned, &report->n_warned, where, name, value, key->what);
    }
    return report->warned.failed || report->unknown.failed ? LN_OOM(err, "the names of keys") : LN_OK;
}

void ln_key_report_say(const ln_key_report *r, const char *path) {
    char shown[LN_PATH_TEXT];
    (void)ln_path_text(shown, path);
    if (r->n_warned)
        ln_log(LN_LOG_WARN, "%s: linnet does not apply %s%s", shown, r->warned.data,
               r->n_warned > NAMES_MOST ? ", ..." : "");
    if (r->n_unknown)
        ln_log(LN_LOG_INFO, "%s: keys that linnet does not know and does not read: %s%s", shown,
               r->unknown.data, r->n_unknown > NAMES_MOST ? ", ..." : "");
}

void ln_key_report_free(ln_key_report *r) {
    ln_str_free(&r->warned);
    ln_str_free(&r->unknown);
}
