/* The argument parser, driven by the table of flags.
 *
 * Parsing is strict: a number must be the whole argument, abbreviations are rejected, and a value that looks
 * like a flag must be joined by '='. If a flag is given twice the last value counts, so that a user can
 * override a script's defaults; flags that accumulate (--stop, --logit-bias, --keep) are the exception. All
 * errors are reported before any file is opened. */
#include "flags.h"
#include "../base/c_locale.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define PLANNED \
    (ON(RUN) | ON(PLAN)) /* plan takes the same command line as run, so that the verbs can be exchanged */
#define GENERATES (PLANNED | ON(CHAT))
#define TEMPLATED (GENERATES | ON(CLASSIFY))
#define FILED     (ON(CLASSIFY) | ON(EVAL) | ON(BATCH)) /* the argument after MODEL is a file */
#define PROMPTED  (PLANNED | ON(SCORE) | ON(ATTENTION) | ON(TOKENIZE) | ON(DIFF))
#define LOADS                                                                                            \
    (TEMPLATED | ON(EVAL) | ON(SCORE) | ON(ATTENTION) | ON(EXPLAIN) | ON(DIFF) | ON(BENCH) | ON(BATCH) | \
     ON(SERVE))
/* verbs that run several sequences at once */
#define SHARES (ON(PLAN) | ON(CLASSIFY) | ON(EVAL) | ON(BATCH) | ON(SERVE))
#define OF_MODEL                                                                                          \
    (LOADS | ON(TOKENIZE) | ON(TEMPLATE) | ON(QUANTIZE) | ON(CONVERT) | ON(FUSE) | ON(INIT) | ON(TRAIN) | \
     ON(SHOW))
#define BACKENDS   (ON(RUN) | ON(CHAT) | ON(CLASSIFY) | ON(BATCH) | ON(BENCH))
#define TRAINS     (ON(TRAIN) | ON(PLAN))
#define EVERYWHERE (~0u)
#define ANSWERS    (EVERYWHERE & ~ON(COMPLETION) & ~ON(CHAT) & ~ON(SERVE))

const flag_row flag_rows[F_COUNT] = {
#define FLAG(id, name, letter, kind, verbs, value, lo, hi, help) \
    {name, letter, kind, verbs, value, (double)(lo), (double)(hi), help},
#include "flags.def"
#undef FLAG
};

const verb_row verb_rows[VERB_COUNT] = {
#define VERB(ID, name, form, takes, what, more) {#name, form, takes, what, more},
#include "verbs.def"
#undef VERB
};

const char *verb_name(verb v) { return verb_rows[v].name; }
bool takes_prompt(verb v) { return (1u << v & PROMPTED) != 0; }
bool takes_file(verb v) { return (1u << v & FILED) != 0; }

verb planned_verb(const args *a) {
    static const verb verbs[] = {VERB_RUN,  VERB_SCORE, VERB_ATTENTION, VERB_CLASSIFY,
                                 VERB_EVAL, VERB_BATCH, VERB_SERVE,     VERB_TRAIN}; /* the values of --for */
    return a->verb != VERB_PLAN ? a->verb : verbs[has(a, F_FOR) ? a->flag[F_FOR].i : 0];
}

bool plans_server(const args *a) { return a->verb == VERB_PLAN && planned_verb(a) == VERB_SERVE; }

verb verb_named(const char *name) {
    for (int v = 0; v < VERB_COUNT; v++)
        if (strcmp(verb_rows[v].name, name) == 0) return (verb)v;
    return VERB_COUNT;
}

/* ---- values ---- */

static ln_status bad_value(const flag_row *r, const char *text, const char *expected, ln_error *err) {
    char shown[80];
    return ln_fail(err, LN_EUSAGE, "%s: expected %s, found '%s'", r->name, expected,
                   ln_excerpt(shown, text, strnlen(text, 200)));
}

/* The factor for the unit after a number; 0 when it is not a unit. Counts have k and M, powers of 1024.
 * Bytes have k, M, G and T, alone or as KiB, MiB and so on, powers of 1024, and kB, MB, GB, TB, powers of
 * 1000: the units that `plan` prints. */
