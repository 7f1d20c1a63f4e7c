/* The command line: one table, read three ways - to parse, to explain, to guess what was meant.
 *
 * Everything is strict: numbers are the whole text, a flag is given once, abbreviations are refused, and a value that looks like a
 * flag is refused unless it is joined by '='. What is refused is refused before a file is opened. */
#include "cli.h"

#include <stdio.h>
#include <string.h>

typedef enum kind { SWITCH, TEXT, COUNT, SIZE, BYTES, REAL, SEED, CHOICE, TEXTS, BIASES } kind;

#define ON(v) (1u << VERB_##v)
#define GENERATES (ON(RUN) | ON(PLAN)) /* plan takes a run's whole line: exchange the verb and see what it would take */
#define PROMPTED (GENERATES | ON(SCORE) | ON(ATTENTION) | ON(TOKENIZE))
#define LOADS (GENERATES | ON(SCORE) | ON(ATTENTION))
#define EVERYWHERE 0xffffu

typedef struct row {
    const char *name;
    char letter;
    kind kind;
    unsigned verbs;
    const char *value;
    double lo, hi;
    const char *help;
} row;

static const row rows[F_COUNT] = {
#define FLAG(id, name, letter, kind, verbs, value, lo, hi, help) {name, letter, kind, verbs, value, (double)(lo), (double)(hi), help},
#include "flags.def"
#undef FLAG
};

typedef struct verb_row {
    const char *name, *form, *what, *more;
} verb_row;

static const verb_row verbs[VERB_COUNT] = {
    {"run", "run [MODEL] [PROMPT]", "generates text after a prompt",
     "MODEL is a Hugging Face directory, a cache id (org/name[@rev]) or tiny, the bundled model, which is also the default.\n"
     "The prompt comes from PROMPT, -p, -f, --ids, - or piped stdin; one newline at the end of a file or of stdin is dropped.\n"
     "A directory with a chat template is an instruct model and gets its template; any other continues the text.\n"
     "\n"
     "  linnet run tiny \"Tell me a short story.\"\n"
     "  linnet run ./Qwen3-0.6B -p \"Why is the sky blue?\" -n 200 --temp 0\n"
     "  echo \"Once upon a time\" | linnet run ./model --raw --json\n"},
    {"score", "score MODEL [TEXT]", "log-probabilities of a text, and its logits",
     "The text is taken as it is: no template. --json: {\"ids\",\"logprobs\",\"sum_logprob\",\"perplexity\",\"top\",\"metrics\"}; logprobs[t] is that of\n"
     "token t given those before it (null for the first), top[t] holds the likeliest tokens at t + 1.\n"
     "\n"
     "  linnet score tiny \"The capital of France is Paris.\"\n"
     "  linnet score ./model --ids 1,2,3 --json --top 5 --logits logits.safetensors\n"},
    {"attention", "attention MODEL [TEXT] -o FILE", "the keys of every layer after RoPE",
     "Writes a safetensors file with a tensor keys.LAYER, f32 [kv heads, tokens, head width], for each layer.\n"
     "\n"
     "  linnet attention ./model --ids @ids.txt -o keys.safetensors\n"},
    {"tokenize", "tokenize MODEL [TEXT]", "text to token ids, and back",
     "Text from TEXT, -p, -f or stdin gives {\"ids\"}; --ids gives {\"text\"}; --jsonl does either, a line at a time. The text is taken as it\n"
     "is. Needs the tokenizer's files only.\n"
     "\n"
     "  printf 'Hello world' | linnet tokenize ./model\n"
     "  linnet tokenize ./model --jsonl < texts.jsonl\n"},
    {"show", "show MODEL", "what a model is", "\n  linnet show tiny --json\n"},
    {"ls", "ls [DIR]", "the models that are here", "Without DIR: the Hugging Face cache and the bundled model.\n"},
    {"plan", "plan MODEL [PROMPT]", "the memory that a run would take, before it is taken",
     "Takes the flags of run: exchange the verb and see.\n\n  linnet plan ./model --ctx 32k --numerics fast\n"},
    {"doctor", "doctor", "what this machine has, and which kernels run on it", ""},
};

const char *verb_name(verb v) { return verbs[v].name; }

verb verb_named(const char *name) {
    for (int v = 0; v < VERB_COUNT; v++)
        if (strcmp(verbs[v].name, name) == 0) return (verb)v;
    return VERB_COUNT;
}

/* ---- nearest names ---- */

