/* Judges values by grammars, without a model: tools/judge_schemas.py feeds it suites of schemas.
 *
 * usage: form_judge < LINES      each line is {"form": FORM, "values": [VALUE, ...], "walks": N}
 *
 * A VALUE is a scalar as its JSON text, ["[", VALUE, ...] or ["{", NAME, VALUE, ...]. The properties of an
 * object are tried in any order, since a grammar has one.
 *
 * Prints a line of JSON for each line: {"error": MESSAGE, "compile_ms": F} if the grammar is rejected, else
 * {"compile_ms": F, "bytes": N, "values": [...], "walks": [...]}: for each value true, or the text that fits
 * so far in the best order that was tried; and for each of N random walks a complete text of the grammar, or
 * null if none came to an end. A fault while a text is matched is a text as "FAULT: MESSAGE". */
#include "../src/base/json.h"
#include "../src/grammar/states.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_LINE = 64 << 20, MOST_WALK = 3000, HURRY = 300 };

static void die(const ln_error *err) {
    fprintf(stderr, "form_judge: %s\n", err->message);
    exit(1);
}

/* A vocabulary of the 256 bytes. */
static void open_bytes(ln_vocabulary *v) {
    ln_error err;
    *v = (ln_vocabulary){.n_vocab = 256};
    v->at = ln_zalloc(257, sizeof *v->at);
    v->text = ln_alloc(256);
    if (!v->at || !v->text) exit(1);
    for (unsigned i = 0; i < 256; i++) v->text[i] = (char)i, v->at[i + 1] = i + 1;
    if (ln_vocabulary_sort(v, &err) != LN_OK) die(&err);
}

/* ---- values ---- */

enum { MOST_TRIES = 20000, MOST_SHOWN = 100 };
typedef struct judge_reader {
    gr_states s;
    ln_str text, best; /* the bytes so far, and the longest that fit */
    int tries;
} judge_reader;

static uint32_t put(judge_reader *j, uint32_t state, const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes && state != 0; i++) {
        state = gr_step(&j->s, state, (unsigned char)text[i]);
        if (state != 0) ln_str_add(&j->text, text + i, 1);
    }
    if (j->text.len > j->best.len) {
        ln_str_free(&j->best);
        ln_str_add(&j->best, j->text.data, j->text.len);
    }
    return state;
}

static uint32_t put_value(judge_reader *j, uint32_t state, const json_t *v);

/* The members that are not `used`, in the first order that fits; each is a call. */
static uint32_t put_members(judge_reader *j, uint32_t state, const json_t *v, bool *used, size_t left) {
    const size_t n = (json_array_size(v) - 1) / 2, from = j->text.len;
    if (left == 0) return put(j, state, "}", 1);
    for (size_t i = 0; i < n && j->tries < MOST_TRIES; i++) {
        const json_t *name = json_array_get(v, 1 + 2 * i);
        if (used[i]) continue;
        j->tries++;
        uint32_t to = left < n ? put(j, state, ", ", 2) : state;
        to = put(j, to, json_string_value(name), json_string_length(name));
        to = put(j, to, ": ", 2);
        to = put_value(j, to, json_array_get(v, 2 + 2 * i));
        used[i] = true;
        if (to != 0) to = put_members(j, to, v, used, left - 1);
        used[i] = false;
        if (to != 0) return to;
        j->text.len = from;
    }
    return 0;
}

static uint32_t put_value(judge_reader *j, uint32_t state, const json_t *v) {
    if (json_is_string(v)) return put(j, state, json_string_value(v), json_string_length(v));
    const size_t n = json_array_size(v) - 1;
    state = put(j, state, json_string_value(json_array_get(v, 0)), 1);
    if (json_string_value(json_array_get(v, 0))[0] == '{') {
        bool *used = ln_zalloc(n / 2 + 1, sizeof *used);
        if (!used) exit(1);
        state = put_members(j, state, v, used, n / 2);
        ln_free(used);
        return state;
    }
    for (size_t i = 0; i < n && state != 0; i++) {
        if (i > 0) state = put(j, state, ", ", 2);
        state = put_value(j, state, json_array_get(v, 1 + i));
    }
    return put(j, state, "]", 1);
}

