/* The defaults of the structs of options, by name. A program calls X_default of linnet.h, which is compiled
 * with it: what is written here ends at the size of the program's struct. */
#include "args.h"

#include <linnet_train.h>
#include <linnet_backend.h>
#include <string.h>

static const ln_options options = {.size = sizeof options};
static const ln_prompt prompt = {.size = sizeof prompt};
static const ln_request_options request = {.size = sizeof request, .n_logprobs = -1};
static const ln_classify_options classify = {.size = sizeof classify};
static const ln_embed_options embed = {.size = sizeof embed};
static const ln_batch_options batch = {.size = sizeof batch};
static const ln_trainer_options trainer = {.size = sizeof trainer,
                                           .max_length = 2048,
                                           .rank = 8,
                                           .alpha = 16,
                                           .targets = "q_proj,v_proj",
                                           .lr = 1e-4,
                                           .batch = 4,
                                           .accum = 1,
                                           .epochs = 1,
                                           .clip = 1,
                                           .weight_decay = 0.01,
                                           .save_every = 100,
                                           .keep = 2,
                                           .beta = 0.1,
                                           .power = 1,
                                           .cycles = 1,
                                           .moment_bits = 32,
                                           .sample_tokens = 64};
static const ln_backend_options backend = {.size = sizeof backend, .adapter_scale = 1};
static const ln_bench_options bench = {.size = sizeof bench};
static const ln_quantize_options quantize = {.size = sizeof quantize};
static const ln_convert_options convert = {.size = sizeof convert};
static const ln_init_options init = {.size = sizeof init};
static const ln_fuse_options fuse = {.size = sizeof fuse, .scale = 1};
static const ln_adamw adamw = {
    .size = sizeof adamw, .lr = 1e-5, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01};

static const struct {
    const char *name;
    const void *value;
    size_t bytes;
} all[] = {
    {"ln_options", &options, sizeof options},         {"ln_prompt", &prompt, sizeof prompt},
    {"ln_request_options", &request, sizeof request}, {"ln_classify_options", &classify, sizeof classify},
    {"ln_embed_options", &embed, sizeof embed},       {"ln_batch_options", &batch, sizeof batch},
    {"ln_trainer_options", &trainer, sizeof trainer}, {"ln_backend_options", &backend, sizeof backend},
    {"ln_bench_options", &bench, sizeof bench},       {"ln_quantize_options", &quantize, sizeof quantize},
    {"ln_fuse_options", &fuse, sizeof fuse},          {"ln_adamw", &adamw, sizeof adamw},
    {"ln_convert_options", &convert, sizeof convert}, {"ln_init_options", &init, sizeof init},
};

void ln_set_default(const char *name, void *out, uint32_t size) {
    if (!name || !out || size < sizeof size) return;
    memset(out, 0, size); /* of a struct that only a newer library knows, too */
    memcpy(out, &size, sizeof size);
    for (size_t i = 0; i < LN_COUNT(all); i++)
        if (strcmp(name, all[i].name) == 0) ln_api_give_sized(out, all[i].bytes, all[i].value);
}
