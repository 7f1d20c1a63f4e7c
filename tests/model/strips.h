/* The facts that the reference's configuration classes derive from real configurations, and from each of
 * them with one field removed.
 *
 * *_json: the config.json of a real model (the last two: as newer versions of the reference write it).
 * *_full: the facts that the class gives for it, as name=value. *_strips: a field, and which facts change
 * when it is absent; NULL: the result is no model that can run. Fields without a row change nothing.
 * Computed once with transformers 5.23 (LlamaConfig, Qwen2Config, Qwen3Config, Gemma3TextConfig,
 * Gemma3Config and the rotary modules of modeling_llama.py and modeling_gemma3.py). */
#ifndef LN_TESTS_STRIPS_H
#define LN_TESTS_STRIPS_H

typedef struct strip {
    const char *field, *changes;
} strip;

/* llama31_8b */
static const char llama31_8b_json[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,\"attention_dropout\":0.0,\"bos_"
    "token_id\":128000,\"eos_token_id"
    "\":128001,\"hidden_act\":\"silu\",\"hidden_size\":4096,\"initializer_range\":0.02,\"intermediate_size\":"
    "14336,\"max_position_embeddi"
    "ngs\":131072,\"mlp_bias\":false,\"model_type\":\"llama\",\"num_attention_heads\":32,\"num_hidden_"
    "layers\":32,\"num_key_value_heads\":"
    "8,\"pretraining_tp\":1,\"rms_norm_eps\":1e-05,\"rope_scaling\":{\"factor\":8.0,\"low_freq_factor\":1.0,"
    "\"high_freq_factor\":4.0,\"ori"
    "ginal_max_position_embeddings\":8192,\"rope_type\":\"llama3\"},\"rope_theta\":500000.0,\"tie_word_"
    "embeddings\":false,\"torch_dtype"
    "\":\"bfloat16\",\"transformers_version\":\"4.43.0.dev0\",\"use_cache\":true,\"vocab_size\":128256}";
static const char llama31_8b_full[] =
    "V=128256 D=4096 F=14336 L=32 H=32 K=8 E=128 ctx=131072 eps=1e-05 act=silu scale=0.08839 bias=0000 mlp=0 "
    "qk=0 post=0 off=0 es=1 tied=0 window=0 sliding=0 first=-1 full=5e+05/0.0005248/3.069e-07 local=-";
static const strip llama31_8b_strips[] = {
    {"intermediate_size", "F=11008"},
    {"max_position_embeddings", "ctx=2048"},
    {"num_key_value_heads", "K=32"},
    {"rms_norm_eps", "eps=1e-06"},
    {"rope_scaling", "full=5e+05/0.001414/2.455e-06"},
    {"rope_theta", "full=1e+04/0.01/1.443e-05"},
    {"vocab_size", "V=32000"},
};

/* llama32_1b */
static const char llama32_1b_json[] = "{\"architectures\":[\"LlamaForCausalLM\"],\"attention_bias\":false,"
                                      "\"attention_dropout\":0.0,\"bos_token_id\":128000,\"eos_token_id"
                                      "\":128001,\"head_dim\":64,\"hidden_act\":\"silu\",\"hidden_size\":"
                                      "2048,\"initializer_range\":0.02,\"intermediate_size\":8192,\"max_pos"
                                      "ition_embeddings\":131072,\"mlp_bias\":false,\"model_type\":\"llama\","
                                      "\"num_attention_heads\":32,\"num_hidden_layers\":16,\"num_key_"
                                      "value_heads\":8,\"pretraining_tp\":1,\"rms_norm_eps\":1e-05,\"rope_"
                                      "scaling\":{\"factor\":32.0,\"high_freq_factor\":4.0,\"low_freq_fa"
                                      "ctor\":1.0,\"original_max_position_embeddings\":8192,\"rope_type\":"
                                      "\"llama3\"},\"rope_theta\":500000.0,\"tie_word_embeddings\":true"
                                      ",\"torch_dtype\":\"bfloat16\",\"transformers_version\":\"4.45.0."
                                      "dev0\",\"use_cache\":true,\"vocab_size\":128256}";
static const char llama32_1b_full[] =
    "V=128256 D=2048 F=8192 L=16 H=32 K=8 E=64 ctx=131072 eps=1e-05 act=silu scale=0.125 bias=0000 mlp=0 "
    "qk=0 post=0 off=0 es=1 tied=1 window=0 sliding=0 first=-1 full=5e+05/0.0004296/9.418e-08 local=-";
static const strip llama32_1b_strips[] = {
    {"hidden_size", "D=4096"},
    {"intermediate_size", "F=11008"},
    {"max_position_embeddings", "ctx=2048"},
    {"num_hidden_layers", "L=32"},
    {"num_key_value_heads", "K=32"},
    {"rms_norm_eps", "eps=1e-06"},
    {"rope_scaling", "full=5e+05/0.001414/3.014e-06"},
    {"rope_theta", "full=1e+04/0.01/4.167e-06"},
    {"tie_word_embeddings", "tied=0"},
    {"vocab_size", "V=32000"},
};

/* qwen25_05b */
static const char qwen25_05b_json[] = "{\"architectures\":[\"Qwen2ForCausalLM\"],\"attention_dropout\":0.0,"
                                      "\"bos_token_id\":151643,\"eos_token_id\":151643,\"hidden_act\":\""
                                      "silu\",\"hidden_size\":896,\"initializer_range\":0.02,\"intermediate_"
                                      "size\":4864,\"max_position_embeddings\":32768,\"max_window_la"
                                      "yers\":24,\"model_type\":\"qwen2\",\"num_attention_heads\":14,\"num_"
                                      "hidden_layers\":24,\"num_key_value_heads\":2,\"rms_norm_eps\":1e-"
                                      "06,\"rope_theta\":1000000.0,\"sliding_window\":32768,\"tie_word_"
                                      "embeddings\":true,\"torch_dtype\":\"bfloat16\",\"transformers_versi"
                                      "on\":\"4.40.1\",\"use_cache\":true,\"use_mrope\":false,\"use_sliding_"
                                      "window\":false,\"vocab_size\":151936}";
static const char qwen25_05b_full[] =
    "V=151936 D=896 F=4864 L=24 H=14 K=2 E=64 ctx=32768 eps=1e-06 act=silu scale=0.125 bias=1110 mlp=0 qk=0 "
    "post=0 off=0 es=1 tied=1 window=0 sliding=0 first=-1 full=1e+06/0.001/1.54e-06 local=-";
static const strip qwen25_05b_strips[] = {
    {"hidden_size", NULL},
    {"intermediate_size", "F=22016"},
    {"num_attention_heads", "H=32 E=28 scale=0.189 full=1e+06/0.001/2.683e-06"},
    {"num_hidden_layers", "L=32"},
    {"num_key_value_heads", NULL},
    {"rope_theta", "full=1e+04/0.01/0.0001334"},
    {"tie_word_embeddings", "tied=0"},
};

/* qwen3_06b */
static const char qwen3_06b_json[] = "{\"architectures\":[\"Qwen3ForCausalLM\"],\"attention_bias\":false,"
                                     "\"attention_dropout\":0.0,\"bos_token_id\":151643,\"eos_token_id"
                                     "\":151645,\"head_dim\":128,\"hidden_act\":\"silu\",\"hidden_size\":"
                                     "1024,\"initializer_range\":0.02,\"intermediate_size\":3072,\"max_po"
                                     "sition_embeddings\":40960,\"max_window_layers\":28,\"model_type\":"
                                     "\"qwen3\",\"num_attention_heads\":16,\"num_hidden_layers\":28,\"nu"
                                     "m_key_value_heads\":8,\"rms_norm_eps\":1e-06,\"rope_scaling\":null,"
                                     "\"rope_theta\":1000000,\"sliding_window\":null,\"tie_word_embed"
                                     "dings\":true,\"torch_dtype\":\"bfloat16\",\"transformers_version\":\"4."
                                     "51.0\",\"use_cache\":true,\"use_sliding_window\":false,\"vocab_"
                                     "size\":151936}";
static const char qwen3_06b_full[] =
    "V=151936 D=1024 F=3072 L=28 H=16 K=8 E=128 ctx=40960 eps=1e-06 act=silu scale=0.08839 bias=0000 mlp=0 "
    "qk=1 post=0 off=0 es=1 tied=1 window=0 sliding=0 first=-1 full=1e+06/0.001/1.241e-06 local=-";
static const strip qwen3_06b_strips[] = {
    {"hidden_size", "D=4096"},
    {"intermediate_size", "F=22016"},
    {"max_position_embeddings", "ctx=32768"},
    {"num_attention_heads", "H=32"},
    {"num_hidden_layers", "L=32"},
    {"num_key_value_heads", NULL},
    {"rope_theta", "full=1e+04/0.01/0.0001155"},
    {"tie_word_embeddings", "tied=0"},
};

/* gemma3_1b */
static const char gemma3_1b_json[] =
    "{\"architectures\":[\"Gemma3ForCausalLM\"],\"attention_bias\":false,\"attention_dropout\":0.0,\"attn_"
    "logit_softcapping\":null,\"bos"
    "_token_id\":2,\"cache_implementation\":\"hybrid\",\"eos_token_id\":[1,106],\"final_logit_softcapping\":"
    "null,\"head_dim\":256,\"hidde"
    "n_activation\":\"gelu_pytorch_tanh\",\"hidden_size\":1152,\"initializer_range\":0.02,\"intermediate_"
    "size\":6912,\"max_position_emb"
    "eddings\":32768,\"model_type\":\"gemma3_text\",\"num_attention_heads\":4,\"num_hidden_layers\":26,\"num_"
    "key_value_heads\":1,\"pad_to"
    "ken_id\":0,\"query_pre_attn_scalar\":256,\"rms_norm_eps\":1e-06,\"rope_local_base_freq\":10000,\"rope_"
    "scaling\":null,\"rope_theta\""
    ":1000000,\"sliding_window\":512,\"sliding_window_pattern\":6,\"torch_dtype\":\"bfloat16\","
    "\"transformers_version\":\"4.50.0.dev0\",\""
    "use_cache\":true,\"vocab_size\":262144}";
static const char gemma3_1b_full[] =
    "V=262144 D=1152 F=6912 L=26 H=4 K=1 E=256 ctx=32768 eps=1e-06 act=gelu scale=0.0625 bias=0000 mlp=0 "
    "qk=1 post=1 off=1 es=33.94 tied=1 window=512 sliding=22 first=0 full=1e+06/0.001/1.114e-06 "
    "local=1e+04/0.01/0.0001075";
static const strip gemma3_1b_strips[] = {
    {"hidden_size", "D=2304 es=48"},
    {"intermediate_size", "F=9216"},
    {"max_position_embeddings", "ctx=131072"},
    {"num_attention_heads", "H=8"},
    {"num_key_value_heads", "K=4"},
    {"sliding_window", "window=4096"},
    {"vocab_size", "V=262208"},
};

/* gemma3_4b */
static const char gemma3_4b_json[] =
    "{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"boi_token_index\":255999,\"eoi_token_index\":"
    "256000,\"eos_token_id\":[1,"
    "106],\"image_token_index\":262144,\"initializer_range\":0.02,\"mm_tokens_per_image\":256,\"model_type\":"
    "\"gemma3\",\"text_config\":{"
    "\"hidden_size\":2560,\"intermediate_size\":10240,\"model_type\":\"gemma3_text\",\"num_hidden_layers\":"
    "34,\"rope_scaling\":{\"factor\":"
    "8.0,\"rope_type\":\"linear\"},\"sliding_window\":1024},\"torch_dtype\":\"bfloat16\",\"transformers_"
    "version\":\"4.50.0.dev0\",\"vision_c"
    "onfig\":{\"hidden_size\":1152,\"image_size\":896,\"intermediate_size\":4304,\"model_type\":\"siglip_"
    "vision_model\",\"num_attention_h"
    "eads\":16,\"num_hidden_layers\":27,\"patch_size\":14,\"vision_use_head\":false}}";
static const char gemma3_4b_full[] =
    "V=262208 D=2560 F=10240 L=34 H=8 K=4 E=256 ctx=131072 eps=1e-06 act=gelu scale=0.0625 bias=0000 mlp=0 "
    "qk=1 post=1 off=1 es=50.6 tied=1 window=1024 sliding=29 first=0 full=1e+06/0.000125/1.392e-07 "
    "local=1e+04/0.01/0.0001075";
static const strip gemma3_4b_strips[] = {
    {"text_config", "D=2304 F=9216 L=26 es=48 window=4096 sliding=22 full=1e+06/0.001/1.114e-06"},
    {"text_config.hidden_size", "D=2304 es=48"},
    {"text_config.intermediate_size", "F=9216"},
    {"text_config.num_hidden_layers", "L=26 sliding=22"},
    {"text_config.rope_scaling", "full=1e+06/0.001/1.114e-06"},
    {"text_config.sliding_window", "window=4096"},
};

/* qwen3_new */
static const char qwen3_new_json[] = "{\"architectures\":[\"Qwen3ForCausalLM\"],\"attention_bias\":true,"
                                     "\"dtype\":\"float32\",\"head_dim\":64,\"hidden_act\":\"silu\",\"hidden_"
                                     "size\":512,\"intermediate_size\":1536,\"layer_types\":[\"full_"
                                     "attention\",\"sliding_attention\",\"full_attention\",\"sliding_attenti"
                                     "on\"],\"max_position_embeddings\":4096,\"max_window_layers\":2,\"model_"
                                     "type\":\"qwen3\",\"num_attention_heads\":32,\"num_hidden_laye"
                                     "rs\":4,\"num_key_value_heads\":8,\"rms_norm_eps\":1e-05,\"rope_"
                                     "parameters\":{\"rope_theta\":250000.0,\"rope_type\":\"linear\",\"factor"
                                     "\":2.0},\"sliding_window\":128,\"tie_word_embeddings\":true,\"use_"
                                     "sliding_window\":true,\"vocab_size\":1000}";
static const char qwen3_new_full[] =
    "V=1000 D=512 F=1536 L=4 H=32 K=8 E=64 ctx=4096 eps=1e-05 act=silu scale=0.125 bias=1111 mlp=0 qk=1 "
    "post=0 off=0 es=1 tied=1 window=128 sliding=2 first=1 full=2.5e+05/0.001/2.949e-06 "
    "local=2.5e+05/0.001/2.949e-06";
static const strip qwen3_new_strips[] = {
    {"attention_bias", "bias=0000"},
    {"head_dim", "E=128 scale=0.08839 full=2.5e+05/0.001/2.429e-06 local=2.5e+05/0.001/2.429e-06"},
    {"hidden_size", "D=4096"},
    {"intermediate_size", "F=22016"},
    {"layer_types", "first=2"},
    {"max_position_embeddings", "ctx=32768"},
    {"num_hidden_layers", NULL},
    {"num_key_value_heads", "K=32"},
    {"rms_norm_eps", "eps=1e-06"},
    {"rope_parameters", "full=1e+04/0.01/0.0001334 local=1e+04/0.01/0.0001334"},
    {"sliding_window", "window=4096"},
    {"tie_word_embeddings", "tied=0"},
    {"use_sliding_window", NULL},
    {"vocab_size", "V=151936"},
};

/* gemma3_new */
static const char gemma3_new_json[] = "{\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"dtype\":"
                                      "\"bfloat16\",\"model_type\":\"gemma3\",\"text_config\":{\"attention_b"
                                      "ias\":true,\"head_dim\":128,\"hidden_activation\":\"gelu_pytorch_"
                                      "tanh\",\"hidden_size\":640,\"intermediate_size\":2048,\"layer_types"
                                      "\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\"],"
                                      "\"max_position_embeddings\":8192,\"model_type\":\"gemma3_text\",\""
                                      "num_attention_heads\":8,\"num_hidden_layers\":3,\"num_key_value_"
                                      "heads\":2,\"query_pre_attn_scalar\":168,\"rms_norm_eps\":1e-05,\"r"
                                      "ope_parameters\":{\"full_attention\":{\"factor\":8.0,\"rope_theta\":"
                                      "500000.0,\"rope_type\":\"linear\"},\"sliding_attention\":{\"rope_t"
                                      "heta\":20000.0,\"rope_type\":\"default\"}},\"sliding_window\":64,"
                                      "\"tie_word_embeddings\":true,\"vocab_size\":3000},\"tie_word_embedd"
                                      "ings\":true}";
static const char gemma3_new_full[] =
    "V=3000 D=640 F=2048 L=3 H=8 K=2 E=128 ctx=8192 eps=1e-05 act=gelu scale=0.07715 bias=1111 mlp=0 qk=1 "
    "post=1 off=1 es=25.3 tied=1 window=64 sliding=2 first=0 full=5e+05/0.0001768/3.069e-07 "
    "local=2e+04/0.007071/5.837e-05";
static const strip gemma3_new_strips[] = {
    {"text_config", "V=262208 D=2304 F=9216 L=26 K=4 E=256 ctx=131072 eps=1e-06 scale=0.0625 bias=0000 es=48 "
                    "window=4096 sliding=22 full=1e+06/0.001/1.114e-06 local=1e+04/0.01/0.0001075"},
    {"text_config.attention_bias", "bias=0000"},
    {"text_config.head_dim", "E=256 full=5e+05/0.0001768/2.77e-07 local=2e+04/0.007071/5.402e-05"},
    {"text_config.hidden_size", "D=2304 es=48"},
    {"text_config.intermediate_size", "F=9216"},
    {"text_config.layer_types", "sliding=3 full=-"},
    {"text_config.max_position_embeddings", "ctx=131072"},
    {"text_config.num_hidden_layers", NULL},
    {"text_config.num_key_value_heads", "K=4"},
    {"text_config.query_pre_attn_scalar", "scale=0.0625"},
    {"text_config.rms_norm_eps", "eps=1e-06"},
    {"text_config.rope_parameters", "full=1e+06/0.001/1.241e-06 local=1e+04/0.01/0.0001155"},
    {"text_config.sliding_window", "window=4096"},
    {"text_config.vocab_size", "V=262208"},
};

#endif
