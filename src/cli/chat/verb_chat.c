/* linnet chat: the main loop, and generating one answer.
 *
 * The state of a conversation is its list of turns only: each answer is generated from all of them, and
 * the engine computes only what its KV cache does not contain from the previous turn. A turn stays in the
 * list if it was answered: when generation fails (for example because the context is full), the question
 * is removed, so that the conversation can always be continued. On a terminal errors are printed and the
 * chat goes on; in a pipe the first error ends the program with its code. */
#include "chat.h"
#include "../../base/c_locale.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void say(const chat *c, const char *fmt, ...) {
    ln_str s = {0}, clean = {0};
    char text[1400];
    va_list list;
    va_start(list, fmt);
    (void)ln_vsnprintf(text, sizeof text, fmt, list);
    va_end(list);
    text_clean(&clean, text, strlen(text));
    ln_str_addf(&s, c->colour ? "\033[2m%s\033[0m\n" : "%s\n", clean.data ? clean.data : "");
    ssize_t done = s.failed || clean.failed ? 0 : write(STDERR_FILENO, s.data, s.len);
    (void)done;
    ln_str_free(&s);
    ln_str_free(&clean);
}

/* ---- one answer ---- */

/* On a terminal, prints the error and continues; the same question can be asked again. */
static ln_status forgive(const chat *c, ln_status st, const ln_error *err) {
    if (st == LN_OK || !c->person || out_closed()) return st;
    note("%s", err->message);
    return LN_OK;
}

/* The maximum number of tokens of an answer. */
static int64_t most_of(const chat *c) { return c->how.n_max >= 0 ? c->how.n_max : INT64_MAX; }

/* Prints one muted line: the speed, and why generation ended unless it ended by itself. */
static void say_end(const chat *c, const ln_result *r) {
    const ln_metrics *m = &r->metrics;
    char cached[40] = "", tail[80] = "";
    if (m->cached_tokens > 0)
        (void)snprintf(cached, sizeof cached, " (%lld cached)", (long long)m->cached_tokens);
    if (r->finish == LN_FINISH_CANCELLED) (void)snprintf(tail, sizeof tail, "; stopped");
    bool by_n = c->how.n_max >= 0 && m->generated_tokens >= c->how.n_max;
    if (r->finish == LN_FINISH_LENGTH && !c->person) note_cut(r, most_of(c));
    else if (r->finish == LN_FINISH_LENGTH && by_n)
        (void)snprintf(tail, sizeof tail, "; cut at max-tokens %lld (/set max-tokens N)",
                       (long long)c->how.n_max);
    else if (r->finish == LN_FINISH_LENGTH)
        (void)snprintf(tail, sizeof tail, "; cut: the context is full (/undo, /clear)");
    if (c->stats)
        say(c, "[%lld tokens, %.1f tok/s; prompt %lld%s, the first after %.2g s%s]",
            (long long)m->generated_tokens, m->decode_tok_s, (long long)m->prompt_tokens, cached,
            m->first_token_seconds, tail);
    else if (tail[0] && c->person) say(c, "[%s]", tail + 2);
}

/* Appends the answer to the conversation, or removes the question when there is none. Reasoning is not
 * kept: chat templates remove that of earlier turns, so that a model never sees it again. */
static ln_status keep(chat *c, const ln_result *r, ln_error *err) {
    if (r->finish == LN_FINISH_LENGTH && r->text_bytes == 0 && r->reasoning_bytes > 0) {
        (void)talk_undo(&c->talk, true);
        note_cut(r, most_of(c));
        if (c->person)
            say(c, "[the question is not kept; /set max-tokens N and /set think-budget N change the limits]");
        return LN_OK;
    }
    if (r->finish == LN_FINISH_CANCELLED && r->text_bytes == 0) {
        (void)talk_undo(&c->talk, true);
        if (c->person) say(c, "[stopped before a word; the question is not kept]");
        return LN_OK;
    }
    c->last = r->metrics;
    c->n_turns++;
    c->n_generated += r->metrics.generated_tokens;
    c->seconds += r->metrics.total_seconds;
    say_end(c, r);
    return talk_add(&c->talk, "assistant", r->text, r->text_bytes, err);
}

static void cancel(const chat *c, bool stop) {
    if (c->other) ln_backend_cancel(c->other, stop);
    else ln_cancel(c->engine, stop);
}

ln_status chat_answer(chat *c, ln_error *err) {
    text_output words = text_output_for(c->a);
    ln_result r = {.size = sizeof r};
    ln_sampling how = c->how;
    ln_prompt p = {.size = sizeof(ln_prompt),
                   .messages = c->talk.messages,
                   .n_messages = c->talk.n,
                   .tmpl = has(c->a, F_CHAT) ? LN_TEMPLATE_CHAT : LN_TEMPLATE_AUTO};
    template_args(c->a, &p);
    how.seed += c->n_again;
    how.on_reasoning = output_reasoning;
    cancel(c, false); /* an earlier request to stop concerned the previous answer */
    signals_working(c->engine);
    signals_working_on(c->other);
    if (signals_seen()) cancel(c, true); /* a signal between the last key and here */
    ln_status st = c->other ? backend_generate(c->other, &p, &how, output_answer, &words, &r, err)
                            : ln_generate(c->engine, &p, &how, output_answer, &words, &r, err);
    signals_working(NULL);
    signals_working_on(NULL);
    (void)output_end(&words, NULL);
    if (words.last != '\n' || (st == LN_OK && !c->person)) (void)out_write("\n", 1, NULL);
    if (st == LN_OK) {
        st = keep(c, &r, err);
    } else {
        (void)talk_undo(&c->talk, true);
        if (forgive(c, st, err) == LN_OK) {
            st = LN_OK;
            say(c, "[no answer, so the question is not kept%s]",
                c->talk.n > 1 ? "; /undo and /clear free space" : "");
        }
    }
    ln_result_free(&r);
    return st;
}

