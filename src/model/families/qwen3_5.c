/* Qwen 3.5, 3.6 and 3.8, dense: the text model. Facts from transformers: Qwen3_5TextConfig in
 * configuration_qwen3_5.py (defaults), Qwen3_5Attention, Qwen3_5GatedDeltaNet and Qwen3_5RMSNorm in
 * modeling_qwen3_5.py. The vision tower and the multi-token prediction layers (`mtp.*`) are skipped.
 *
 * field                     absent                 note vocab_size                248,320 hidden_size
 * 4,096 intermediate_size         12,288 num_hidden_layers         32 num_attention_heads       16
 * num_key_value_heads       4 head_dim                  256 max_position_embeddings   32,768 rms_norm_eps
 * 1e-6 hidden_act                silu                   of the MLP and of the convolution attention_bias
 * false                  q, k, v and o alike tie_word_embeddings       false                  the tensors
 * decide rope                      theta 10,000           of the first quarter of a head, unless
 * partial_rotary_factor
 *                                                  says otherwise; mrope is plain RoPE for text
 * layer_types               full if i + 1 is a     else linear_attention
 *                           multiple of
 *                           full_attention_interval (4)
 * linear_conv_kernel_dim    4 linear_key_head_dim       128 linear_value_head_dim     128
 * linear_num_key_heads      16 linear_num_value_heads    32
 *
 * Full layers: q_proj has, of each head, the query and then the gate of its output; norms of q and k by
 * head. All norms are stored as w - 1 except that of a linear layer's output; mlx-lm's files have 1
 * added. */
#include "../family.h"

enum { MAX_TAPS = 32, MAX_RECUR_HEADS = 4096, MAX_RECUR_DIM = 1024 };

static ln_status read_delta(ln_spec *s, const ln_config *c, ln_error *err) {
    int64_t taps, k_dim, v_dim, k_heads, v_heads;
    LN_TRY(ln_config_int(c, "linear_conv_kernel_dim", 4, 1, MAX_TAPS, &taps, err));
    LN_TRY(ln_config_int(c, "linear_key_head_dim", 128, 1, MAX_RECUR_DIM, &k_dim, err));
    LN_TRY(ln_config_int(c, "linear_value_head_dim", 128, 1, MAX_RECUR_DIM, &v_dim, err));
    LN_TRY(ln_config_int(c, "linear_num_key_heads", 16, 1, MAX_RECUR_HEADS, &k_heads, err));
    LN_TRY(ln_config_int(c, "linear_num_value_heads", 32, 1, MAX_RECUR_HEADS, &v_heads, err));
    if (v_heads % k_heads) {
        char shown[LN_PATH_TEXT];
        return ln_fail(err, LN_EINVALID,
                       "%s: linear_num_value_heads is %lld, expected a multiple of linear_num_key_heads, "
                       "%lld",
                       ln_path_text(shown, c->path), (long long)v_heads, (long long)k_heads);
    }
    return ln_add_delta(s,
                        &(ln_recur_sizes){.taps = (int32_t)taps,
                                          .channels = (int32_t)(2 * k_heads * k_dim + v_heads * v_dim),
                                          .n_k_heads = (int32_t)k_heads,
                                          .n_v_heads = (int32_t)v_heads,
                                          .k_dim = (int32_t)k_dim,
                                          .v_dim = (int32_t)v_dim},
                        err);
}

ln_status ln_family_qwen3_5(ln_spec *s, const ln_config *c, ln_error *err) {
    static const ln_sizes sizes = {.vocab = 248320,
                                   .hidden = 4096,
                                   .ffn = 12288,
                                   .layers = 32,
                                   .heads = 16,
                                   .kv_heads = 4,
                                   .head_dim = 256,
                                   .positions = 32768};
    bool bias;
    int64_t interval;
    LN_TRY(ln_read_base(s, c, &sizes, err));
    LN_TRY(ln_config_bool(c, "attention_bias", false, &bias, err));
    LN_TRY(ln_config_int(c, "full_attention_interval", 4, 1, LN_MAX_LAYERS, &interval, err));
    ln_attn_spec *a = &s->attn[0];
    a->q_bias = a->k_bias = a->v_bias = a->o_bias = bias;
    a->qk_norm = LN_QK_NORM_HEADS;
    a->out_gate = a->gate_in_q = true;
    s->norm_offset = 1;
    s->conv_tells_norms = true;
    LN_TRY(ln_read_recurrent_layers(s, c, "linear_attention", interval, err));
    LN_TRY(read_delta(s, c, err));
    return ln_read_rope(s, c, &(ln_rope_facts){.theta = 10000, .partial = 0.25}, err);
}