static json_t *judge(const ln_grammar *g, const json_t *v) {
    static const gr_limits most = {1 << 20, 1 << 20, 1 << 18, 1 << 22, 1 << 26};
    judge_reader j = {.tries = 0};
    ln_error err;
    uint32_t state;
    if (gr_states_open(&j.s, g, g->root, most, &state, &err) != LN_OK)
        return json_sprintf("FAULT: %s", err.message);
    state = put_value(&j, state, v);
    json_t *out = state != 0 && j.s.states[state].complete ? json_true() : NULL;
    if (j.s.full) out = json_string("FAULT: too many states");
    const size_t n = LN_MIN(j.best.len, MOST_SHOWN);
    if (!out) out = json_sprintf("%.*s", (int)n, j.best.data ? j.best.data + j.best.len - n : "");
    gr_states_close(&j.s);
    ln_str_free(&j.text);
    ln_str_free(&j.best);
    return out ? out : json_string("(no UTF-8)");
}

/* A random text of the grammar. Beyond HURRY bytes it prefers bytes that end strings, lists and itself. */
static json_t *walk(const ln_grammar *g, const ln_vocabulary *v, uint64_t *seed) {
    ln_matcher *m;
    ln_error err;
    ln_str s = {0};
    json_t *out = json_null();
    if (ln_matcher_open(&m, g, v, &err) != LN_OK) return json_sprintf("FAULT: %s", err.message);
    while (s.len < MOST_WALK) {
        const uint64_t *mask;
        int may[256];
        int n = 0, ends = 0;
        bool fits;
        if (ln_matcher_mask(m, &mask, &err) != LN_OK) {
            out = json_sprintf("FAULT: %s", err.message);
            break;
        }
        for (int c = 0; c < 256; c++)
            if (mask[c / 64] >> (c % 64) & 1) may[n++] = c;
        *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        const uint64_t r = *seed >> 33;
        if (ln_matcher_complete(m) && (n == 0 || r % 4 == 0 || s.len > HURRY)) {
            out = json_stringn(s.data ? s.data : "", s.len);
            break;
        }
        if (n == 0) {
            out = json_sprintf("FAULT: dead end after %.*s", (int)s.len, s.data ? s.data : "");
            break;
        }
        int c = may[(r >> 3) % (uint64_t)n];
        if (s.len > HURRY || r % 8 == 0)
            for (int i = 0; i < n; i++)
                if (strchr("\"]}", may[i]) && may[i] && ends++ == 0) c = may[i];
        const char byte = (char)c;
        ln_str_add(&s, &byte, 1);
        if (ln_matcher_take(m, c, &fits, &err) != LN_OK || !fits) {
            out = json_sprintf("FAULT: %s", fits ? err.message : "a byte of the mask does not fit");
            break;
        }
    }
    ln_matcher_close(&m);
    ln_str_free(&s);
    return out ? out : json_string("FAULT: no UTF-8");
}

static double processor_time(void) { /* in seconds */
    struct timespec t;
    return clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t) == 0 ? (double)t.tv_sec + 1e-9 * (double)t.tv_nsec : 0;
}

static json_t *answer(const char *line, size_t bytes, const ln_vocabulary *v) {
    json_t *in = NULL, *values = json_array(), *walks = json_array(), *one;
    ln_grammar *g;
    ln_error err;
    uint64_t seed = 1;
    size_t i;
    if (ln_json_load(&in, "a line", line, bytes, &err) != LN_OK)
        return json_pack("{s:s}", "error", err.message);
    const char *form = json_string_value(json_object_get(in, "form"));
    const double from = processor_time();
    const ln_status st = form ? ln_grammar_open(&g, form, strlen(form), &err) : LN_EINVALID;
    const double ms = (processor_time() - from) * 1e3;
    if (st != LN_OK) {
        json_decref(in);
        json_decref(values);
        json_decref(walks);
        return json_pack("{s:s,s:f}", "error", form ? err.message : "the line has no form", "compile_ms", ms);
    }
    json_array_foreach(json_object_get(in, "values"), i, one) json_array_append_new(values, judge(g, one));
    for (json_int_t k = json_integer_value(json_object_get(in, "walks")); k > 0; k--)
        json_array_append_new(walks, walk(g, v, &seed));
    json_t *out = json_pack("{s:f,s:I,s:o,s:o}", "compile_ms", ms, "bytes", (json_int_t)ln_grammar_bytes(g),
                            "values", values, "walks", walks);
    ln_grammar_close(&g);
    json_decref(in);
    return out;
}

int main(void) {
    ln_vocabulary v;
    char *line = ln_alloc(MOST_LINE);
    if (!line) return 1;
    open_bytes(&v);
    while (fgets(line, MOST_LINE, stdin)) {
        json_t *out = answer(line, strlen(line), &v);
        if (!out || json_dumpf(out, stdout, JSON_COMPACT) != 0) return 1;
        printf("\n");
        fflush(stdout);
        json_decref(out);
    }
    ln_vocabulary_free(&v);
    ln_free(line);
    return 0;
}
