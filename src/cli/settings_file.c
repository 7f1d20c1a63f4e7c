/* The file of --config: a JSON object with a setting for each flag. */
#include "flags.h"

#include "../base/file.h"
#include "../base/json.h"

#include <stdio.h>
#include <string.h>

enum { MOST_BYTES = 1 << 20 };

typedef struct settings {
    args *a;
    bool given[F_COUNT]; /* on the command line */
    ln_json j;
} settings;

/* Flags of which the command line's replaces the file's. */
static bool is_replaced(const settings *s, flag f) {
    static const flag pairs[][2] = {
        {F_EPOCHS, F_STEPS}, {F_STEPS, F_EPOCHS}, {F_VALID, F_VALID_SPLIT}, {F_VALID_SPLIT, F_VALID}};
    if (s->given[f]) return true;
    for (size_t i = 0; i < LN_COUNT(pairs); i++)
        if (pairs[i][0] == f && s->given[pairs[i][1]]) return true;
    return false;
}

/* Finds the flag of a key: its name without dashes, with - or _ between words. */
static ln_status find_setting(settings *s, flag *f, ln_error *err) {
    char name[80], shown[80], phrase[260];
    const size_t n = LN_MIN(s->j.text_bytes, sizeof name - 3);
    (void)snprintf(name, sizeof name, "--%.*s", (int)n, s->j.text);
    for (char *c = name + 2; *c; c++)
        if (*c == '_') *c = '-';
    *f = flag_of_verb(flag_find(name, strlen(name)), s->a->verb);
    const bool known = *f != F_COUNT && (flag_rows[*f].verbs & 1u << s->a->verb);
    if (known && *f != F_CONFIG && *f != F_HELP) return LN_OK;
    (void)ln_excerpt(shown, s->j.text, s->j.text_bytes);
    if (flag_suggest(phrase, sizeof phrase, s->a->verb, name))
        return ln_fail(err, LN_EUSAGE, "--config: %s is no setting of %s; %s", shown,
                       verb_rows[s->a->verb].name, phrase);
    return ln_fail(err, LN_EUSAGE, "--config: %s is no setting of %s", shown, verb_rows[s->a->verb].name);
}

static ln_status bad_setting(settings *s, flag f, const char *expected, ln_error *err) {
    char found[80];
    return ln_fail(err, LN_EUSAGE, "--config: \"%s\": expected %s, found %s", flag_rows[f].name + 2, expected,
                   ln_json_found(&s->j, found));
}

/* Stores a scalar that was read. */
static ln_status take_scalar(settings *s, flag f, bool keep, ln_error *err) {
    const bool is_switch = flag_rows[f].kind == SWITCH;
    if (s->j.type == LN_J_NULL) return LN_OK;
    if (is_switch && s->j.type != LN_J_TRUE && s->j.type != LN_J_FALSE)
        return bad_setting(s, f, "true or false", err);
    if (is_switch) {
        if (keep && s->j.type == LN_J_TRUE) s->a->flag[f].set = true;
        return LN_OK;
    }
    if (s->j.type != LN_J_STRING && s->j.type != LN_J_NUMBER)
        return bad_setting(s, f, flag_rows[f].value, err);
    if (!keep) return LN_OK;
    char *text = ln_arena_strndup(&s->a->texts, s->j.text, s->j.text_bytes);
    return text ? flag_take(s->a, f, text, err) : LN_OOM(err, "settings");
}

static ln_status take_setting(settings *s, ln_error *err) {
    flag f;
    bool more;
    LN_TRY(find_setting(s, &f, err));
    LN_TRY(ln_json_next(&s->j, err));
    const bool keep = !is_replaced(s, f);
    if (s->j.type == LN_J_OBJECT) return bad_setting(s, f, "a value or a list of values", err);
    if (s->j.type != LN_J_ARRAY) return take_scalar(s, f, keep, err);
    for (;;) {
        LN_TRY(ln_json_item(&s->j, &more, err));
        if (!more) return LN_OK;
        if (s->j.type == LN_J_OBJECT || s->j.type == LN_J_ARRAY) return bad_setting(s, f, "a value", err);
        LN_TRY(take_scalar(s, f, keep, err));
    }
}

ln_status args_config(args *a, ln_error *err) {
    settings s = {.a = a};
    char *data = NULL, found[80];
    size_t n = 0;
    ln_status st = LN_OK;
    if (!has(a, F_CONFIG)) return LN_OK;
    for (int f = 0; f < F_COUNT; f++) s.given[f] = has(a, (flag)f);
    LN_TRY(ln_read_input(a->flag[F_CONFIG].text, MOST_BYTES, &data, &n, err));
    ln_json_open(&s.j, a->flag[F_CONFIG].text, data, n, LN_JSON_MAX_DEPTH);
    LN_GO(ln_json_next(&s.j, err));
    if (s.j.type != LN_J_OBJECT)
        LN_GO(ln_fail(err, LN_EUSAGE, "--config: expected a JSON object, found %s",
                      ln_json_found(&s.j, found)));
    for (bool more;;) {
        LN_GO(ln_json_key(&s.j, &more, err));
        if (!more) break;
        LN_GO(take_setting(&s, err));
    }
    LN_GO(ln_json_want(&s.j, LN_J_END, err));
out:
    ln_json_close(&s.j);
    ln_free(data);
    return st;
}
