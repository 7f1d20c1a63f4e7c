/* The sampling of a body that leaves fields out. The command's own default is greedy, the reference's; the
 * API's is to draw at temperature 1, unless the model's authors state something else. */
#include "../base/file.h"
#include "../base/json.h"
#include "wire.h"

#include <stdio.h>

enum { FILE_MOST = 1 << 20 };

ln_status wire_sampling_default(ln_sampling *how, const char *dir, ln_error *err) {
    char path[4200];
    bool there = false, draws = false, has_top_k = false;
    (void)snprintf(path, sizeof path, "%s/generation_config.json", dir);
    LN_TRY(ln_look(path, &there, err));
    if (there) {
        json_t *root = NULL;
        LN_TRY(ln_json_load_file(&root, path, FILE_MOST, err));
        const json_t *top_k = json_object_get(root, "top_k");
        draws = json_is_true(json_object_get(root, "do_sample"));
        has_top_k = top_k && !json_is_null(top_k);
        json_decref(root);
    }
    if (!draws) how->temperature = 1, how->top_p = 1, how->min_p = 0;
    if (!draws || !has_top_k) how->top_k = 0; /* 50 is the reference's default, not the file's statement */
    return LN_OK;
}
