/* Suggestions for unknown names: the nearest known name, and names that other tools use.
 *
 * A suggestion is at most two edits away from the typed name, and fewer for short words, because two edits
 * turn any short word into any other. */
#include "../base/dir_names.h"
#include "../base/file.h"
#include "flags.h"

#include <stdio.h>
#include <string.h>

enum { MOST_LETTERS = 40, MOST_EDITS = 2 };

/* The edit distance from a to b (insertions, deletions, replacements, swaps of neighbours); very long
 * names are not near anything. */
static int distance(const char *a, const char *b) {
    int d[3][MOST_LETTERS + 1];
    size_t n = strlen(a), m = strlen(b);
    if (n > MOST_LETTERS || m > MOST_LETTERS) return 1000;
    for (size_t j = 0; j <= m; j++) d[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int *now = d[i % 3], *up = d[(i + 2) % 3], *two = d[(i + 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            now[j] = LN_MIN(LN_MIN(up[j] + 1, now[j - 1] + 1), up[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = LN_MIN(now[j], two[j - 2] + 1);
        }
    }
    return d[n % 3][m];
}

/* The largest edit distance of a suggestion: none for one letter, one up to three letters, then two.
 * Leading dashes and slashes do not count. */
static int edits_allowed(const char *typed) {
    size_t n = strlen(typed + strspn(typed, "-/"));
    return n < 2 ? 0 : n < 4 ? 1 : MOST_EDITS;
}

/* Keeps the nearest of the names that nearer() sees. */
typedef struct search {
    const char *typed, *best;
    int least; /* distance of the best name, or one more than the largest allowed distance */
} search;

static search search_for(const char *typed) {
    return (search){.typed = typed, .least = edits_allowed(typed) + 1};
}

static bool nearer(search *s, const char *known) {
    int far = distance(s->typed, known);
    if (far >= s->least) return false;
    s->least = far;
    s->best = known;
    return true;
}

const char *name_nearest(const char *typed, const char *const *known, size_t n) {
    search s = search_for(typed);
    for (size_t i = 0; i < n; i++) (void)nearer(&s, known[i]);
    return s.best;
}

const char *verb_nearest(const char *name) {
    const char *names[VERB_COUNT];
    for (int v = 0; v < VERB_COUNT; v++) names[v] = verb_rows[v].name;
    return name_nearest(name, names, VERB_COUNT);
}

/* ---- the nearest path ---- */

/* The beginning of a path whose last component is the first that does not exist; its length. */
static size_t first_absent(const char *path) {
    char head[4096];
    for (size_t n = strspn(path, "/"); path[n]; n += strspn(path + n, "/")) {
        n += strcspn(path + n, "/");
        if (snprintf(head, sizeof head, "%.*s", (int)n, path) >= (int)sizeof head) return 0;
        if (!ln_exists(head)) return n;
    }
    return 0;
}

bool path_nearest(char *out, size_t cap, const char *typed) {
    const size_t n = first_absent(typed);
    size_t from = n;
    char folder[4096], word[MOST_LETTERS + 1];
    ln_names names;
    while (from > 0 && typed[from - 1] != '/') from--;
    if (n == 0 || n - from >= sizeof word || from >= sizeof folder) return false;
    (void)snprintf(folder, sizeof folder, "%.*s", (int)from, typed);
    (void)snprintf(word, sizeof word, "%.*s", (int)(n - from), typed + from);
    if (ln_names_read(&names, from ? folder : ".", NULL) != LN_OK) return false;
    search s = search_for(word);
    for (size_t i = 0; i < names.n; i++) (void)nearer(&s, names.items[i]);
    if (from == 0 && !typed[n] && strcmp(word, "tiny") != 0) (void)nearer(&s, "tiny");
    const bool found = s.best && snprintf(out, cap, "%s%s%s", folder, s.best, typed + n) < (int)cap &&
                       (strcmp(out, "tiny") == 0 || ln_exists(out));
    ln_names_free(&names);
    return found;
}

/* ---- other tools' names ---- */

static const struct {
    flag f; /* F_COUNT: rejected with advice */
    const char *names, *advice;
} others[] = {
#define SAME(id, spellings)   {F_##id, spellings, NULL},
#define ELSE(spellings, text) {F_COUNT, spellings, text},
#define OTHER_VERB(words, text)
#include "others.def"
#undef SAME
#undef ELSE
#undef OTHER_VERB
};

static const struct {
    const char *names, *advice;
} other_verbs[] = {
#define SAME(id, spellings)
#define ELSE(spellings, text)
#define OTHER_VERB(words, text) {words, text},
#include "others.def"
#undef SAME
#undef ELSE
#undef OTHER_VERB
};

/* Whether the first n bytes of `word` are one of the names, which are separated by blanks. */
static bool among(const char *names, const char *word, size_t n) {
    while (*names) {
        size_t len = strcspn(names, " ");
        if (len == n && memcmp(names, word, n) == 0) return true;
        names += len + (names[len] == ' ');
    }
    return false;
}

flag flag_elsewhere(const char *word, size_t n) {
    for (size_t i = 0; i < LN_COUNT(others); i++)
        if (others[i].f != F_COUNT && among(others[i].names, word, n)) return others[i].f;
    return F_COUNT;
}

const char *flag_advice(const char *word, size_t n) {
    for (size_t i = 0; i < LN_COUNT(others); i++)
        if (others[i].f == F_COUNT && among(others[i].names, word, n)) return others[i].advice;
    return NULL;
}

const char *verb_advice(const char *word) {
    for (size_t i = 0; i < LN_COUNT(other_verbs); i++)
        if (among(other_verbs[i].names, word, strlen(word))) return other_verbs[i].advice;
    return NULL;
}

const char *flag_other_names(flag f) {
    for (size_t i = 0; i < LN_COUNT(others); i++)
        if (others[i].f == f) return others[i].names;
    return NULL;
}

/* ---- the nearest flag ---- */

/* Lists the long flags of a verb that begin with what was typed, separated by commas; false when there is
 * none. */
static bool beginnings(char *out, size_t cap, verb v, const char *typed) {
    size_t n = strlen(typed), len = 0;
    if (n < 3) return false;
    for (int f = 0; f < F_COUNT && len < cap; f++)
        if ((flag_rows[f].verbs & 1u << v) && strncmp(flag_rows[f].name, typed, n) == 0)
            len += (size_t)snprintf(out + len, cap - len, "%s%s", len ? ", " : "", flag_rows[f].name);
    return len > 0 && len < cap;
}

/* Also considers the other spellings of a flag; the suggestion then names the flag too. */
static void nearest_spelling(search *s, flag f, char *spelling, size_t cap) {
    const char *names = flag_other_names(f);
    char name[MOST_LETTERS + 1];
    while (names && *names) {
        size_t len = strcspn(names, " ");
        if (len < sizeof name) {
            (void)snprintf(name, sizeof name, "%.*s", (int)len, names);
            if (nearer(s, name)) {
                (void)snprintf(spelling, cap, "%s (that is %s)", name, flag_rows[f].name);
                s->best = spelling;
            }
        }
        names += len + (names[len] == ' ');
    }
}

bool flag_suggest(char *out, size_t cap, verb v, const char *typed) {
    char plain[MOST_LETTERS + 2], spelling[2 * MOST_LETTERS + 32], list[200];
    (void)snprintf(plain, sizeof plain, "%s", typed);
    for (char *c = plain; *c; c++)
        if (*c == '_') *c = '-'; /* Python's spelling of option names */
    search s = search_for(plain);
    for (int f = 0; f < F_COUNT; f++) {
        if (!(flag_rows[f].verbs & 1u << v)) continue;
        (void)nearer(&s, flag_rows[f].name);
        nearest_spelling(&s, (flag)f, spelling, sizeof spelling);
    }
    if (s.best) (void)snprintf(out, cap, "the nearest is %s", s.best);
    else if (beginnings(list, sizeof list, v, plain))
        (void)snprintf(out, cap, "flags are not abbreviated: %s", list);
    else return false;
    return true;
}
