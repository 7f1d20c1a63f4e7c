/* Rejects arguments that contradict each other, and verbs that lack what they need. */
#include "flags.h"

#include <string.h>

/* Whether the inputs are lines of a file, and --prompt a template for all of them. */
static bool reads_many(const args *a) { return planned_verb(a) == VERB_CLASSIFY; }
static bool is_source(flag f) { return f == F_PROMPT || f == F_FILE; }

/* Rejects texts if train is planned. */
static ln_status check_train_plan(const args *a, ln_error *err) {
    static const flag texts[] = {F_PROMPT, F_FILE, F_IDS, F_SYSTEM, F_RAW, F_CHAT};
    const bool trains = planned_verb(a) == VERB_TRAIN;
    if (a->verb != VERB_PLAN) return LN_OK;
    for (size_t i = 0; trains && i < LN_COUNT(texts); i++)
        if (has(a, texts[i]) || a->argument)
            return ln_fail(err, LN_EUSAGE, "training has no prompt: %s is not planned with --for train",
                           a->argument ? "a text" : flag_rows[texts[i]].name);
    if (trains && !has(a, F_DATA))
        return ln_fail(err, LN_EUSAGE, "--for train plans for samples: add --data FILE");
    return LN_OK;
}

/* Rejects a flag of plan that the planned verb does not take: it would plan memory that the verb never
 * takes, or have no effect. A verb other than train takes what run does, and --parallel. */
static ln_status check_planned_flags(const args *a, ln_error *err) {
    const verb v = planned_verb(a);
    for (int f = 0; f < F_COUNT; f++) {
        const unsigned takers = flag_rows[f].verbs & ~ON(PLAN);
        if (!has(a, (flag)f) || !takers || takers & 1u << v) continue;
        if (v == VERB_TRAIN)
            return ln_fail(err, LN_EUSAGE, "%s is not a flag of train, the verb that --for names",
                           flag_rows[f].name);
        int taker = 0;
        while (!(takers & 1u << taker)) taker++;
        if (!(takers & ON(RUN)) && f != F_PARALLEL)
            return ln_fail(err, LN_EUSAGE, "%s is a flag of %s; add --for %s", flag_rows[f].name,
                           verb_rows[taker].name, verb_rows[taker].name);
    }
    return LN_OK;
}

/* Rejects what plan does not accept for the planned verb. */
static ln_status check_plan(const args *a, ln_error *err) {
    static const flag texts[] = {F_PROMPT, F_FILE, F_IDS, F_SYSTEM};
    LN_TRY(check_train_plan(a, err));
    if (a->verb == VERB_PLAN) LN_TRY(check_planned_flags(a, err));
    for (size_t i = 0; plans_server(a) && i < LN_COUNT(texts); i++)
        if (has(a, texts[i]) || a->argument)
            return ln_fail(err, LN_EUSAGE,
                           "a server has no prompt of its own: %s is not planned with --for serve",
                           a->argument ? "a text" : flag_rows[texts[i]].name);
    return LN_OK;
}

/* Rejects flags that mean nothing without another one. */
static ln_status check_classes(const args *a, ln_error *err) {
    static const struct {
        flag flag;
        verb verb;
    } own[] = {{F_LABELS, VERB_CLASSIFY}, {F_NEXT_TOKEN, VERB_CLASSIFY}, {F_NORMALIZE, VERB_CLASSIFY},
               {F_JSONL, VERB_CLASSIFY},  {F_WINDOW, VERB_EVAL},         {F_STRIDE, VERB_EVAL}};
    for (size_t i = 0; a->verb == VERB_PLAN && i < LN_COUNT(own); i++)
        if (has(a, own[i].flag) && planned_verb(a) != own[i].verb)
            return ln_fail(err, LN_EUSAGE, "%s is a flag of %s; add --for %s", flag_rows[own[i].flag].name,
                           verb_rows[own[i].verb].name, verb_rows[own[i].verb].name);
    if (!reads_many(a)) return LN_OK;
    static const flag draws[] = {F_TEMP, F_TOP_K, F_TOP_P, F_MIN_P, F_SEED};
    for (size_t i = 0; has(a, F_LABELS) && i < LN_COUNT(draws); i++)
        if (has(a, draws[i]))
            return ln_fail(err, LN_EUSAGE,
                           "%s chooses a token and belongs to --next-token; labels are compared",
                           flag_rows[draws[i]].name);
    if (has(a, F_PROMPT) && !strstr(a->flag[F_PROMPT].text, "{text}"))
        return ln_fail(err, LN_EUSAGE,
                       "--prompt: expected a template with {text} in place of the input, found '%s'",
                       a->flag[F_PROMPT].text);
    return LN_OK;
}

