/* ln_result as callers of other versions have it. The library fills a whole one of its own and copies the
 * fields that fit into the caller's struct; what the others own is freed here, because the caller cannot.
 */
#include "args.h"

#include <string.h>

/* The offsets of the pointers to memory that a result owns. */
static const size_t owned[] = {
    offsetof(ln_result, prompt_ids),      offsetof(ln_result, ids),        offsetof(ln_result, text),
    offsetof(ln_result, reasoning),       offsetof(ln_result, logprobs),   offsetof(ln_result, top),
    offsetof(ln_result, prompt_logprobs), offsetof(ln_result, prompt_top), offsetof(ln_result, tool_calls),
    offsetof(ln_result, cut_tool_call),
};

static bool has(size_t size, size_t offset) { return offset + sizeof(void *) <= size; }

static void free_at(ln_result *r, size_t offset) {
    void *p;
    memcpy(&p, (char *)r + offset, sizeof p);
    ln_free(p);
    memset((char *)r + offset, 0, sizeof p);
}

ln_status ln_api_open_result(ln_result *out, ln_error *err) {
    LN_TRY(ln_api_check_size(out, sizeof out->size, "ln_result", err));
    memset((char *)out + sizeof out->size, 0, out->size - sizeof out->size);
    return LN_OK;
}

void ln_api_give_result(ln_result *out, ln_result *all) {
    for (size_t i = 0; i < LN_COUNT(owned); i++)
        if (!out || !has(out->size, owned[i])) free_at(all, owned[i]);
    if (out) ln_api_give_sized(out, sizeof *all, all);
}

ln_status ln_api_open_results(ln_result *results, size_t n, ln_error *err) {
    for (size_t i = 0; i < n; i++) {
        ln_result *r = ln_api_result_at(results, i);
        LN_TRY(ln_api_open_result(r, err));
        if (r->size != results->size)
            return ln_fail(err, LN_EUSAGE, "result %zu: ln_result.size is %u, that of the first is %u", i + 1,
                           r->size, results->size);
    }
    return LN_OK;
}

ln_result *ln_api_result_at(ln_result *results, size_t i) {
    return (ln_result *)(void *)((char *)results + i * results->size);
}

void ln_result_free(ln_result *r) {
    ln_error ignored;
    if (!r || ln_api_check_size(r, sizeof r->size, "ln_result", &ignored) != LN_OK) return;
    for (size_t i = 0; i < LN_COUNT(owned); i++)
        if (has(r->size, owned[i])) free_at(r, owned[i]);
    memset((char *)r + sizeof r->size, 0, r->size - sizeof r->size);
}
