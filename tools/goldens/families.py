"""The random models: each family and each of its named differences once, small and of odd shapes."""

import dataclasses
import math

from .generator import TensorSpec


@dataclasses.dataclass
class Model:
    name: str
    config: dict  # config.json
    dtype: str = "f32"  # of the safetensors files
    shards: int = 1
    gguf_forms: tuple[str, ...] = ("f32",)
    # Changes of the configuration, each of which has to change the logits: else the model does not
    # test what it is for.
    must_matter: tuple[dict, ...] = ()
    split_latent: bool = True  # in GGUF k_b and v_b apart, as newer files have them
    no_gguf: str = "GGUF cannot say what config.json does"  # where there are no forms

    def first_of(self, *keys):
        """The value of the first key that config.json has: families call one thing by many names."""
        return next(self.config[key] for key in keys if key in self.config)

    @property
    def heads(self):
        return self.config["num_attention_heads"]

    @property
    def kv_heads(self):
        if self.config["model_type"] == "chatglm":
            return self.config["multi_query_group_num"]
        return self.config["num_key_value_heads"]

    @property
    def vocab(self):
        return self.config.get("padded_vocab_size") or self.config["vocab_size"]

    @property
    def head_dim(self):
        if self.config["model_type"] == "chatglm":
            return self.config["kv_channels"]
        return self.config.get("head_dim", self.config["hidden_size"] // self.heads)


ARCHITECTURES = {"llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM",
                 "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
                 "mixtral": "MixtralForCausalLM", "qwen2_moe": "Qwen2MoeForCausalLM",
                 "qwen3_moe": "Qwen3MoeForCausalLM", "deepseek_v2": "DeepseekV2ForCausalLM",
                 "deepseek_v3": "DeepseekV3ForCausalLM",
                 "glm4_moe_lite": "Glm4MoeLiteForCausalLM"}
OWN_CODE = {"internlm2": "InternLM2ForCausalLM", "glm": "GlmForCausalLM", "glm4": "Glm4ForCausalLM",
            "chatglm": "ChatGLMModel"}  # families with makers of their own below
NO_READER = "Braid reads folders of this family alone"
TORCH_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
BLOCK_FORMATS = ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q4_k", "q5_k", "q6_k")


def make(name, family, hidden, ffn, heads, kv_heads, layers=2, vocab=272, dtype="f32", shards=1,
         forms=("f32",), theta=10000.0, eps=1e-5, tied=False, max_positions=512, modern_keys=False,
         rope=None, must_matter=(), split_latent=True, **extra):
    """modern_keys: config.json as transformers 5 writes it (rope_parameters, dtype)."""
    config = {
        "architectures": [{**ARCHITECTURES, **OWN_CODE}[family]], "model_type": family, "hidden_act": "silu",
        "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers,
        "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocab,
        "max_position_embeddings": max_positions, "rms_norm_eps": eps, "tie_word_embeddings": tied,
        "bos_token_id": 256, "eos_token_id": 258, **extra,
    }
    if modern_keys:
        config["rope_parameters"] = {"rope_theta": theta, **(rope or {"rope_type": "default"})}
        config["dtype"] = TORCH_DTYPES[dtype]
    else:
        config["rope_theta"] = theta
        config["rope_scaling"] = rope
        config["torch_dtype"] = TORCH_DTYPES[dtype]
    return Model(name, config, dtype, shards, forms, must_matter, split_latent)


def internlm2(name, *sizes, bias=False, **keys):
    model = make(name, "internlm2", *sizes, forms=(), bias=bias, **keys)
    model.no_gguf = NO_READER
    return model


def glm(name, *sizes, family="glm", **keys):
    return make(name, family, *sizes, forms=("f32", "q8_0"), attention_bias=True,
                partial_rotary_factor=0.5, pad_token_id=258, **keys)


def chatglm(name, hidden, ffn, heads, kv_heads, head_dim, layers=2, vocab=272, rope_ratio=1.0,
            must_matter=()):
    config = {
        "architectures": [OWN_CODE["chatglm"]], "model_type": "chatglm",
        "hidden_size": hidden, "ffn_hidden_size": ffn, "num_layers": layers,
        "num_attention_heads": heads, "multi_query_attention": True,
        "multi_query_group_num": kv_heads, "kv_channels": head_dim, "padded_vocab_size": vocab,
        "seq_length": 512, "layernorm_epsilon": 1.5625e-07, "add_qkv_bias": True,
        "add_bias_linear": False, "rmsnorm": True, "post_layer_norm": True,
        "apply_residual_connection_post_layernorm": False, "rope_ratio": rope_ratio,
        "tie_word_embeddings": False, "bos_token_id": 256, "eos_token_id": 258,
        "torch_dtype": "float32",
    }
    return Model(name, config, must_matter=must_matter)


MODELS = [
    make("llama2_mha", "llama", 64, 176, heads=4, kv_heads=4),
    make("llama3_gqa", "llama", 192, 256, heads=6, kv_heads=2, layers=3, vocab=277, theta=500000.0,
         dtype="bf16", shards=3,
         rope={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
         must_matter=({"rope_scaling": None}, {"rope_theta": 10000.0})),
    make("llama_bias", "llama", 80, 112, heads=5, kv_heads=1, attention_bias=True, mlp_bias=True),
    make("llama_yarn", "llama", 64, 96, heads=2, kv_heads=2, modern_keys=True,
         rope={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
         must_matter=({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
                      {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0,
                                           "factor": 4.0}})),
    make("smollm2", "llama", 144, 160, heads=9, kv_heads=3, layers=3, vocab=320, theta=100000.0,
         tied=True),
    make("mistral_window", "mistral", 96, 144, heads=4, kv_heads=2, dtype="f16", head_dim=32,
         sliding_window=8,
         must_matter=({"sliding_window": None}, {"sliding_window": 7}, {"sliding_window": 9})),
    make("qwen2_tied", "qwen2", 128, 176, heads=4, kv_heads=2, vocab=301, theta=1000000.0, eps=1e-6,
         tied=True, use_sliding_window=False, sliding_window=32, max_window_layers=2),
    make("qwen2_untied", "qwen2", 112, 144, heads=7, kv_heads=1, layers=3, theta=1000000.0,
         eps=1e-6, use_sliding_window=False, sliding_window=None),
    make("qwen3_qk_norm", "qwen3", 64, 128, heads=4, kv_heads=2, layers=3, theta=1000000.0, eps=1e-6,
         head_dim=32, attention_bias=False, tied=True, modern_keys=True),
    # Heads that fused blocks and relays of decode steps take, on one, two and four ranks.
    make("llama_heads_of_64", "llama", 128, 256, heads=8, kv_heads=4, head_dim=64, dtype="bf16",
         theta=500000.0,
         rope={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64}),
    make("mistral_heads_of_64", "mistral", 192, 192, heads=12, kv_heads=4, dtype="bf16", head_dim=64,
         sliding_window=19, must_matter=({"sliding_window": None},)),
    make("qwen2_heads_of_64", "qwen2", 256, 192, heads=4, kv_heads=4, theta=1000000.0, eps=1e-6,
         dtype="bf16", use_sliding_window=False, sliding_window=None),
    make("qwen3_heads_of_128", "qwen3", 192, 256, heads=8, kv_heads=4, theta=1000000.0, eps=1e-6,
         dtype="bf16", head_dim=128, attention_bias=False, tied=True, modern_keys=True),
    make("mixtral", "mixtral", 64, 96, heads=4, kv_heads=2, num_local_experts=8,
         num_experts_per_tok=2, sliding_window=None, must_matter=({"num_experts_per_tok": 1},)),
    make("mixtral_k256", "mixtral", 256, 256, heads=8, kv_heads=2, layers=1, dtype="bf16",
         num_local_experts=4, num_experts_per_tok=2, sliding_window=None,
         forms=("f32", "q8_0", "q4_k", "mixed")),
    make("qwen2_moe", "qwen2_moe", 96, 144, heads=3, kv_heads=3, theta=1000000.0, eps=1e-6, shards=2,
         num_experts=12, num_experts_per_tok=4, moe_intermediate_size=48, norm_topk_prob=False,
         shared_expert_intermediate_size=112, use_sliding_window=False,
         must_matter=({"norm_topk_prob": True}, {"num_experts_per_tok": 3})),
    # GGUF has no word for layers without experts.
    make("qwen2_moe_layers", "qwen2_moe", 64, 80, heads=4, kv_heads=2, layers=4, forms=(),
         num_experts=5, num_experts_per_tok=5, moe_intermediate_size=32, norm_topk_prob=True,
         shared_expert_intermediate_size=64, use_sliding_window=False, decoder_sparse_step=2,
         mlp_only_layers=[1]),
    make("qwen3_moe", "qwen3_moe", 64, 192, heads=4, kv_heads=2, layers=3, theta=1000000.0, eps=1e-6,
         head_dim=32, attention_bias=False, modern_keys=True, num_experts=32,
         num_experts_per_tok=8, moe_intermediate_size=24, norm_topk_prob=True,
         must_matter=({"norm_topk_prob": False},)),
    # V2: groups by their best expert, queries with a latent; V2-Lite: neither, yarn on the logit.
    make("deepseek_v2", "deepseek_v2", 64, 112, heads=4, kv_heads=4, eps=1e-6, q_lora_rank=24,
         kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=24,
         n_routed_experts=12, num_experts_per_tok=3, moe_intermediate_size=24, n_shared_experts=2,
         first_k_dense_replace=1, topk_method="group_limited_greedy", n_group=4, topk_group=2,
         routed_scaling_factor=16.0,
         must_matter=({"topk_method": "greedy"}, {"topk_group": 1}, {"routed_scaling_factor": 1.0})),
    make("deepseek_v2_lite", "deepseek_v2", 96, 80, heads=3, kv_heads=3, layers=3, eps=1e-6,
         q_lora_rank=None, kv_lora_rank=24, qk_nope_head_dim=24, qk_rope_head_dim=16, v_head_dim=32,
         n_routed_experts=8, num_experts_per_tok=2, moe_intermediate_size=32, n_shared_experts=1,
         first_k_dense_replace=1, topk_method="greedy", split_latent=False,
         rope={"type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32,
               "mscale": 0.707, "mscale_all_dim": 0.707, "beta_fast": 32, "beta_slow": 1},
         must_matter=({"rope_scaling": None},
                      {"rope_scaling": {"type": "yarn", "factor": 8.0, "mscale": 0.707,
                                        "original_max_position_embeddings": 32, "beta_fast": 32,
                                        "beta_slow": 1}})),
    make("deepseek_v3", "deepseek_v3", 64, 96, heads=4, kv_heads=4, layers=3, eps=1e-6,
         q_lora_rank=32, kv_lora_rank=40, qk_nope_head_dim=16, qk_rope_head_dim=16, v_head_dim=16,
         n_routed_experts=16, num_experts_per_tok=4, moe_intermediate_size=32, n_shared_experts=1,
         first_k_dense_replace=2, n_group=4, topk_group=2, routed_scaling_factor=2.5,
         norm_topk_prob=True, dtype="f32",
         must_matter=({"norm_topk_prob": False}, {"topk_group": 4}, {"routed_scaling_factor": 1.0},
                      {"rope_interleave": False})),
    make("glm4_moe_lite", "glm4_moe_lite", 80, 96, heads=5, kv_heads=5, modern_keys=True,
         q_lora_rank=24, kv_lora_rank=32, qk_nope_head_dim=24, qk_rope_head_dim=8, v_head_dim=40,
         n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=40, n_shared_experts=1,
         n_group=1, topk_group=1, routed_scaling_factor=1.8, norm_topk_prob=True,
         must_matter=({"norm_topk_prob": False},)),
    internlm2("internlm2", 96, 144, 6, 2, layers=3, theta=1000000.0,
              must_matter=({"rope_theta": 10000.0},)),
    internlm2("internlm2_bias", 80, 112, 5, 1, bias=True),
    glm("glm", 96, 160, 4, 2, head_dim=32, eps=1.5625e-07, theta=10000.0,
        must_matter=({"partial_rotary_factor": 1.0},)),
    glm("glm4", 96, 128, 6, 2, family="glm4", head_dim=16, layers=3, theta=10000.0),
    chatglm("chatglm", 64, 112, 6, 3, 16, layers=3, rope_ratio=500.0,
            must_matter=({"rope_ratio": 1.0},)),
    make("llama_k256", "llama", 256, 512, heads=8, kv_heads=2, layers=1, max_positions=2048,
         forms=("f32", "f16", "bf16", *BLOCK_FORMATS, "mixed")),
]


def experts_of(config):
    """Experts of a layer; 0: a dense model."""
    return config.get("num_local_experts") or config.get("num_experts") or \
        config.get("n_routed_experts") or 0


def sparse(config, layer):
    """Whether a layer has experts."""
    return bool(experts_of(config)) and (layer + 1) % config.get("decoder_sparse_step", 1) == 0 \
        and layer not in config.get("mlp_only_layers", ()) \
        and layer >= config.get("first_k_dense_replace", config["model_type"] == "glm4_moe_lite")


def tensor_specs(model):
    """Names and shapes as Hugging Face has them. Scales give unit-variance activations, attention
    scores and logits far from uniform."""
    config = model.config
    hidden, vocab = config["hidden_size"], model.vocab
    ffn = config.get("ffn_hidden_size") or config["intermediate_size"]
    q_rows, kv_rows = model.heads * model.head_dim, model.kv_heads * model.head_dim
    family = config["model_type"]
    attention_bias = family in ("qwen2", "qwen2_moe") or config.get("attention_bias", False)
    specs = []

    def add(name, shape, base, scale):
        specs.append(TensorSpec(name, list(shape), base, round(scale * 4096) / 4096))

    def linear(name, rows, cols, gain, bias):
        add(f"{name}.weight", (rows, cols), 0.0, gain * math.sqrt(3 / cols))
        if bias:
            add(f"{name}.bias", (rows,), 0.0, 0.5)

    def norm(name, width):
        add(f"{name}.weight", (width,), 1.0, 0.25)

    def latent_attention(name):
        rank, q_rank = config["kv_lora_rank"], config["q_lora_rank"]
        nope, rope, value = (config[key] for key in
                             ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
        if q_rank:
            linear(f"{name}.q_a_proj", q_rank, hidden, 1.4, False)
            norm(f"{name}.q_a_layernorm", q_rank)
        linear(f"{name}.q_b_proj" if q_rank else f"{name}.q_proj", model.heads * (nope + rope),
               q_rank or hidden, 1.4, False)
        linear(f"{name}.kv_a_proj_with_mqa", rank + rope, hidden, 1.4, False)
        norm(f"{name}.kv_a_layernorm", rank)
        linear(f"{name}.kv_b_proj", model.heads * (nope + value), rank, 1.3, False)

    # A tied embedding favours the token it was given: less of it keeps the text from repeating.
    tied = config["tie_word_embeddings"]
    logit_scale = (2.5 if tied else 4) * math.sqrt(3 / hidden)
    if family == "internlm2":
        add("model.tok_embeddings.weight", (vocab, hidden), 0.0, 1.0)
        for i in range(config["num_hidden_layers"]):
            layer = f"model.layers.{i}"
            norm(f"{layer}.attention_norm", hidden)
            linear(f"{layer}.attention.wqkv", q_rows + 2 * kv_rows, hidden, 1.4, config["bias"])
            linear(f"{layer}.attention.wo", hidden, q_rows, 2.0, config["bias"])
            norm(f"{layer}.ffn_norm", hidden)
            linear(f"{layer}.feed_forward.w1", ffn, hidden, 1.4, False)
            linear(f"{layer}.feed_forward.w3", ffn, hidden, 1.2, False)
            linear(f"{layer}.feed_forward.w2", hidden, ffn, 2.0, False)
        norm("model.norm", hidden)
        add("output.weight", (vocab, hidden), 0.0, logit_scale)
        return specs
    if family == "chatglm":
        add("transformer.embedding.word_embeddings.weight", (vocab, hidden), 0.0, 1.0)
        for i in range(config["num_layers"]):
            layer = f"transformer.encoder.layers.{i}"
            norm(f"{layer}.input_layernorm", hidden)
            linear(f"{layer}.self_attention.query_key_value", q_rows + 2 * kv_rows, hidden, 1.4,
                   config["add_qkv_bias"])
            linear(f"{layer}.self_attention.dense", hidden, q_rows, 2.0, False)
            norm(f"{layer}.post_attention_layernorm", hidden)
            linear(f"{layer}.mlp.dense_h_to_4h", 2 * ffn, hidden, 1.4, False)
            linear(f"{layer}.mlp.dense_4h_to_h", hidden, ffn, 2.0, False)
        norm("transformer.encoder.final_layernorm", hidden)
        add("transformer.output_layer.weight", (vocab, hidden), 0.0, logit_scale)
        return specs
    add("model.embed_tokens.weight", (vocab, hidden), 0.0, logit_scale if tied else 1.0)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}"
        norm(f"{layer}.input_layernorm", hidden)
        if "kv_lora_rank" in config:
            latent_attention(f"{layer}.self_attn")
        else:
            linear(f"{layer}.self_attn.q_proj", q_rows, hidden, 1.4, attention_bias)
            linear(f"{layer}.self_attn.k_proj", kv_rows, hidden, 1.4, attention_bias)
            linear(f"{layer}.self_attn.v_proj", kv_rows, hidden, 1.2, attention_bias)
        o_cols = model.heads * config.get("v_head_dim", model.head_dim)
        linear(f"{layer}.self_attn.o_proj", hidden, o_cols, 2.0,
               attention_bias and config["model_type"] == "llama")
        if family in ("qwen3", "qwen3_moe"):
            norm(f"{layer}.self_attn.q_norm", model.head_dim)
            norm(f"{layer}.self_attn.k_norm", model.head_dim)
        norm(f"{layer}.post_attention_layernorm", hidden)
        if family == "glm4":
            norm(f"{layer}.post_self_attn_layernorm", hidden)
            norm(f"{layer}.post_mlp_layernorm", hidden)
        mlp_bias = config.get("mlp_bias", False)

        def block(name, width, parts=("gate_proj", "up_proj", "down_proj")):
            gate, up, down = parts
            if family in ("glm", "glm4"):
                linear(f"{name}.gate_up_proj", 2 * width, hidden, 1.4, False)
                linear(f"{name}.{down}", hidden, width, 2.0, False)
                return
            linear(f"{name}.{gate}", width, hidden, 1.4, mlp_bias)
            linear(f"{name}.{up}", width, hidden, 1.2, mlp_bias)
            linear(f"{name}.{down}", hidden, width, 2.0, mlp_bias)

        if not sparse(config, i):
            block(f"{layer}.mlp", ffn)
            continue
        # Wide routers: choices keep clear of ties.
        moe = f"{layer}.block_sparse_moe" if family == "mixtral" else f"{layer}.mlp"
        width = config.get("moe_intermediate_size", ffn)
        linear(f"{moe}.gate", experts_of(config), hidden, 3.0, False)
        for e in range(experts_of(config)):
            if family == "mixtral":
                block(f"{moe}.experts.{e}", width, ("w1", "w3", "w2"))
            else:
                block(f"{moe}.experts.{e}", width)
        if family in ("deepseek_v3", "glm4_moe_lite"):  # wide: it decides many a choice
            add(f"{moe}.gate.e_score_correction_bias", (experts_of(config),), 0.0, 0.5)
        if "n_shared_experts" in config:
            block(f"{moe}.shared_experts", config["n_shared_experts"] * width)
        if "shared_expert_intermediate_size" in config:
            block(f"{moe}.shared_expert", config["shared_expert_intermediate_size"])
            linear(f"{moe}.shared_expert_gate", 1, hidden, 1.5, False)
    norm("model.norm", hidden)
    if not tied:
        add("lm_head.weight", (vocab, hidden), 0.0, logit_scale)
    return specs