static int64_t unit_of(const char *letters, bool bytes) {
    static const char prefixes[] = "kmgt";
    if (!letters[0] || (bytes && ln_same_ascii(letters, "b"))) return 1;
    const char *prefix = strchr(prefixes, letters[0] | 0x20);
    if (!prefix) return 0;
    if (!bytes) return ln_same_ascii(letters, "k") ? 1 << 10 : strcmp(letters, "M") == 0 ? 1 << 20 : 0;
    bool decimal = ln_same_ascii(letters + 1, "b"), binary = !letters[1] || ln_same_ascii(letters + 1, "ib");
    int64_t unit = 1;
    for (const char *p = prefixes; p <= prefix; p++) unit *= decimal ? 1000 : 1024;
    return decimal || binary ? unit : 0;
}

/* Parses a number with a unit. Sizes in bytes may have a fraction (1.5G) and are rounded down. */
static bool read_scaled(const char *text, bool bytes, int64_t *out) {
    size_t n = strspn(text + (text[0] == '-'), "0123456789.") + (text[0] == '-');
    int64_t unit = unit_of(text + n, bytes);
    double x;
    if (unit == 0 || n == 0) return false;
    if (!memchr(text, '.', n)) return ln_parse_i64(text, n, out) && !__builtin_mul_overflow(*out, unit, out);
    if (!bytes || unit == 1 || !ln_parse_f64(text, n, &x) || !(x * (double)unit < 0x1p62) || x < 0)
        return false;
    *out = (int64_t)(x * (double)unit);
    return true;
}

static ln_status read_integer(const flag_row *r, flag_value *v, ln_error *err) {
    char expected[120];
    bool scaled = r->kind != COUNT;
    bool ok = scaled ? read_scaled(v->text, r->kind == BYTES, &v->i)
                     : ln_parse_i64(v->text, strlen(v->text), &v->i);
    if (ok && (double)v->i >= r->lo && (double)v->i <= r->hi) return LN_OK;
    if (r->kind == BYTES)
        (void)snprintf(expected, sizeof expected,
                       "a size of at least %lld byte%s, like 500M, 16G, 16GiB, 16GB or 1T", (long long)r->lo,
                       r->lo == 1 ? "" : "s");
    else
        (void)snprintf(expected, sizeof expected, "an integer from %lld to %lld%s", (long long)r->lo,
                       (long long)r->hi, scaled ? " (k and M allowed)" : "");
    return bad_value(r, v->text, expected, err);
}

/* Parses a real number as people write it: also .5, 5. and +5. */
static bool read_f64(const char *text, double *out) {
    char json[64];
    bool minus = text[0] == '-';
    const char *digits = text + (text[0] == '-' || text[0] == '+');
    size_t n = strlen(digits);
    if (n > 0 && digits[n - 1] == '.') n--; /* 5. */
    if (n == 0 || n > sizeof json - 4 || digits[0] == '-' || digits[0] == '+') return false;
    int len = snprintf(json, sizeof json, "%s%s%.*s", minus ? "-" : "", digits[0] == '.' ? "0" : "", (int)n,
                       digits);
    return ln_parse_f64(json, (size_t)len, out);
}

static ln_status read_real(const flag_row *r, flag_value *v, ln_error *err) {
    char expected[80];
    if (read_f64(v->text, &v->f) && v->f >= r->lo && v->f <= r->hi) return LN_OK;
    (void)ln_snprintf(expected, sizeof expected, "a number from %g to %g", r->lo, r->hi);
    return bad_value(r, v->text, expected, err);
}

static ln_status read_seed(const flag_row *r, flag_value *v, ln_error *err) {
    v->random = strcmp(v->text, "-1") == 0 || strcmp(v->text, "random") == 0;
    if (v->random || ln_parse_u64(v->text, strlen(v->text), &v->u)) return LN_OK;
    return bad_value(r, v->text, "an integer from 0 to 2^64 - 1, -1 or random", err);
}

/* Parses a CHOICE: its words are in VALUE, separated by bars. */
static ln_status read_choice(const flag_row *r, flag_value *v, ln_error *err) {
    size_t n = strlen(v->text);
    v->i = 0;
    for (const char *word = r->value; *word; v->i++) {
        size_t len = strcspn(word, "|");
        if (len == n && memcmp(word, v->text, n) == 0) return LN_OK;
        word += len + (word[len] == '|');
    }
    return bad_value(r, v->text, r->value, err);
}

/* Parses a CHOICE, or cuda:LIST: the numbers of GPUs with commas between, in v->list, or `all`, of which
 * v->n_list is 0. */
