/* The slash commands: one table for execution, help and suggestions. Nothing here reaches the model. */
#include "../flags.h"
#include "chat.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef ln_status command_fn(chat *c, const char *rest, ln_error *err);

/* ---- settings ---- */

/* Stop texts, stop ids and logit biases accumulate; without a value they are cleared. */
static ln_status set_list(chat *c, const args *a, ln_error *err) {
    if (has(a, F_STOP)) {
        if (c->how.n_stop == MAX_STOPS)
            return ln_fail(err, LN_EUSAGE, "stop: at most %d texts; /set stop drops them", MAX_STOPS);
        char *copy = ln_strndup(a->stops[0], strlen(a->stops[0]));
        if (!copy) return LN_OOM(err, "a stop text");
        c->stops[c->how.n_stop++] = copy;
    }
    if (has(a, F_BIAS)) {
        void *p = c->bias;
        if (a->bias[0].id >= c->info.vocab_size)
            return ln_fail(err, LN_EUSAGE, "logit-bias: expected an id from 0 to %lld, found %d",
                           (long long)c->info.vocab_size - 1, a->bias[0].id);
        LN_TRY(ln_grow(&p, &c->cap_bias, c->how.n_bias + 1, sizeof *c->bias, err));
        c->bias = p;
        c->bias[c->how.n_bias++] = a->bias[0];
    }
    if (has(a, F_STOP_ID)) {
        void *p = c->stop_ids;
        if (a->stop_ids[0] >= c->info.vocab_size)
            return ln_fail(err, LN_EUSAGE, "stop-id: expected an id from 0 to %lld, found %d",
                           (long long)c->info.vocab_size - 1, a->stop_ids[0]);
        LN_TRY(ln_grow(&p, &c->cap_stop_ids, c->how.n_stop_ids + 1, sizeof *c->stop_ids, err));
        c->stop_ids = p;
        c->stop_ids[c->how.n_stop_ids++] = a->stop_ids[0];
    }
    c->how.bias = c->bias;
    c->how.stop_ids = c->stop_ids;
    return LN_OK;
}

/* The flag of chat that has this name without its dashes, or one of its other names; F_COUNT: none. */
static flag flag_of_chat(const char *name) {
    for (int f = 0; f < F_COUNT; f++)
        if ((flag_rows[f].verbs & 1u << VERB_CHAT) &&
            strcmp(flag_rows[f].name + strspn(flag_rows[f].name, "-"), name) == 0)
            return (flag)f;
    char word[48];
    (void)snprintf(word, sizeof word, "--%s", name);
    return flag_elsewhere(word, strlen(word));
}

static ln_status unknown_setting(const char *name, ln_error *err) {
    const char *names[F_SEED - F_N + 3] = {"stats", "max-tokens"};
    char shown[80];
    size_t n = 2;
    for (int f = F_N; f <= F_SEED; f++)
        if (flag_rows[f].verbs & 1u << VERB_CHAT)
            names[n++] = flag_rows[f].name + strspn(flag_rows[f].name, "-");
    const char *near = name_nearest(name, names, n);
    (void)ln_excerpt(shown, name, strlen(name));
    return near ? ln_fail(err, LN_EUSAGE, "/set %s: there is no such setting; the nearest is %s", shown, near)
                : ln_fail(err, LN_EUSAGE, "/set %s: there is no such setting; /show lists them", shown);
}

/* Parses "name value" as the flag --name=value of the command line, with the same table. */
static ln_status set_flag(chat *c, const char *name, const char *value, ln_error *err) {
    ln_str word = {0};
    args a = {0};
    bool is_switch = strcmp(name, "ignore-eos") == 0, on = strcmp(value, "on") == 0;
    if (is_switch && !on && strcmp(value, "off") != 0)
        return ln_fail(err, LN_EUSAGE, "ignore-eos: expected on or off");
    if (flag_of_chat(name) == F_COUNT) return unknown_setting(name, err);
    if (!value[0]) return ln_fail(err, LN_EUSAGE, "/set %s needs a value; /show tells what it is now", name);
    if (is_switch) ln_str_adds(&word, "--ignore-eos");
    else ln_str_addf(&word, "--%s=%s", name, value);
    ln_status st = word.failed ? LN_OOM(err, "a setting") : args_parse(&a, VERB_CHAT, 1, &word.data, err);
    bool sampling = false;
    for (int f = F_N; f <= F_SEED; f++) sampling = sampling || has(&a, (flag)f);
    if (st == LN_OK && !sampling)
        st = ln_fail(err, LN_EUSAGE, "%s is decided when the chat begins: linnet chat --%s", name, name);
    if (st == LN_OK && (has(&a, F_STOP) || has(&a, F_STOP_ID) || has(&a, F_BIAS))) {
        st = set_list(c, &a, err);
    } else if (st == LN_OK) {
        sampling_change(&a, &c->how);
        if (is_switch) c->how.ignore_eos = on;
        c->n_again = 0;
    }
    args_free(&a);
    ln_str_free(&word);
    return st;
}

