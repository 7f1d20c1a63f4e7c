/* Fuzzes the reader of files of requests, lines and all. Every request that is found can be read again and
 * looked up by its custom_id. */
#include "fuzz_dir.h"

#include "batch/batch.h"

static void fuzz_open(void) { dir_open(); }

static ln_status check(const batch_input *in, ln_error *err) {
    for (size_t i = 0; i < in->n; i++) {
        char *text = NULL;
        size_t bytes = 0, at = 0;
        batch_line line = {0};
        must(in->offset[i] < in->offset[i + 1]);
        ln_status st = batch_input_line(in, i, &text, &bytes, err);
        if (st == LN_OK) st = batch_line_read(&line, text, bytes, err);
        must(st == LN_OK || st == LN_EMEMORY);
        if (st == LN_OK) st = batch_input_find(in, line.custom_id.data, line.custom_id.len, &at, err);
        must(st == LN_EMEMORY || at == i);
        batch_line_free(&line);
        ln_free(text);
        LN_TRY(st);
    }
    return LN_OK;
}

static ln_status fuzz_one(const uint8_t *data, size_t bytes, ln_error *err) {
    batch_input in;
    char path[256];
    dir_put("in.jsonl", data, bytes);
    (void)snprintf(path, sizeof path, "%s", dir_path("in.jsonl"));
    ln_status st = batch_input_open(&in, path, err);
    if (st == LN_OK) st = check(&in, err);
    batch_input_close(&in);
    return st;
}