static ln_status read_devices(const flag_row *r, flag_value *v, ln_error *err) {
    static const char cuda[] = "cuda";
    const char *list = strncmp(v->text, "cuda:", sizeof cuda) == 0 ? v->text + sizeof cuda : NULL;
    flag_value word = *v;
    if (list) word.text = cuda;
    LN_TRY(read_choice(r, &word, err));
    v->i = word.i, v->n_list = 0, v->listed = list != NULL;
    if (!list || strcmp(list, "all") == 0) return LN_OK;
    for (const char *at = list;; at++) {
        const size_t n = strcspn(at, ",");
        int64_t gpu;
        bool ok = v->n_list < GPUS_MOST && ln_parse_i64(at, n, &gpu) && gpu >= 0 && gpu < 1024;
        for (size_t i = 0; ok && i < v->n_list; i++) ok = v->list[i] != gpu;
        if (!ok)
            return bad_value(r, v->text,
                             "cuda:all, or cuda: and at most 16 different numbers of GPUs, as cuda:0,1", err);
        v->list[v->n_list++] = gpu;
        at += n;
        if (!*at) return LN_OK;
    }
}

/* Parses integers separated by commas. */
static ln_status read_list(const flag_row *r, flag_value *v, ln_error *err) {
    char expected[120], word[32];
    v->n_list = 0; /* the last list replaces earlier ones */
    (void)snprintf(expected, sizeof expected,
                   "1 .. %d integers from %lld to %lld with commas between (k and M allowed)", MOST_LIST,
                   (long long)r->lo, (long long)r->hi);
    for (const char *at = v->text;; at++) {
        size_t n = strcspn(at, ",");
        if (v->n_list == MOST_LIST || n >= sizeof word) return bad_value(r, v->text, expected, err);
        memcpy(word, at, n);
        word[n] = '\0';
        int64_t *x = &v->list[v->n_list++];
        if (!read_scaled(word, false, x) || (double)*x < r->lo || (double)*x > r->hi)
            return bad_value(r, v->text, expected, err);
        at += n;
        if (!*at) return LN_OK;
    }
}

static ln_status read_bias(args *a, const flag_row *r, const char *text, ln_error *err) {
    const char *equals = strchr(text, '=');
    int64_t id;
    double value;
    bool banned = equals && (ln_same_ascii(equals + 1, "-inf") || ln_same_ascii(equals + 1, "-infinity"));
    if (!equals || !ln_parse_i64(text, (size_t)(equals - text), &id) || id < 0 || id > INT32_MAX ||
        (!banned && (!read_f64(equals + 1, &value) || value < -1e30 || value > 1e30)))
        return bad_value(r, text, "ID=V, a token id and a number (-inf bans it)", err);
    void *p = a->bias;
    LN_TRY(ln_grow(&p, &a->cap_bias, a->n_bias + 1, sizeof *a->bias, err));
    a->bias = p;
    a->bias[a->n_bias++] = (ln_logit_bias){(int32_t)id, banned ? -INFINITY : (float)value};
    return LN_OK;
}

static ln_status read_id(args *a, const flag_row *r, const char *text, ln_error *err) {
    int64_t id;
    if (!ln_parse_i64(text, strlen(text), &id) || id < 0 || id > INT32_MAX)
        return bad_value(r, text, "a token id (linnet tokenize prints them)", err);
    void *p = a->stop_ids;
    LN_TRY(ln_grow(&p, &a->cap_stop_ids, a->n_stop_ids + 1, sizeof *a->stop_ids, err));
    a->stop_ids = p;
    a->stop_ids[a->n_stop_ids++] = (int32_t)id;
    return LN_OK;
}

static ln_status add_text(const char **list, size_t *n, const flag_row *r, const char *text, ln_error *err) {
    if (r->kind == NAMES && !text[0]) return bad_value(r, text, "a name", err);
    if (*n == MAX_STOPS) return ln_fail(err, LN_EUSAGE, "%s: at most %d times", r->name, MAX_STOPS);
    list[(*n)++] = text;
    return LN_OK;
}

static ln_status read_field(args *a, const flag_row *r, const char *text, ln_error *err) {
    const size_t n = strlen(a->fields), left = sizeof a->fields - n, name = strcspn(text, "=,");
    if (name == 0 || text[name] != '=' || !text[name + 1] || strchr(text, ','))
        return bad_value(r, text, "NAME=MEMBER, as text=body, without a comma", err);
    if ((size_t)snprintf(a->fields + n, left, "%s%s", n ? "," : "", text) < left) return LN_OK;
    return ln_fail(err, LN_EUSAGE, "%s: all names are longer than %zu bytes", r->name, sizeof a->fields - 1);
}