/* Edits (insert, delete, replace, swap neighbours) that lead from a to b; names longer than 40 are not near anything. */
static int distance(const char *a, const char *b) {
    enum { MOST = 40 };
    int d[3][MOST + 1];
    size_t n = strlen(a), m = strlen(b);
    if (n > MOST || m > MOST) return 1000;
    for (size_t j = 0; j <= m; j++) d[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int *now = d[i % 3], *up = d[(i + 2) % 3], *two = d[(i + 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            now[j] = LN_MIN(LN_MIN(up[j] + 1, now[j - 1] + 1), up[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = LN_MIN(now[j], two[j - 2] + 1);
        }
    }
    return d[n % 3][m];
}

/* How far `known` is from what was typed; the beginning of a name is near to it. */
static int farness(const char *typed, const char *known) {
    int far = distance(typed, known);
    size_t n = strlen(typed);
    return n >= 3 && strncmp(typed, known, n) == 0 ? LN_MIN(far, 1) : far;
}

static const char *flag_nearest(verb v, const char *typed) {
    const char *best = NULL;
    int least = LN_MAX(2, (int)(strnlen(typed, 64) / 2));
    for (int f = 0; f < F_COUNT; f++) {
        if (!(rows[f].verbs & 1u << v)) continue;
        int far = farness(typed, rows[f].name);
        if (far > least || (best && far == least)) continue;
        least = far;
        best = rows[f].name;
    }
    return best;
}

const char *verb_nearest(const char *name) {
    const char *best = NULL;
    int least = 3;
    for (int v = 0; v < VERB_COUNT; v++) {
        int far = farness(name, verbs[v].name);
        if (far >= least) continue;
        least = far;
        best = verbs[v].name;
    }
    return best;
}

/* ---- values ---- */

static ln_status bad_value(const row *r, const char *text, const char *expected, ln_error *err) {
    char shown[80];
    return ln_fail(err, LN_EUSAGE, "%s: expected %s, found '%s'", r->name, expected, ln_excerpt(shown, text, strnlen(text, 200)));
}

/* An integer with k, M or (BYTES) G behind it. */
static bool read_scaled(const char *text, bool bytes, int64_t *out) {
    size_t n = strlen(text);
    int64_t v, unit = 1;
    if (n > 1 && (text[n - 1] == 'k' || text[n - 1] == 'K')) unit = 1 << 10;
    if (n > 1 && text[n - 1] == 'M') unit = 1 << 20;
    if (n > 1 && bytes && text[n - 1] == 'G') unit = 1 << 30;
    return ln_parse_i64(text, n - (unit > 1), &v) && !__builtin_mul_overflow(v, unit, out);
}

static ln_status read_integer(const row *r, flag_value *v, ln_error *err) {
    char expected[120];
    bool scaled = r->kind != COUNT;
    bool ok = scaled ? read_scaled(v->text, r->kind == BYTES, &v->i) : ln_parse_i64(v->text, strlen(v->text), &v->i);
    if (ok && (double)v->i >= r->lo && (double)v->i <= r->hi) return LN_OK;
    (void)snprintf(expected, sizeof expected, "an integer from %lld to %lld%s", (long long)r->lo, (long long)r->hi,
                   !scaled ? "" : r->kind == BYTES ? " (k, M and G allowed)" : " (k and M allowed)");
    return bad_value(r, v->text, expected, err);
}

static ln_status read_real(const row *r, flag_value *v, ln_error *err) {
    char expected[80];
    if (ln_parse_f64(v->text, strlen(v->text), &v->f) && v->f >= r->lo && v->f <= r->hi) return LN_OK;
    (void)snprintf(expected, sizeof expected, "a number from %g to %g", r->lo, r->hi);
    return bad_value(r, v->text, expected, err);
}

static ln_status read_seed(const row *r, flag_value *v, ln_error *err) {
    v->random = strcmp(v->text, "-1") == 0 || strcmp(v->text, "random") == 0;
    if (v->random || ln_parse_u64(v->text, strlen(v->text), &v->u)) return LN_OK;
    return bad_value(r, v->text, "an integer from 0 to 2^64 - 1, -1 or random", err);
}

/* The words of a CHOICE stand in its VALUE, separated by bars. */
static ln_status read_choice(const row *r, flag_value *v, ln_error *err) {
    size_t n = strlen(v->text);
    v->i = 0;
    for (const char *word = r->value; *word; v->i++) {
        size_t len = strcspn(word, "|");
        if (len == n && memcmp(word, v->text, n) == 0) return LN_OK;
        word += len + (word[len] == '|');
    }
    return bad_value(r, v->text, r->value, err);
}

static ln_status read_bias(args *a, const row *r, const char *text, ln_error *err) {
    const char *equals = strchr(text, '=');
    int64_t id;
    double value;
    if (!equals || !ln_parse_i64(text, (size_t)(equals - text), &id) || id < 0 || id > INT32_MAX ||
        !ln_parse_f64(equals + 1, strlen(equals + 1), &value) || value < -1e30 || value > 1e30)
        return bad_value(r, text, "ID=V, a token id and a number", err);
    void *p = a->bias;
    LN_TRY(ln_grow(&p, &a->cap_bias, a->n_bias + 1, sizeof *a->bias, err));
    a->bias = p;
    a->bias[a->n_bias++] = (ln_logit_bias){(int32_t)id, (float)value};
    return LN_OK;
}

static ln_status take_value(args *a, flag f, const char *text, ln_error *err) {
    const row *r = &rows[f];
    flag_value *v = &a->flag[f];
    v->set = true;
    v->text = text;
    switch (r->kind) {
    case COUNT:
    case SIZE:
    case BYTES: return read_integer(r, v, err);
    case REAL: return read_real(r, v, err);
    case SEED: return read_seed(r, v, err);
    case CHOICE: return read_choice(r, v, err);
    case BIASES: return read_bias(a, r, text, err);
    case TEXTS:
        if (a->n_stops == MAX_STOPS) return ln_fail(err, LN_EUSAGE, "%s: at most %d times", r->name, MAX_STOPS);
        a->stops[a->n_stops++] = text;
        return LN_OK;
    default: return LN_OK;
    }
}

/* ---- arguments ---- */

static bool repeats(flag f) { return rows[f].kind == TEXTS || rows[f].kind == BIASES; }

/* The flag spelt by the first n bytes of `word`; F_COUNT when there is none. */
static flag find_flag(const char *word, size_t n) {
    for (int f = 0; f < F_COUNT; f++) {
        if (strlen(rows[f].name) == n && memcmp(rows[f].name, word, n) == 0) return (flag)f;
        if (n == 2 && word[0] == '-' && rows[f].letter && word[1] == rows[f].letter) return (flag)f;
    }
    return F_COUNT;
}

static ln_status unknown_flag(verb v, const char *word, flag f, ln_error *err) {
    char shown[80], typed[64];
    size_t n = strcspn(word, "=");
    (void)ln_excerpt(shown, word, LN_MIN(n, (size_t)200));
    if (f != F_COUNT) {
        for (int other = 0; other < VERB_COUNT; other++)
            if (rows[f].verbs & 1u << other)
                return ln_fail(err, LN_EUSAGE, "%s is no flag of %s; it belongs to %s", shown, verbs[v].name, verbs[other].name);
    }
    (void)snprintf(typed, sizeof typed, "%.*s", (int)LN_MIN(n, sizeof typed - 1), word);
    const char *near = flag_nearest(v, typed);
    if (near) return ln_fail(err, LN_EUSAGE, "unknown flag %s; the nearest is %s", shown, near);
    return ln_fail(err, LN_EUSAGE, "unknown flag %s", shown);
}

/* Does a separate argument look like a flag rather than like this flag's value? Numbers may be negative, "-" is stdin. */
static bool looks_like_flag(const char *text) { return text[0] == '-' && text[1] != '\0' && !(text[1] >= '0' && text[1] <= '9') && text[1] != '.'; }

static ln_status take_flag(args *a, int argc, char **argv, int *at, ln_error *err) {
    const char *word = argv[*at], *equals = strchr(word, '=');
    size_t n = equals ? (size_t)(equals - word) : strlen(word);
    flag f = find_flag(word, n);
    if (f == F_COUNT || !(rows[f].verbs & 1u << a->verb)) return unknown_flag(a->verb, word, f, err);
    if (a->flag[f].set && !repeats(f)) return ln_fail(err, LN_EUSAGE, "%s is given twice", rows[f].name);
    if (rows[f].kind == SWITCH) {
        if (equals) return ln_fail(err, LN_EUSAGE, "%s takes no value", rows[f].name);
        a->flag[f].set = true;
        return LN_OK;
    }
    if (equals) return take_value(a, f, equals + 1, err);
    if (*at + 1 >= argc) return ln_fail(err, LN_EUSAGE, "%s needs a value: %s", rows[f].name, rows[f].value);
    if (looks_like_flag(argv[*at + 1])) {
        char shown[80];
        return ln_fail(err, LN_EUSAGE, "%s needs a value (%s), found the flag '%s'; if it is meant, write %s=VALUE", rows[f].name, rows[f].value,
                       ln_excerpt(shown, argv[*at + 1], strnlen(argv[*at + 1], 200)), rows[f].name);
    }
    return take_value(a, f, argv[++*at], err);
}

static ln_status take_positional(args *a, const char *word, ln_error *err) {
    char shown[80];
    bool prompted = 1u << a->verb & PROMPTED;
    bool stream = prompted && strcmp(word, "-") == 0; /* never a model */
    if (a->verb != VERB_DOCTOR && !a->model && !stream) a->model = word;
    else if (prompted && !a->argument) a->argument = word;
    else return ln_fail(err, LN_EUSAGE, "unexpected argument '%s'; a text of several words goes in quotes", ln_excerpt(shown, word, strnlen(word, 200)));
    return LN_OK;
}

/* Pairs that contradict each other. */
static ln_status check_pairs(const args *a, ln_error *err) {
    static const flag pairs[][2] = {
        {F_IDS, F_PROMPT}, {F_IDS, F_FILE}, {F_IDS, F_SYSTEM}, {F_IDS, F_CHAT}, {F_PROMPT, F_FILE}, {F_RAW, F_CHAT}, {F_RAW, F_SYSTEM},
        {F_JSONL, F_IDS}, {F_JSONL, F_PROMPT}, {F_JSONL, F_FILE}};
    for (size_t i = 0; i < LN_COUNT(pairs); i++)
        if (has(a, pairs[i][0]) && has(a, pairs[i][1]))
            return ln_fail(err, LN_EUSAGE, "%s and %s contradict each other; give one", rows[pairs[i][0]].name, rows[pairs[i][1]].name);
    static const flag with_argument[] = {F_PROMPT, F_FILE, F_IDS, F_JSONL};
    for (size_t i = 0; a->argument && i < LN_COUNT(with_argument); i++)
        if (has(a, with_argument[i])) return ln_fail(err, LN_EUSAGE, "%s and a text as argument contradict each other; give one", rows[with_argument[i]].name);
    if (has(a, F_FORCE) && !has(a, F_LOGITS) && !has(a, F_OUTPUT)) return ln_fail(err, LN_EUSAGE, "--force without a file to write");
    return LN_OK;
}

ln_status args_parse(args *a, verb v, int argc, char **argv, ln_error *err) {
    *a = (args){.verb = v};
    bool flags = true;
    for (int at = 0; at < argc; at++) {
        const char *word = argv[at];
        if (flags && strcmp(word, "--") == 0) flags = false;
        else if (flags && word[0] == '-' && word[1] != '\0') LN_TRY(take_flag(a, argc, argv, &at, err));
        else LN_TRY(take_positional(a, word, err));
        if (has(a, F_HELP)) return LN_OK;
    }
    LN_TRY(check_pairs(a, err));
    if (!a->model && v != VERB_RUN && v != VERB_LS && v != VERB_DOCTOR)
        return ln_fail(err, LN_EUSAGE, "%s needs a MODEL: a directory, a cache id (org/name) or tiny", verbs[v].name);
    if (v == VERB_ATTENTION && !has(a, F_OUTPUT)) return ln_fail(err, LN_EUSAGE, "attention needs -o FILE");
    return LN_OK;
}

void args_free(args *a) {
    ln_free(a->bias);
    *a = (args){0};
}

/* ---- help ---- */

static void flag_lines(ln_str *s, verb v) {
    for (int f = 0; f < F_COUNT; f++) {
        const row *r = &rows[f];
        if (!(r->verbs & 1u << v)) continue;
        char left[64];
        if (r->letter) (void)snprintf(left, sizeof left, "-%c, %s %s", r->letter, r->name, r->value);
        else (void)snprintf(left, sizeof left, "    %s %s", r->name, r->value);
        ln_str_addf(s, "  %-28s %s\n", left, r->help);
    }
}

void help_page(ln_str *s, verb v) {
    if (v != VERB_COUNT) {
        ln_str_addf(s, "usage: linnet %s [flags]\n\n%c%s.\n%s\nflags:\n", verbs[v].form, verbs[v].what[0] - 'a' + 'A', verbs[v].what + 1, verbs[v].more);
        flag_lines(s, v);
        return;
    }
    ln_str_addf(s, "linnet %s: language models in Hugging Face layout\n\nusage: linnet VERB [MODEL] [ARGUMENT] [flags]\n\n", ln_version());
    for (int i = 0; i < VERB_COUNT; i++) ln_str_addf(s, "  %-32s %s\n", verbs[i].form, verbs[i].what);
    ln_str_adds(s, "  help [VERB]                      this page, or that of a verb\n"
                   "\nMODEL: a directory, else a cache id org/name[@rev], else tiny, the bundled model.\n"
                   "exit: 0 done, 2 usage, 3 invalid input, 4 not supported, 5 system, 6 memory, 7 device, 8 numbers, 9 file changed,\n"
                   "      70 a defect of linnet, 130 and 143 stopped by a signal\n\n"
                   "  linnet run tiny \"Tell me a short story.\"\n");
}
