/* Vision and audio towers, as transformers and mlx-lm name them. */
#include "tower_names.h"
#include "../base/base.h"

#include <string.h>

bool ln_tower_name(const char *name) {
    static const char *const parts[] = {
        "vision_tower.",      "multi_modal_projector.", "vision_model.", "audio_tower.",
        "embed_vision.",      "embed_audio.",           "visual.",       "vision_adapter.",
        "vision_projection.", "vision_embedder.",       "mtp."};
    for (size_t i = 0; i < LN_COUNT(parts); i++) {
        const char *p = strstr(name, parts[i]);
        if (p && (p == name || p[-1] == '.')) return true;
    }
    return false;
}