/* Reads FILE[:WEIGHT]; the weight is a number after the last colon. */
static ln_status read_file(args *a, const flag_row *r, const char *text, ln_error *err) {
    const char *colon = strrchr(text, ':');
    double weight = 1;
    size_t n = strlen(text);
    void *p = a->mix;
    if (colon && ln_parse_f64(colon + 1, strlen(colon + 1), &weight)) n = (size_t)(colon - text);
    if (n == 0 || !(weight > 0 && weight <= 1000))
        return bad_value(r, text, "FILE or FILE:WEIGHT, a weight above 0, at most 1000", err);
    LN_TRY(ln_grow(&p, &a->cap_mix, a->n_mix + 1, sizeof *a->mix, err));
    a->mix = p;
    char *path = ln_strndup(text, n);
    if (!path) return LN_OOM(err, "the command line");
    a->mix[a->n_mix++] = (ln_train_file){path, weight};
    return LN_OK;
}

static ln_status read_keep(args *a, const flag_row *r, const char *text, ln_error *err) {
    const char *equals = strrchr(text, '=');
    int64_t bits;
    bool ok = equals && equals > text && ln_parse_i64(equals + 1, strlen(equals + 1), &bits) &&
              (bits == 16 || (bits >= 2 && bits <= 8 && bits != 7));
    if (!ok) return bad_value(r, text, "NAME=BITS, part of a module's path and 2, 3, 4, 5, 6, 8 or 16", err);
    void *p = a->overrides;
    LN_TRY(ln_grow(&p, &a->cap_overrides, a->n_overrides + 1, sizeof *a->overrides, err));
    a->overrides = p;
    char *name = ln_strndup(text, (size_t)(equals - text));
    if (!name) return LN_OOM(err, "the command line");
    a->overrides[a->n_overrides++] = (ln_quantize_override){name, (int)bits};
    return LN_OK;
}

/* Skips a byte order mark, which text from a file may begin with: -p "$(cat prompt.txt)". */
static const char *without_mark(const char *text) {
    return strncmp(text, "\xef\xbb\xbf", 3) == 0 ? text + 3 : text;
}

ln_status flag_take(args *a, flag f, const char *text, ln_error *err) {
    const flag_row *r = &flag_rows[f];
    flag_value *v = &a->flag[f];
    v->set = true;
    v->text = f == F_PROMPT || f == F_SYSTEM ? without_mark(text) : text;
    switch (r->kind) {
    case COUNT:
    case SIZE:
    case BYTES: return read_integer(r, v, err);
    case REAL: return read_real(r, v, err);
    case SEED: return read_seed(r, v, err);
    case CHOICE: return read_choice(r, v, err);
    case DEVICES: return read_devices(r, v, err);
    case LIST: return read_list(r, v, err);
    case BIASES: return read_bias(a, r, text, err);
    case IDS: return read_id(a, r, text, err);
    case KEEPS: return read_keep(a, r, text, err);
    case ADAPTERS: return adapter_add(a, text, err);
    case LORAS: return lora_add(a, text, err);
    case FIELDS: return read_field(a, r, text, err);
    case FILES: return read_file(a, r, text, err);
    case NAMES: return add_text(a->aliases, &a->n_aliases, r, text, err);
    case ORIGINS: return add_text(a->origins, &a->n_origins, r, text, err);
    case TEXTS:
        return f == F_SAMPLE_PROMPT ? add_text(a->prompts, &a->n_prompts, r, text, err)
                                    : add_text(a->stops, &a->n_stops, r, text, err);
    default: return LN_OK;
    }
}

/* ---- arguments ---- */

flag flag_find(const char *word, size_t n) {
    for (int f = 0; f < F_COUNT; f++) {
        if (strlen(flag_rows[f].name) == n && memcmp(flag_rows[f].name, word, n) == 0) return (flag)f;
        if (n == 2 && word[0] == '-' && flag_rows[f].letter && word[1] == flag_rows[f].letter) return (flag)f;
    }
    return flag_elsewhere(word, n);
}