static ln_status set_one(chat *c, const char *name, const char *value, ln_error *err) {
    if (strcmp(name, "stats") == 0) {
        if (strcmp(value, "on") != 0 && strcmp(value, "off") != 0)
            return ln_fail(err, LN_EUSAGE, "stats: expected on or off");
        c->stats = strcmp(value, "on") == 0;
    } else if (!value[0] && strcmp(name, "stop") == 0) {
        while (c->how.n_stop > 0) {
            ln_free(c->stops[--c->how.n_stop]);
            c->stops[c->how.n_stop] = NULL;
        }
    } else if (!value[0] && strcmp(name, "logit-bias") == 0) {
        c->how.n_bias = 0;
    } else if (!value[0] && strcmp(name, "stop-id") == 0) {
        c->how.n_stop_ids = 0;
    } else if (!value[0] && strcmp(name, "think-budget") == 0) {
        c->how.has_think_budget = false;
    } else if (!value[0] && (strcmp(name, "max-tokens") == 0 || strcmp(name, "n") == 0)) {
        c->how.n_max = -1;
    } else {
        return set_flag(c, strcmp(name, "n") == 0 ? "max-tokens" : name, value, err);
    }
    return LN_OK;
}

static ln_status do_set(chat *c, const char *rest, ln_error *err) {
    size_t n = strcspn(rest, " \t=");
    char name[40], shown[80];
    if (n == 0 || n >= sizeof name)
        return ln_fail(err, LN_EUSAGE,
                       "/set NAME VALUE: a flag of linnet help chat without its dashes, like /set temp 0.7");
    memcpy(name, rest, n);
    name[n] = '\0';
    const char *value = rest + n + strspn(rest + n, " \t=");
    LN_TRY(set_one(c, name, value, err));
    say(c, "%s %s", name, value[0] ? ln_excerpt(shown, value, strlen(value)) : "dropped");
    return LN_OK;
}

static ln_status do_system(chat *c, const char *rest, ln_error *err) {
    LN_TRY(talk_system(&c->talk, rest, strlen(rest), err));
    say(c, rest[0] ? "system text set" : "no system text");
    return LN_OK;
}

/* ---- showing ---- */

static void show_messages(const chat *c) {
    for (size_t i = 0; i < c->talk.n; i++) {
        char shown[80];
        const ln_message *m = &c->talk.messages[i];
        say(c, "%-9s %s", m->role, ln_excerpt(shown, m->content, m->content_bytes));
    }
}

static ln_status do_show(chat *c, const char *rest, ln_error *err) {
    const ln_sampling *s = &c->how;
    char path[LN_PATH_TEXT];
    (void)rest, (void)err;
    say(c, "model %s: %s, %s, %s, at most %lld tokens", ln_path_text(path, c->info.path), c->info.model_type,
        c->info.dtype, numerics_name(c->info.numerics), (long long)c->info.n_ctx_max);
    char most[24] = "none";
    if (s->n_max >= 0) (void)snprintf(most, sizeof most, "%lld", (long long)s->n_max);
    say(c, "max-tokens %s, temp %g, top-k %d, top-p %g, min-p %g, seed %s", most, s->temperature, s->top_k,
        s->top_p, s->min_p, s->has_seed ? "given" : "random");
    say(c, "repeat-penalty %g, repeat-last %d, presence-penalty %g, frequency-penalty %g, ignore-eos %s",
        s->repeat_penalty, s->repeat_last, s->presence_penalty, s->frequency_penalty,
        s->ignore_eos ? "on" : "off");
    if (s->has_think_budget) say(c, "think-budget %lld", (long long)s->think_budget);
    for (size_t i = 0; i < s->n_stop; i++) {
        char shown[80];
        say(c, "stop '%s'", ln_excerpt(shown, s->stop[i], strlen(s->stop[i])));
    }
    for (size_t i = 0; i < s->n_stop_ids; i++) say(c, "stop-id %d", s->stop_ids[i]);
    for (size_t i = 0; i < s->n_bias; i++) say(c, "logit-bias %d=%g", s->bias[i].id, (double)s->bias[i].bias);
    show_messages(c);
    return LN_OK;
}