/* Rejects pairs of flags that contradict each other. */
static ln_status check_pairs(const args *a, ln_error *err) {
    static const flag pairs[][2] = {{F_IDS, F_PROMPT},          {F_IDS, F_FILE},
                                    {F_IDS, F_SYSTEM},          {F_IDS, F_CHAT},
                                    {F_PROMPT, F_FILE},         {F_RAW, F_CHAT},
                                    {F_RAW, F_SYSTEM},          {F_THINK, F_NO_THINK},
                                    {F_RAW, F_THINK},           {F_RAW, F_NO_THINK},
                                    {F_RAW, F_THINK_BUDGET},    {F_IDS, F_THINK_BUDGET},
                                    {F_IDS, F_THINK},           {F_IDS, F_NO_THINK},
                                    {F_THINK, F_TEMPLATE_ARGS}, {F_NO_THINK, F_TEMPLATE_ARGS},
                                    {F_RAW, F_CHAT_TEMPLATE},   {F_RAW, F_TEMPLATE_ARGS},
                                    {F_IDS, F_CHAT_TEMPLATE},   {F_IDS, F_TEMPLATE_ARGS},
                                    {F_JSONL, F_IDS},           {F_JSONL, F_PROMPT},
                                    {F_STATS, F_NO_STATS},      {F_LABELS, F_NEXT_TOKEN},
                                    {F_JSON_SCHEMA, F_GRAMMAR}, {F_NORMALIZE, F_NEXT_TOKEN},
                                    {F_EPOCHS, F_STEPS},        {F_VALID, F_VALID_SPLIT}};
    for (size_t i = 0; i < LN_COUNT(pairs); i++)
        if (has(a, pairs[i][0]) && has(a, pairs[i][1]) && !(reads_many(a) && is_source(pairs[i][1])))
            return ln_fail(err, LN_EUSAGE, "%s and %s contradict each other; give one",
                           flag_rows[pairs[i][0]].name, flag_rows[pairs[i][1]].name);
    static const flag with_argument[] = {F_FILE, F_IDS, F_PROMPT, F_JSONL};
    for (size_t i = 0; a->argument && i < (reads_many(a) ? 2 : LN_COUNT(with_argument)); i++)
        if (has(a, with_argument[i]) && !(with_argument[i] == F_JSONL && strcmp(a->argument, "-") == 0))
            return ln_fail(err, LN_EUSAGE, "%s and %s as argument contradict each other; give one",
                           flag_rows[with_argument[i]].name, takes_file(a->verb) ? "a file" : "a text");
    if (has(a, F_FORCE) && !has(a, F_LOGITS) && !has(a, F_OUTPUT) && !has(a, F_SAVE_KV) &&
        a->verb != VERB_CHAT)
        return ln_fail(err, LN_EUSAGE, "--force without a file to write");
    return LN_OK;
}

/* Results that are files or directories get their name when they are complete, so stdout cannot take them. */
static ln_status check_outputs(const args *a, ln_error *err) {
    static const flag written[] = {F_OUTPUT, F_LOGITS, F_SAVE_KV};
    for (size_t i = 0; i < LN_COUNT(written); i++)
        if (has(a, written[i]) && strcmp(a->flag[written[i]].text, "-") == 0)
            return ln_fail(err, LN_EUSAGE,
                           "%s: expected the name of what to write, found '-', which is not stdout",
                           flag_rows[written[i]].name);
    return LN_OK;
}

bool other_backend(const args *a) {
    return has(a, F_BACKEND) && strcmp(a->flag[F_BACKEND].text, "native") != 0;
}

static ln_status check_backend_name(const char *name, ln_error *err) {
    char shown[80];
    if (ln_backend_get(name)) return LN_OK;
    return ln_fail(err, LN_EUSAGE,
                   "--backend: expected native or mlx_lm, found '%s'; linnet doctor lists them",
                   ln_excerpt(shown, name, strnlen(name, 200)));
}