/* ---- the loop ---- */

static ln_status one_message(chat *c, const message *m, ln_error *err) {
    if (m->command) return chat_command(c, m->text.data, err);
    c->n_again = 0;
    LN_TRY(talk_add(&c->talk, "user", m->text.data, m->text.len, err));
    return chat_answer(c, err);
}

static ln_status converse(chat *c, ln_error *err) {
    message m = {0};
    ln_status st = LN_OK;
    bool asked = false; /* Ctrl-C at an empty prompt: the next one exits */
    while (st == LN_OK && !c->leave && !out_closed()) {
        input_event h = message_read(&m, c->reader, !has(c->a, F_NO_COMMANDS), err);
        if (h == INPUT_END) break;
        if (h == INPUT_LEAVE && (asked || !c->person)) break; /* main converts it to exit code 130 */
        if (h == INPUT_BREAK || h == INPUT_LEAVE) signals_forget();
        if (h == INPUT_LEAVE) say(c, "Ctrl-C again leaves; so do Ctrl-D and /exit");
        asked = h == INPUT_LEAVE;
        if (h == INPUT_TEXT) st = forgive(c, one_message(c, &m, err), err);
        if (h == INPUT_ERROR) st = forgive(c, err->code, err);
        if (c->person && h == INPUT_TEXT && signals_seen() == SIGINT)
            signals_forget(); /* the signal was meant for the answer */
        if (signals_seen()) break;
    }
    ln_str_free(&m.text);
    return st;
}

/* Copies the settings of the command line to memory that /set may change. */
static ln_status begin(chat *c, ln_error *err) {
    if (c->other) {
        c->how.size = sizeof c->how;
        LN_TRY(ln_backend_sampling(c->other, &c->how, err));
        sampling_change(c->a, &c->how);
    } else {
        LN_TRY(sampling_of(c->a, c->model, &c->how, err));
    }
    for (size_t i = 0; i < c->a->n_stops; i++)
        if (!(c->stops[i] = ln_strndup(c->a->stops[i], strlen(c->a->stops[i]))))
            return LN_OOM(err, "a stop text");
    c->how.stop = (const char *const *)c->stops;
    for (size_t i = 0; i < c->a->n_bias; i++) {
        void *p = c->bias;
        LN_TRY(ln_grow(&p, &c->cap_bias, i + 1, sizeof *c->bias, err));
        c->bias = p;
        c->bias[i] = c->a->bias[i];
    }
    c->how.bias = c->bias;
    for (size_t i = 0; i < c->a->n_stop_ids; i++) {
        void *p = c->stop_ids;
        LN_TRY(ln_grow(&p, &c->cap_stop_ids, i + 1, sizeof *c->stop_ids, err));
        c->stop_ids = p;
        c->stop_ids[i] = c->a->stop_ids[i];
    }
    c->how.stop_ids = c->stop_ids;
    if (!has(c->a, F_SYSTEM)) return LN_OK;
    return talk_system(&c->talk, c->a->flag[F_SYSTEM].text, strlen(c->a->flag[F_SYSTEM].text), err);
}

static void end(chat *c) {
    for (size_t i = 0; i < MAX_STOPS; i++) ln_free(c->stops[i]);
    ln_free(c->bias);
    ln_free(c->stop_ids);
    talk_free(&c->talk);
    reader_close(&c->reader);
    ln_backend_close(&c->other);
    ln_engine_close(&c->engine);
    ln_model_close(&c->model);
}

static ln_status open_model(chat *c, const char *model, const ln_options *opt, ln_error *err) {
    c->info.size = sizeof c->info;
    if (other_backend(c->a)) {
        LN_TRY(backend_open(c->a, model, &c->other, err));
        return ln_backend_info(c->other, &c->info, err);
    }
    LN_TRY(ln_model_open(&c->model, model, opt, err));
    LN_TRY(check_texts(c->model, err));
    return ln_model_info(c->model, &c->info, err);
}

ln_status cmd_chat(const args *a, ln_error *err) {
    chat c = {.a = a};
    char name[LN_PATH_TEXT];
    const char *model = a->model ? a->model : "tiny";
    ln_options opt;
    ln_status st = LN_OK;
    if (!other_backend(a)) LN_GO(options_of(a, &opt, err));
    LN_GO(open_model(&c, model, &opt, err));
    (void)ln_path_text(name, model);
    if (!c.info.has_template && !has(a, F_CHAT))
        LN_GO(ln_fail(err, LN_EUNSUPPORTED,
                      "%s ships no chat template: it continues text (linnet run); --chat talks to it with "
                      "its family's built-in template",
                      name));
    LN_GO(begin(&c, err));
    start_note(a, &c.info, &c.how);
    opt.n_expected = positions_needed(a, 0);
    if (!c.other) LN_GO(ln_engine_open(&c.engine, c.model, &opt, err));
    LN_GO(reader_open(&c.reader, !has(a, F_NO_HISTORY), err));
    c.person = reader_is_person(c.reader);
    c.stats = has(a, F_STATS) || (c.person && !has(a, F_NO_STATS));
    c.colour = wants_colour(a, STDERR_FILENO);
    if (c.person)
        say(&c, "linnet %s, %s: %sCtrl-D leaves", ln_version(), name,
            has(a, F_NO_COMMANDS) ? "" : "/help lists the commands, ");
    LN_GO(converse(&c, err));
out:
    end(&c);
    return st;
}