static ln_status do_stats(chat *c, const char *rest, ln_error *err) {
    char now[32], peak[32];
    const ln_metrics *m = &c->last;
    (void)rest, (void)err;
    say(c, "%lld answers, %lld tokens in %.2f s", (long long)c->n_turns, (long long)c->n_generated,
        c->seconds);
    if (c->n_turns == 0) return LN_OK;
    say(c,
        "the last: prompt %lld tokens (%lld cached%s%s) in %.3f s, %.1f tok/s; %lld tokens in %.3f s, %.1f "
        "tok/s; the first after %.3f s",
        (long long)m->prompt_tokens, (long long)m->cached_tokens, miss_text(m)[0] ? ": " : "", miss_text(m),
        m->prefill_seconds, m->prefill_tok_s, (long long)m->generated_tokens, m->decode_seconds,
        m->decode_tok_s, m->first_token_seconds);
    say(c, "memory %s, at most %s", bytes_text(now, m->active_bytes), bytes_text(peak, m->peak_bytes));
    return LN_OK;
}

/* ---- the conversation ---- */

static ln_status do_clear(chat *c, const char *rest, ln_error *err) {
    (void)rest, (void)err;
    talk_cut(&c->talk, talk_is(&c->talk, 0, "system") ? 1 : 0);
    say(c, c->talk.n ? "conversation cleared; system text kept" : "conversation cleared");
    return LN_OK;
}

static ln_status do_undo(chat *c, const char *rest, ln_error *err) {
    char shown[80];
    (void)rest;
    size_t at = c->talk.n;
    while (at > 0 && !talk_is(&c->talk, at - 1, "user")) at--;
    if (at == 0) return ln_fail(err, LN_EUSAGE, "nothing to undo");
    const ln_message *m = &c->talk.messages[at - 1];
    say(c, "taken back: %s", ln_excerpt(shown, m->content, m->content_bytes));
    (void)talk_undo(&c->talk, true);
    return LN_OK;
}

/* Generates another answer to the same question, and says so when it cannot differ. */
static ln_status do_regen(chat *c, const char *rest, ln_error *err) {
    (void)rest;
    bool answered = c->talk.n > 0 && talk_is(&c->talk, c->talk.n - 1, "assistant");
    if (!talk_undo(&c->talk, false)) return ln_fail(err, LN_EUSAGE, "nothing to answer yet");
    c->n_again += answered;
    if (answered && (c->how.temperature == 0 || c->how.top_k == 1))
        say(c, "greedy: the same answer again (/set temp 0.8 varies it)");
    return chat_answer(c, err);
}

/* Expands ~/ in a path to the home directory. */
static ln_status path_of(const char *rest, char *path, size_t cap, ln_error *err) {
    const char *home = getenv("HOME");
    bool tilde = rest[0] == '~' && rest[1] == '/' && home;
    if (!rest[0]) return ln_fail(err, LN_EUSAGE, "which file? /save FILE and /load FILE");
    int n = snprintf(path, cap, "%s%s", tilde ? home : "", tilde ? rest + 1 : rest);
    return n > 0 && (size_t)n < cap ? LN_OK : ln_fail(err, LN_EUSAGE, "the file name is too long");
}

static ln_status do_save(chat *c, const char *rest, ln_error *err) {
    char path[4096], shown[LN_PATH_TEXT];
    LN_TRY(path_of(rest, path, sizeof path, err));
    bool force = has(c->a, F_FORCE);
    (void)ln_path_text(shown, path);
    if (!force && ln_exists(path)) {
        ln_str word = {0};
        if (!c->person)
            return ln_fail(err, LN_EIO,
                           "%s: exists already; name another file, or start the chat with --force", shown);
        say(c, "%s exists already.", shown);
        input_event h = reader_line(c->reader, "Overwrite it? [y/N] ", &word, err);
        force = h == INPUT_TEXT && (strcmp(word.data, "y") == 0 || strcmp(word.data, "yes") == 0);
        ln_str_free(&word);
        if (signals_seen() == SIGINT) signals_forget();
        if (!force) {
            say(c, "not saved");
            return LN_OK;
        }
    }
    LN_TRY(talk_save(&c->talk, path, force, err));
    say(c, "%zu messages saved to %s", c->talk.n, shown);
    return LN_OK;
}

static ln_status do_load(chat *c, const char *rest, ln_error *err) {
    char path[4096];
    LN_TRY(path_of(rest, path, sizeof path, err));
    LN_TRY(talk_load(&c->talk, path, err));
    show_messages(c);
    say(c, "%zu messages%s", c->talk.n,
        c->talk.n > 0 && talk_is(&c->talk, c->talk.n - 1, "user") ? "; /regen answers the last one" : "");
    return LN_OK;
}