/* Rejects an unknown backend, and flags that it does not honour. */
static ln_status check_backend(const args *a, ln_error *err) {
    static const flag native[] = {F_NUMERICS, F_DEVICE,    F_THREADS,      F_MEMORY,
                                  F_PARALLEL, F_KV_MEMORY, F_KV_TYPE,      F_MLOCK,
                                  F_LOAD_KV,  F_SAVE_KV,   F_SKIP_UNKNOWN, F_QUANTIZE,
                                  F_CEILING,  F_STREAMS,   F_THINK_BUDGET, F_CHAT_TEMPLATE};
    if (has(a, F_BACKEND)) LN_TRY(check_backend_name(a->flag[F_BACKEND].text, err));
    if (!other_backend(a)) {
        if (has(a, F_PYTHON) && a->verb != VERB_DOCTOR)
            return ln_fail(err, LN_EUSAGE, "--python is the interpreter of --backend mlx_lm; give both");
        return LN_OK;
    }
    for (size_t i = 0; i < LN_COUNT(native); i++)
        if (has(a, native[i]))
            return ln_fail(err, LN_EUSAGE,
                           "%s is a flag of the native engine, which --backend %s does not have; leave it "
                           "out",
                           flag_rows[native[i]].name, a->flag[F_BACKEND].text);
    return LN_OK;
}

/* Rejects a verb that lacks what it needs. */
static ln_status check_needs(args *a, ln_error *err) {
    if (!a->model && verb_rows[a->verb].takes == MODEL && !(a->verb == VERB_SHOW && has(a, F_ADAPTER)))
        return ln_fail(err, LN_EUSAGE, "%s needs a MODEL: a directory, a cache id (org/name) or tiny",
                       verb_rows[a->verb].name);
    if (a->verb == VERB_ATTENTION && !has(a, F_OUTPUT))
        return ln_fail(err, LN_EUSAGE, "attention needs -o FILE");
    if (a->verb == VERB_PLOT && (a->n_runs == 0 || !has(a, F_OUTPUT)))
        return ln_fail(err, LN_EUSAGE,
                       "plot needs the directories of runs, and the chart's file: linnet plot RUN... -o "
                       "FILE.svg");
    if ((a->verb == VERB_QUANTIZE || a->verb == VERB_CONVERT || a->verb == VERB_INIT) && !has(a, F_OUTPUT))
        return ln_fail(err, LN_EUSAGE, "%s needs -o DIR", verb_rows[a->verb].name);
    if (a->verb == VERB_TRAIN && (!has(a, F_DATA) || (!has(a, F_OUTPUT) && !has(a, F_DRY_RUN))))
        return ln_fail(err, LN_EUSAGE,
                       "train needs samples and a directory to write: linnet train MODEL --data FILE -o DIR");
    if (has(a, F_SHOW_SAMPLES) && !has(a, F_DRY_RUN))
        return ln_fail(err, LN_EUSAGE, "--show is for --dry-run, which trains nothing; give both");
    if (a->verb == VERB_FUSE && (!a->argument || !has(a, F_OUTPUT)))
        return ln_fail(err, LN_EUSAGE,
                       "fuse needs an adapter and a directory to write: linnet fuse MODEL ADAPTER -o DIR");
    if (a->verb == VERB_FUSE) LN_TRY(adapter_add(a, a->argument, err));
    if ((a->verb == VERB_FUSE || a->verb == VERB_CONVERT) && has(a, F_GROUP) && !has(a, F_BITS))
        return ln_fail(err, LN_EUSAGE, "--group is of quantised weights; add --bits");
    if (a->verb == VERB_CLASSIFY && !has(a, F_LABELS) && !has(a, F_NEXT_TOKEN))
        return ln_fail(err, LN_EUSAGE, "classify needs --labels A,B,... (or @FILE), or --next-token");
    if (a->verb == VERB_BATCH && (!a->argument || !has(a, F_OUTPUT)))
        return ln_fail(err, LN_EUSAGE,
                       "batch needs a file of requests and one for the answers: linnet batch MODEL "
                       "IN.jsonl -o OUT.jsonl");
    if (a->verb == VERB_BATCH && strcmp(a->argument, "-") == 0)
        return ln_fail(err, LN_EUSAGE,
                       "batch reads its requests twice, and stdin can be read once: save them to a file");
    return LN_OK;
}

ln_status args_check(args *a, ln_error *err) {
    LN_TRY(check_pairs(a, err));
    LN_TRY(check_outputs(a, err));
    LN_TRY(check_classes(a, err));
    LN_TRY(check_backend(a, err));
    LN_TRY(check_plan(a, err));
    return check_needs(a, err);
}