/* Whether `word` is a short flag of the verb with its value attached (-n5 for -n 5). */
static bool joined_value(verb v, const char *word) {
    flag f = word[1] != '-' && word[1] && word[2] ? flag_find(word, 2) : F_COUNT;
    return f != F_COUNT && flag_rows[f].kind != SWITCH && (flag_rows[f].verbs & 1u << v) &&
           ((word[2] >= '0' && word[2] <= '9') || word[2] == '/');
}

static ln_status unknown_flag(verb v, const char *word, flag f, ln_error *err) {
    char shown[80], typed[64], phrase[260];
    size_t n = strcspn(word, "=");
    (void)ln_excerpt(shown, word, LN_MIN(n, (size_t)200));
    const char *advice = flag_advice(word, n); /* of a flag that means something else in another verb, too */
    if (f != F_COUNT && !advice) {
        for (int other = 0; other < VERB_COUNT; other++)
            if (flag_rows[f].verbs & 1u << other)
                return ln_fail(err, LN_EUSAGE, "%s is no flag of %s; it belongs to %s", shown,
                               verb_rows[v].name, verb_rows[other].name);
    }
    if (advice) return ln_fail(err, LN_EUSAGE, "unknown flag %s: %s", shown, advice);
    if (joined_value(v, word))
        return ln_fail(err, LN_EUSAGE, "unknown flag %s; a value stands apart: %.2s %s", shown, word,
                       shown + 2);
    (void)snprintf(typed, sizeof typed, "%.*s", (int)LN_MIN(n, sizeof typed - 1), word);
    if (flag_suggest(phrase, sizeof phrase, v, typed))
        return ln_fail(err, LN_EUSAGE, "unknown flag %s; %s", shown, phrase);
    return ln_fail(err, LN_EUSAGE, "unknown flag %s", shown);
}

static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

/* Whether the text after a flag's name and a blank is a value of the flag: one word, a number if the flag
 * takes one. */
static bool is_value_of(flag f, const char *text) {
    text += strspn(text, " \t\n");
    const kind k = flag_rows[f].kind;
    const bool number = k == COUNT || k == SIZE || k == BYTES || k == REAL || k == LIST;
    return k != SWITCH && *text && !strpbrk(text, " \t\n") && (!number || strspn(text, "0123456789+-."));
}

/* Whether an argument looks like a flag and not like a text or a value: one or two dashes and a letter, in a
 * word without blanks. If blanks follow, only an existing flag with its value does ("--top-k 5" as one
 * argument). Therefore "- buy milk", "---", "-5" and "--verbose please" are texts, and "-" is stdin. */
static bool looks_like_flag(const char *text) {
    if (text[0] != '-' || text[1] == '\0') return false;
    const char *name = text + (text[1] == '-' ? 2 : 1);
    size_t n = strcspn(text, "= \t\n");
    if (!is_letter(*name)) return strcmp(text, "--") == 0;
    if (text[n] == '\0' || text[n] == '=') return true;
    flag f = flag_find(text, n);
    return f != F_COUNT && is_value_of(f, text + n);
}

/* The message for --think=false and the like: what to write instead. */
static ln_status switch_with_value(flag f, const char *value, ln_error *err) {
    static const char *const off[] = {"false", "0", "no", "off"}, *const on[] = {"true", "1", "yes", "on"};
    bool is_off = false, is_on = false;
    for (size_t i = 0; i < LN_COUNT(off); i++) {
        is_off = is_off || ln_same_ascii(value, off[i]);
        is_on = is_on || ln_same_ascii(value, on[i]);
    }
    const flag other = f == F_THINK ? F_NO_THINK : f == F_NO_THINK ? F_THINK : F_COUNT;
    const char *name = flag_rows[f].name;
    if (is_on) return ln_fail(err, LN_EUSAGE, "%s takes no value: write %s alone", name, name);
    if (is_off && other != F_COUNT)
        return ln_fail(err, LN_EUSAGE, "%s takes no value: write %s", name, flag_rows[other].name);
    if (is_off) return ln_fail(err, LN_EUSAGE, "%s takes no value: leave it out", name);
    return ln_fail(err, LN_EUSAGE, "%s takes no value", name);
}

flag flag_of_verb(flag f, verb v) {
    for (int k = (int)f; k < F_COUNT; k++)
        if (strcmp(flag_rows[k].name, flag_rows[f].name) == 0 && (flag_rows[k].verbs & 1u << v))
            return (flag)k;
    return f;
}

