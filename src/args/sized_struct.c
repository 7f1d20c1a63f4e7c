/* Structs of callers that begin with their size, the options of a model, and the error of a thread. */
#include "args.h"

#include <string.h>

static _Thread_local ln_error last;

ln_error *ln_api_error(ln_error *err) { return err ? err : &last; }

const ln_error *ln_last_error(void) { return &last; }

enum { MOST_SIZE = 1 << 16 }; /* a larger size is no size of a struct, but uninitialised memory */

ln_status ln_api_check_size(const void *out, size_t least, const char *what, ln_error *err) {
    uint32_t size;
    memcpy(&size, out, sizeof size);
    if (size < least || size > MOST_SIZE)
        return ln_fail(err, LN_EUSAGE, "%s.size is %u; set it to sizeof(%s)", what, size, what);
    return LN_OK;
}

void ln_api_give_sized(void *out, size_t known, const void *from) {
    uint32_t size;
    memcpy(&size, out, sizeof size);
    memcpy(out, from, LN_MIN(known, (size_t)size));
    if (size > known) memset((char *)out + known, 0, size - known);
    memcpy(out, &size, sizeof size);
}

ln_status ln_api_copy_sized(void *to, size_t known, const void *from, const char *what, ln_error *err) {
    uint32_t size;
    memcpy(&size, from, sizeof size);
    if (size < sizeof size || size > MOST_SIZE)
        return ln_fail(err, LN_EUSAGE, "%s.size is %u; start from %s_default", what, size, what);
    for (size_t i = known; i < size; i++)
        if (((const char *)from)[i])
            return ln_fail(err, LN_EUSAGE,
                           "%s has %u bytes, this library knows %zu, and a field beyond them is set; use the "
                           "library that the header belongs to",
                           what, size, known);
    memcpy(to, from, LN_MIN(known, (size_t)size));
    size = (uint32_t)known;
    memcpy(to, &size, sizeof size);
    return LN_OK;
}

ln_status ln_api_prompt(const ln_prompt *prompt, ln_prompt *out, ln_error *err) {
    *out = ln_prompt_default();
    return ln_api_copy_sized(out, sizeof *out, prompt, "ln_prompt", err);
}

ln_status ln_api_prompts(const ln_prompt *prompts, size_t n, const ln_prompt **out, ln_prompt **copy,
                         ln_error *err) {
    const uint32_t size = n > 0 ? prompts[0].size : (uint32_t)sizeof *prompts;
    *copy = NULL;
    *out = prompts;
    if (size != sizeof *prompts) {
        ln_prompt first;
        LN_TRY(ln_api_prompt(prompts, &first, err)); /* rejects a size that is none */
        *out = *copy = ln_zalloc(n, sizeof **copy);
        if (!*copy) return LN_OOM(err, "the prompts");
    }
    for (size_t i = 0; i < n; i++) {
        const char *at = (const char *)prompts + i * size;
        uint32_t here;
        memcpy(&here, at, sizeof here);
        if (here != size)
            return ln_fail(err, LN_EUSAGE, "prompt %zu: ln_prompt.size is %u, that of the first is %u", i + 1,
                           here, size);
        if (*copy) LN_TRY(ln_api_prompt((const ln_prompt *)(const void *)at, &(*copy)[i], err));
    }
    return LN_OK;
}

static ln_status check_options(const ln_options *o, ln_error *err) {
    const struct {
        const char *field;
        int64_t value, most;
    } counts[] = {
        {"n_threads", o->n_threads, INT32_MAX},   {"n_ctx", o->n_ctx, INT64_MAX},
        {"n_expected", o->n_expected, INT64_MAX}, {"n_chunk", o->n_chunk, 1 << 20},
        {"n_parallel", o->n_parallel, 4096},      {"n_logits", o->n_logits, 1 << 20},
        {"n_queue", o->n_queue, 1 << 20},         {"n_adapters", o->n_adapters, 1024},
        {"adapter_rank", o->adapter_rank, 4096},  {"n_lookup", o->n_lookup, 64},
    };
    for (size_t i = 0; i < LN_COUNT(counts); i++) {
        if (counts[i].value < 0)
            return ln_fail(err, LN_EUSAGE, "options: %s: expected 0 (the default) or more, found %lld",
                           counts[i].field, (long long)counts[i].value);
        if (counts[i].value > counts[i].most)
            return ln_fail(err, LN_EUSAGE, "options: %s: expected at most %lld, found %lld", counts[i].field,
                           (long long)counts[i].most, (long long)counts[i].value);
    }
    if (o->quantize_bits != 0 && o->quantize_bits != 4 && o->quantize_bits != 8)
        return ln_fail(err, LN_EUSAGE,
                       "options: quantize_bits must be 4, 8, or 0 for weights as stored, found %d",
                       o->quantize_bits);
    if (o->n_adapter_parts > LN_ADAPTER_PARTS || (o->n_adapter_parts > 0 && !o->adapter))
        return ln_fail(err, LN_EUSAGE, "options: adapter is a list of at most %d, found %zu",
                       (int)LN_ADAPTER_PARTS, o->n_adapter_parts);
    if (o->device < LN_DEVICE_AUTO || o->device > LN_DEVICE_MLX)
        return ln_fail(err, LN_EUSAGE, "options: device: expected an ln_device, found %d", (int)o->device);
    if (o->numerics < LN_NUMERICS_DEFAULT || o->numerics > LN_FAST)
        return ln_fail(err, LN_EUSAGE, "options: numerics: expected an ln_numerics, found %d",
                       (int)o->numerics);
    if (o->kv_type < LN_KV_AUTO || o->kv_type > LN_KV_Q8)
        return ln_fail(err, LN_EUSAGE, "options: kv_type: expected an ln_kv_type, found %d", (int)o->kv_type);
    return LN_OK;
}

ln_status ln_api_options(const ln_options *opt, ln_options *out, ln_error *err) {
    *out = ln_options_default();
    if (opt) LN_TRY(ln_api_copy_sized(out, sizeof *out, opt, "ln_options", err));
    return check_options(out, err);
}
