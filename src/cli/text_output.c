/* Streaming output of generated text: the answer to stdout, and reasoning to a place that cannot be confused
 * with it.
 *
 * If stdout is a terminal with colours, reasoning is shown muted. Otherwise stdout receives the answer only,
 * because a pipe, a file or a terminal without colours cannot distinguish the two. There -v writes the
 * reasoning to stderr; --json stores it under its own key. */
#include "cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool wants_colour(const args *a, int fd) {
    const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
    if (has(a, F_COLOUR) && a->flag[F_COLOUR].i > 0) return a->flag[F_COLOUR].i == 1;
    return out_is_terminal(fd) && !(no && no[0]) && term && term[0] && strcmp(term, "dumb") != 0;
}

text_output text_output_for(const args *a) {
    bool muted = out_is_tty() && wants_colour(a, STDOUT_FILENO);
    text_output s = {.reasoning = muted               ? REASONING_MUTED
                                  : has(a, F_VERBOSE) ? REASONING_TO_STDERR
                                                      : REASONING_DROPPED,
                     .last = '\n'};
    if (!has(a, F_NO_WRAP)) s.wrap = wrap_for(STDOUT_FILENO);
    return s;
}

/* Writes to stdout between two control sequences, wrapped on a terminal. */
static ln_status say(text_output *s, const char *before, const char *text, size_t bytes, const char *after,
                     ln_error *err) {
    ln_str clean = {0}, out = {0};
    LN_TRY(out_write(before, strlen(before), err));
    if (s->wrap.columns == 0) {
        LN_TRY(out_text(text, bytes, err));
        return out_write(after, strlen(after), err);
    }
    text_clean(&clean, text, bytes);
    wrap_add(&s->wrap, &out, clean.data, clean.len);
    /* what wraps lines moves the cursor, so that it is written as it is */
    ln_status st = out.failed || clean.failed ? LN_OOM(err, "generated text")
                                              : out_write(out.data ? out.data : "", out.len, err);
    ln_str_free(&clean);
    ln_str_free(&out);
    LN_TRY(st);
    return out_write(after, strlen(after), err);
}

static ln_status aside(const char *text, size_t bytes, ln_error *err) {
    ln_str s = {0};
    text_clean(&s, text, bytes);
    ssize_t done = s.failed ? 0 : write(STDERR_FILENO, s.data, s.len);
    (void)done;
    ln_status st = s.failed ? LN_OOM(err, "generated text") : LN_OK;
    ln_str_free(&s);
    return st;
}

/* Separates the reasoning from the following output. */
static ln_status end_reasoning(text_output *s, const char *gap, ln_error *err) {
    if (!s->in_reasoning) return LN_OK;
    s->in_reasoning = false;
    s->last = '\n';
    if (s->reasoning != REASONING_MUTED) return aside(gap, strlen(gap), err);
    s->wrap = (wrap){.columns = s->wrap.columns, .beginning = true};
    return out_write(gap, strlen(gap), err);
}

ln_status output_reasoning(void *user, const char *text, size_t bytes, ln_error *err) {
    text_output *s = user;
    if (s->reasoning == REASONING_DROPPED) return LN_OK;
    progress_wipe();
    s->in_reasoning = true;
    if (s->reasoning == REASONING_TO_STDERR) return aside(text, bytes, err);
    /* Each piece has its own control sequences, so that a process that is killed does not leave the terminal
     * muted. */
    LN_TRY(say(s, "\033[2m", text, bytes, "\033[0m", err));
    return out_closed() ? LN_ECANCELLED : LN_OK;
}

ln_status output_answer(void *user, const char *text, size_t bytes, ln_error *err) {
    text_output *s = user;
    LN_TRY(end_reasoning(s, "\n\n", err));
    s->last = text[bytes - 1];
    LN_TRY(say(s, "", text, bytes, "", err));
    return out_closed() ? LN_ECANCELLED : LN_OK;
}

ln_status output_end(text_output *s, ln_error *err) { return end_reasoning(s, "\n", err); }

void note_cut(const ln_result *r, int64_t most) {
    const ln_metrics *m = &r->metrics;
    char what[120];
    bool by_n = m->generated_tokens >= most;
    if (r->finish != LN_FINISH_LENGTH || m->generated_tokens == 0) return; /* 0 tokens: -n 0 */
    out_end_line();
    if (by_n) (void)snprintf(what, sizeof what, "cut at %lld tokens (-n)", (long long)m->generated_tokens);
    else
        (void)snprintf(what, sizeof what, "cut at %lld tokens: the context of %lld positions is full (--ctx)",
                       (long long)m->generated_tokens,
                       (long long)(m->prompt_tokens + m->generated_tokens -
                                   1)); /* the last has no position */
    if (r->text_bytes == 0 && r->reasoning_bytes > 0)
        note("%s; no answer: all %lld tokens went into reasoning; give it more (%s), a budget "
             "(--think-budget N), or let it answer at once (--no-think)",
             what, (long long)m->generated_tokens, by_n ? "-n" : "--ctx");
    else note("%s", what);
}