static ln_status take_flag(args *a, int argc, char **argv, int *at, ln_error *err) {
    const char *word = argv[*at], *equals = strchr(word, '=');
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    flag f = flag_of_verb(flag_find(word, n), a->verb);
    if (f == F_COUNT || !(flag_rows[f].verbs & 1u << a->verb)) return unknown_flag(a->verb, word, f, err);
    if (flag_rows[f].kind == SWITCH) {
        if (equals) return switch_with_value(f, equals + 1, err);
        a->flag[f].set = true;
        return LN_OK;
    }
    if (equals) return flag_take(a, f, equals + 1, err);
    if (*at + 1 >= argc)
        return ln_fail(err, LN_EUSAGE, "%s needs a value: %s", flag_rows[f].name, flag_rows[f].value);
    if (looks_like_flag(argv[*at + 1])) {
        char shown[80];
        return ln_fail(err, LN_EUSAGE,
                       "%s needs a value (%s), found the flag '%s'; if it is meant, write %s=VALUE",
                       flag_rows[f].name, flag_rows[f].value,
                       ln_excerpt(shown, argv[*at + 1], strnlen(argv[*at + 1], 200)), flag_rows[f].name);
    }
    return flag_take(a, f, argv[++*at], err);
}

/* Reports an argument that is neither MODEL nor a text that the verb reads. */
static ln_status unexpected(const args *a, const char *word, ln_error *err) {
    char shown[80], model[80];
    (void)ln_excerpt(shown, word, strnlen(word, 200));
    if (a->verb == VERB_CHAT)
        return ln_fail(err, LN_EUSAGE,
                       "unexpected argument '%s': chat takes no text; for one answer: linnet run %s \"%s\"",
                       shown, ln_excerpt(model, a->model, strnlen(a->model, 200)), shown);
    if (has(a, F_MODEL))
        return ln_fail(err, LN_EUSAGE, "unexpected argument '%s'; MODEL is what --model gives", shown);
    return ln_fail(err, LN_EUSAGE, "unexpected argument '%s'; a text of several words goes in quotes", shown);
}

/* Assigns the n positional arguments: MODEL, unless --model gave it, then a text or the name of a file. */
static ln_status take_words(args *a, const char *const *words, size_t n, ln_error *err) {
    bool prompted = takes_prompt(a->verb), filed = takes_file(a->verb);
    if (has(a, F_MODEL)) a->model = a->flag[F_MODEL].text;
    for (size_t i = 0; i < n; i++) {
        bool stream = (prompted || filed) && strcmp(words[i], "-") == 0; /* "-" is never a model */
        if (verb_rows[a->verb].takes != NOTHING && !a->model && !stream) a->model = words[i];
        else if (a->verb == VERB_PLOT && a->n_runs < LN_COUNT(a->runs)) a->runs[a->n_runs++] = words[i];
        else if (prompted && !a->argument) a->argument = without_mark(words[i]);
        else if ((filed || a->verb == VERB_FUSE) && !a->argument) a->argument = words[i];
        else return unexpected(a, words[i], err);
    }
    return LN_OK;
}

ln_status args_parse(args *a, verb v, int argc, char **argv, ln_error *err) {
    enum { MOST_WORDS = LN_COUNT(((args *)0)->runs) + 1 }; /* one more than any verb accepts */
    const char *words[MOST_WORDS];
    size_t n_words = 0;
    *a = (args){.verb = v};
    bool flags = true;
    for (int at = 0; at < argc; at++) {
        const char *word = argv[at];
        if (flags && strcmp(word, "--") == 0) flags = false;
        else if (flags && looks_like_flag(word)) LN_TRY(take_flag(a, argc, argv, &at, err));
        else if (n_words < MOST_WORDS) words[n_words++] = word;
        if (has(a, F_HELP)) return LN_OK;
    }
    LN_TRY(args_config(a, err));
    LN_TRY(take_words(a, words, n_words, err));
    return args_check(a, err);
}

void args_free(args *a) {
    ln_free(a->bias);
    ln_free(a->stop_ids);
    for (size_t i = 0; i < a->n_overrides; i++)
        ln_free((char *)(uintptr_t)a->overrides[i].name); /* copies that read_keep allocated */
    ln_free(a->overrides);
    for (size_t i = 0; i < a->n_mix; i++) ln_free((char *)(uintptr_t)a->mix[i].path);
    ln_free(a->mix);
    adapters_free(a);
    ln_arena_free(&a->texts);
    *a = (args){0};
}
