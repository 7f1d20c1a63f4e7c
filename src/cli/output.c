/* Output: stdout for results, stderr for everything else, metrics as JSON, and a writer for safetensors.
 *
 * Writes to stdout are not buffered, so that streamed text appears immediately and a failure is reported
 * by the write that failed: a closed pipe ends the output silently, any other failure is LN_EIO. */
#include "cli.h"
#include "../base/c_locale.h"
#include "../base/mpi_ranks.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool closed;
static bool within_line; /* text was written to stdout that does not end a line */

bool out_closed(void) { return closed; }

/* The stdout of a process that mpirun has started is a pseudo-terminal of mpirun, which writes what comes
 * from there to its own stdout. */
bool out_is_terminal(int fd) { return isatty(fd) && (fd != STDOUT_FILENO || ln_mpi_launch().size < 2); }
bool out_is_tty(void) { return out_is_terminal(STDOUT_FILENO); }

void out_end_line(void) {
    if (within_line) (void)out_write("\n", 1, NULL);
}

ln_status out_write(const char *data, size_t bytes, ln_error *err) {
    if (bytes > 0) within_line = data[bytes - 1] != '\n';
    while (bytes > 0 && !closed) {
        ssize_t n = write(STDOUT_FILENO, data, bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EPIPE) {
            closed = true;
            break;
        }
        if (n < 0) {
            char why[LN_ERRNO_TEXT];
            return ln_fail(err, LN_EIO, "stdout: cannot write: %s", ln_errno_text(why, errno));
        }
        data += n;
        bytes -= (size_t)n;
    }
    return LN_OK;
}

/* Control characters of terminals: C0 except tab and newline, DEL, C1. */
static bool commands(uint32_t cp) {
    return (cp < 0x20 && cp != '\n' && cp != '\t') || (cp >= 0x7f && cp < 0xa0);
}

void text_clean(ln_str *out, const char *text, size_t bytes) {
    size_t from = 0, at = 0;
    while (at < bytes) {
        uint32_t cp = 0;
        int n = ln_utf8_get(text + at, bytes - at, &cp);
        if (n > 0 && !commands(cp)) {
            at += (size_t)n;
            continue;
        }
        ln_str_add(out, text + from, at - from);
        ln_str_add(out, "\xef\xbf\xbd", 3);
        from = at += n > 0 ? (size_t)n : 1;
    }
    ln_str_add(out, text + from, at - from);
}

ln_status out_text(const char *text, size_t bytes, ln_error *err) {
    if (!out_is_tty()) return out_write(text, bytes, err);
    ln_str s = {0};
    text_clean(&s, text, bytes);
    ln_status st = s.failed ? LN_OOM(err, "the result") : out_write(s.data ? s.data : "", s.len, err);
    ln_str_free(&s);
    return st;
}

ln_status out_str(ln_str *s, ln_error *err) {
    ln_status st = s->failed ? LN_OOM(err, "the result") : out_text(s->data ? s->data : "", s->len, err);
    ln_str_free(s);
    return st;
}

void note(const char *fmt, ...) {
    static const char prefix[] = "linnet: ";
    enum { PREFIX = sizeof prefix - 1 };
    char line[1400 + PREFIX];
    ln_str s = {0};
    progress_wipe();
    memcpy(line, prefix, sizeof prefix);
    va_list list;
    va_start(list, fmt);
    int n = ln_vsnprintf(line + PREFIX, sizeof line - PREFIX - 1, fmt, list);
    va_end(list);
    if (n < 0) return;
    ln_printable(line, sizeof line - 1);
    ln_str_adds(&s, prefix);
    advice_add(&s, line + PREFIX);
    ln_str_adds(&s, "\n");
    size_t len = strnlen(line, sizeof line - 2);
    line[len] = '\n';
    ssize_t done = s.failed ? write(STDERR_FILENO, line, len + 1)
                            : write(STDERR_FILENO, s.data, s.len); /* no memory: untranslated */
    (void)done;
    ln_str_free(&s);
}

/* ---- JSON ---- */

const char *miss_text(const ln_metrics *m) { return m->cache_miss_reason ? m->cache_miss_reason : ""; }