static ln_status do_exit(chat *c, const char *rest, ln_error *err) {
    (void)rest, (void)err;
    c->leave = true;
    return LN_OK;
}

/* ---- the table ---- */

static command_fn do_help;

static const struct {
    const char *name, *form, *help;
    command_fn *fn;
} commands[] = {
    {"/help", "", "this list", do_help},
    {"/clear", "", "forget the conversation, keep the system text", do_clear},
    {"/system", "[TEXT]", "set the system text; without TEXT, drop it", do_system},
    {"/set", "NAME VALUE",
     "temp, top-k, top-p, min-p, repeat-penalty, max-tokens, seed, stop, ...; stats on|off", do_set},
    {"/show", "", "the model, the settings, the conversation", do_show},
    {"/undo", "", "take back the last question and its answer", do_undo},
    {"/regen", "", "answer the last question again", do_regen},
    {"/save", "FILE", "write the conversation as JSON", do_save},
    {"/load", "FILE", "read one", do_load},
    {"/stats", "", "speed and memory", do_stats},
    {"/exit", "", "leave (also Ctrl-D)", do_exit},
    /* aliases from other programs */
    {"/quit", NULL, NULL, do_exit},
    {"/bye", NULL, NULL, do_exit},
    {"/reset", NULL, NULL, do_clear},
    {"/?", NULL, NULL, do_help},
};

/* Prints a text whose lines after the first are indented, broken between words at the terminal's width. */
static void say_wrapped(const chat *c, const char *first, const char *text) {
    ln_str s = {0};
    const int indent = (int)strlen(first), columns = terminal_columns(STDERR_FILENO);
    ln_str_adds(&s, first);
    if (columns > 2 * indent) add_wrapped(&s, text, strlen(text), indent, indent, columns);
    else ln_str_adds(&s, text);
    while (s.len > 0 && s.data[s.len - 1] == '\n') s.data[--s.len] = '\0';
    if (!s.failed) say(c, "%s", s.data);
    ln_str_free(&s);
}

static ln_status do_help(chat *c, const char *rest, ln_error *err) {
    char first[40];
    (void)rest, (void)err;
    for (size_t i = 0; i < LN_COUNT(commands); i++) {
        if (!commands[i].help) continue;
        (void)snprintf(first, sizeof first, "%-8s %-11s ", commands[i].name, commands[i].form);
        say_wrapped(c, first, commands[i].help);
    }
    say_wrapped(c, "",
                "\"\"\" begins and ends a block of lines; a backslash at the end of a line, or Alt-Enter, "
                "goes on "
                "in the next one");
    say_wrapped(c, "",
                "Ctrl-C stops an answer and keeps what was said; a blank before a slash sends it to the "
                "model");
    return LN_OK;
}

ln_status chat_command(chat *c, const char *line, ln_error *err) {
    const char *names[LN_COUNT(commands)];
    char word[40], shown[80];
    size_t n = strcspn(line, " \t\n");
    (void)snprintf(word, sizeof word, "%.*s", (int)LN_MIN(n, sizeof word - 1), line);
    for (size_t i = 0; i < LN_COUNT(commands); i++) {
        names[i] = commands[i].name;
        if (strcmp(word, names[i]) != 0 || n >= sizeof word) continue;
        const char *rest = line + n + strspn(line + n, " \t\n");
        size_t bytes = strlen(rest);
        while (bytes > 0 && (rest[bytes - 1] == ' ' || rest[bytes - 1] == '\t')) bytes--;
        bool has_argument = !commands[i].form || commands[i].form[0];
        if (!has_argument && bytes > 0) return ln_fail(err, LN_EUSAGE, "%s takes no argument", names[i]);
        char *copy = ln_strndup(rest, bytes);
        if (!copy) return LN_OOM(err, "a command");
        ln_status st = commands[i].fn(c, copy, err);
        ln_free(copy);
        return st;
    }
    const char *near = name_nearest(word, names, LN_COUNT(commands));
    (void)ln_excerpt(shown, line, LN_MIN(n, (size_t)60));
    return near ? ln_fail(err, LN_EUSAGE,
                          "unknown command %s; the nearest is %s (a blank before the slash sends it to the "
                          "model)",
                          shown, near)
                : ln_fail(err, LN_EUSAGE,
                          "unknown command %s; /help lists them (a blank before the slash sends it to the "
                          "model)",
                          shown);
}