void put_metrics(ln_str *s, const ln_metrics *m) {
    put_key(s, "metrics");
    ln_str_add(s, "{", 1);
    put_int(s, "prompt_tokens", m->prompt_tokens);
    put_int(s, "generated_tokens", m->generated_tokens);
    put_int(s, "cached_tokens", m->cached_tokens);
    if (miss_text(m)[0]) put_text(s, "cache_miss_reason", miss_text(m));
    put_int(s, "reasoning_tokens", m->reasoning_tokens);
    if (m->proposed_tokens > 0) {
        put_int(s, "proposed_tokens", m->proposed_tokens);
        put_int(s, "accepted_tokens", m->accepted_tokens);
    }
    put_real(s, "load_seconds", m->load_seconds);
    put_real(s, "prefill_seconds", m->prefill_seconds);
    put_real(s, "decode_seconds", m->decode_seconds);
    put_real(s, "total_seconds", m->total_seconds);
    put_real(s, "first_token_seconds", m->first_token_seconds);
    put_real(s, "prefill_tok_s", m->prefill_tok_s);
    put_real(s, "decode_tok_s", m->decode_tok_s);
    put_uint(s, "active_bytes", m->active_bytes);
    put_uint(s, "peak_bytes", m->peak_bytes);
    ln_str_add(s, "}", 1);
}

/* ---- human-readable text ---- */

const char *bytes_text(char buf[32], uint64_t bytes) { return ln_bytes_text(buf, bytes); }

void stats_print(const ln_metrics *m) {
    char now[32], peak[32];
    out_end_line();
    note("load %.3f s", m->load_seconds);
    note("prompt %lld tokens (%lld cached%s%s) in %.3f s, %.1f tok/s", (long long)m->prompt_tokens,
         (long long)m->cached_tokens, miss_text(m)[0] ? ": " : "", miss_text(m), m->prefill_seconds,
         m->prefill_tok_s);
    if (m->generated_tokens > 0)
        note("generated %lld tokens in %.3f s, %.1f tok/s, the first after %.3f s",
             (long long)m->generated_tokens, m->decode_seconds, m->decode_tok_s, m->first_token_seconds);
    if (m->proposed_tokens > 0)
        note("computed %lld tokens ahead, %lld of them kept", (long long)m->proposed_tokens,
             (long long)m->accepted_tokens);
    note("memory %s, at most %s", bytes_text(now, m->active_bytes), bytes_text(peak, m->peak_bytes));
}

/* ---- files ---- */

/* The answers of batch continue a file that an earlier run has begun, whose state is in a file next to it. */
static ln_status try_answers(const char *path, bool force, ln_error *err) {
    char state[4096], shown[LN_PATH_TEXT];
    struct stat st;
    bool begun = false;
    if (snprintf(state, sizeof state, "%s.state", path) < (int)sizeof state)
        LN_TRY(ln_look(state, &begun, err));
    if (begun || force || stat(path, &st) != 0 || st.st_size == 0) return ln_out_try(path, true, err);
    return ln_fail(err, LN_EIO,
                   "%s: exists already and is no unfinished file of answers (there is no %s.state); "
                   "ln_batch_options.force replaces it",
                   ln_path_text(shown, path), ln_path_text((char[LN_PATH_TEXT]){0}, path));
}

ln_status outputs_try(const args *a, ln_error *err) {
    const bool force = has(a, F_FORCE), writes = a->verb != VERB_PLAN;
    if (writes && has(a, F_LOGITS)) LN_TRY(ln_out_try(a->flag[F_LOGITS].text, force, err));
    if (writes && has(a, F_SAVE_KV)) LN_TRY(ln_out_try(a->flag[F_SAVE_KV].text, force, err));
    if (a->verb == VERB_BATCH) LN_TRY(try_answers(a->flag[F_OUTPUT].text, force, err));
    if (a->verb == VERB_ATTENTION) LN_TRY(ln_out_try(a->flag[F_OUTPUT].text, force, err));
    return LN_OK;
}

/* ---- safetensors ---- */

ln_status tensors_begin(ln_out *o, const tensor_head *t, size_t n, ln_error *err) {
    ln_str s = {0};
    uint64_t at = 0;
    ln_str_add(&s, "{", 1);
    for (size_t i = 0; i < n; i++) {
        uint64_t bytes = 4;
        put_key(&s, t[i].name);
        ln_str_adds(&s, "{\"dtype\":\"F32\",\"shape\":[");
        for (int d = 0; d < t[i].n_dims; d++) {
            ln_str_addf(&s, d ? ",%lld" : "%lld", (long long)t[i].shape[d]);
            bytes *= (uint64_t)t[i].shape[d];
        }
        ln_str_addf(&s, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)at,
                    (unsigned long long)(at + bytes));
        at += bytes;
    }
    ln_str_add(&s, "}", 1);
    while (!s.failed && s.len % 8) ln_str_add(&s, " ", 1); /* aligns the data to 8 bytes */
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)s.len >> (8 * i));
    ln_status st = s.failed ? LN_OOM(err, "a file header") : ln_out_write(o, length, sizeof length, err);
    if (st == LN_OK) st = ln_out_write(o, s.data, s.len, err);
    ln_str_free(&s);
    return st;
}
