"""Components of tiny CogVideoX pipelines: sizes, transformer, video autoencoder."""

from tiny_weights import Weights, write_json

COMPONENTS = ("scheduler", "tokenizer", "text_encoder", "transformer", "vae")


def scheduler(name, shift):
    return {"_class_name": f"CogVideoX{name}Scheduler", "num_train_timesteps": 1000,
            "beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear",
            "clip_sample": False, "prediction_type": "v_prediction", "rescale_betas_zero_snr": True,
            "set_alpha_to_one": True, "snr_shift_scale": shift, "steps_offset": 0,
            "timestep_spacing": "trailing", "trained_betas": None}


# As 2B: added positions, DDIM. As 5B: rotary positions, DPM. As 1.5: pairs of latent frames.
KINDS = {
    "video": {
        "transformer": {"blocks": 2, "heads": 3, "head_dim": 16, "time": 24, "patch_frames": None,
                        "rotary": False, "sample": [12, 8, 9], "dtype": "F16", "shards": 1},
        "scheduler": scheduler("DDIM", 3.0),
        "t5": {"width": 32, "hidden": 40, "heads": 4, "head_dim": 8, "layers": 2},
        "vae": {"latent": 4, "blocks": [8, 8, 16], "layers": 1, "groups": 4,
                "scaling_factor": 1.15258426},
    },
    "video_rotary": {
        "transformer": {"blocks": 2, "heads": 4, "head_dim": 16, "time": 16, "patch_frames": None,
                        "rotary": True, "sample": [8, 6, 9], "dtype": "BF16", "shards": 2},
        "scheduler": scheduler("DPM", 1.0),
        "t5": {"width": 24, "hidden": 32, "heads": 3, "head_dim": 10, "layers": 1},
        "vae": {"latent": 4, "blocks": [8, 8, 8], "layers": 1, "groups": 2, "scaling_factor": 0.7},
    },
    "video_pairs": {
        "transformer": {"blocks": 1, "heads": 2, "head_dim": 32, "time": 16, "patch_frames": 2,
                        "rotary": True, "sample": [12, 12, 17], "dtype": "F32", "shards": 1},
        "scheduler": scheduler("DPM", 1.0),
        "t5": {"width": 24, "hidden": 32, "heads": 3, "head_dim": 10, "layers": 1},
        "vae": {"latent": 4, "blocks": [8, 8, 8], "layers": 1, "groups": 2, "scaling_factor": 0.7},
    },
}


def index(kind):
    return {"_class_name": "CogVideoXPipeline", "_diffusers_version": "0.42.1",
            "scheduler": ["diffusers", kind["scheduler"]["_class_name"]],
            "text_encoder": ["transformers", "T5EncoderModel"],
            "tokenizer": ["transformers", "T5TokenizerFast"],
            "transformer": ["diffusers", "CogVideoXTransformer3DModel"],
            "vae": ["diffusers", "AutoencoderKLCogVideoX"]}


def transformer(folder, kind):
    t, latent, text = kind["transformer"], kind["vae"]["latent"], kind["t5"]["width"]
    width, height, frames = t["sample"]
    C = t["heads"] * t["head_dim"]
    write_json(folder / "config.json", {
        "_class_name": "CogVideoXTransformer3DModel", "activation_fn": "gelu-approximate",
        "attention_bias": True, "attention_head_dim": t["head_dim"], "dropout": 0.0,
        "flip_sin_to_cos": True, "freq_shift": 0, "in_channels": latent,
        "max_text_seq_length": 16, "norm_elementwise_affine": True, "norm_eps": 1e-05,
        "num_attention_heads": t["heads"], "num_layers": t["blocks"], "ofs_embed_dim": None,
        "out_channels": latent, "patch_bias": not t["patch_frames"], "patch_size": 2,
        "patch_size_t": t["patch_frames"], "sample_frames": frames, "sample_height": height,
        "sample_width": width, "spatial_interpolation_scale": 1.875,
        "temporal_compression_ratio": 4, "temporal_interpolation_scale": 1.0,
        "text_embed_dim": text, "time_embed_dim": t["time"], "timestep_activation_fn": "silu",
        "use_learned_positional_embeddings": False,
        "use_rotary_positional_embeddings": t["rotary"]})
    w = Weights("transformer", t["dtype"])
    patch = latent * 4 * (t["patch_frames"] or 1)
    if t["patch_frames"]:
        w.linear("patch_embed.proj", C, patch)
    else:
        w.conv("patch_embed.proj", C, latent, 2)
    w.linear("patch_embed.text_proj", C, text)
    w.linear("time_embedding.linear_1", t["time"], C)
    w.linear("time_embedding.linear_2", t["time"], t["time"])
    for i in range(t["blocks"]):
        block = f"transformer_blocks.{i}"
        for norm in ("norm1", "norm2"):
            w.linear(f"{block}.{norm}.linear", 6 * C, t["time"])
            w.norm(f"{block}.{norm}.norm", C)
        for name in ("to_q", "to_k", "to_v", "to_out.0"):
            w.linear(f"{block}.attn1.{name}", C, C)
        for name in ("norm_q", "norm_k"):
            w.norm(f"{block}.attn1.{name}", t["head_dim"])
        w.linear(block + ".ff.net.0.proj", 4 * C, C)
        w.linear(block + ".ff.net.2", C, 4 * C)
    w.norm("norm_final", C)
    w.linear("norm_out.linear", 2 * C, t["time"])
    w.norm("norm_out.norm", C)
    w.linear("proj_out", patch, C)
    w.write(folder, "diffusion_pytorch_model", t["shards"])


def causal(w, name, out, channels):
    w.conv(name + ".conv", out, channels, 3, axes=3)


def norm(w, name, channels, latent):
    """A group norm; in the decoder the latents scale and shift it."""
    if not latent:
        w.norm(name, channels)
        return
    w.norm(name + ".norm_layer", channels)
    w.conv(name + ".conv_y.conv", channels, latent, 1, axes=3)
    w.conv(name + ".conv_b.conv", channels, latent, 1, axes=3)


def resnet(w, name, channels, out, latent):
    norm(w, name + ".norm1", channels, latent)
    causal(w, name + ".conv1", out, channels)
    norm(w, name + ".norm2", out, latent)
    causal(w, name + ".conv2", out, out)
    if channels != out:
        w.conv(name + ".conv_shortcut", out, channels, 1, axes=3)


def vae(folder, kind):
    v = kind["vae"]
    sizes, levels, latent = v["blocks"], len(v["blocks"]), v["latent"]
    write_json(folder / "config.json", {
        "_class_name": "AutoencoderKLCogVideoX", "act_fn": "silu", "block_out_channels": sizes,
        "down_block_types": levels * ["CogVideoXDownBlock3D"], "force_upcast": True,
        "in_channels": 3, "latent_channels": latent, "latents_mean": None, "latents_std": None,
        "layers_per_block": v["layers"], "norm_eps": 1e-06, "norm_num_groups": v["groups"],
        "out_channels": 3, "sample_height": 480, "sample_width": 720,
        "scaling_factor": v["scaling_factor"], "shift_factor": None,
        "temporal_compression_ratio": 4, "up_block_types": levels * ["CogVideoXUpBlock3D"],
        "use_post_quant_conv": False, "use_quant_conv": False})
    w = Weights("vae")
    for side, order, of_norm in (("encoder", sizes, None), ("decoder", sizes[::-1], latent)):
        way = "up" if of_norm else "down"
        first, last = (latent, 3) if of_norm else (3, 2 * latent)
        causal(w, side + ".conv_in", order[0], first)
        before = order[0]
        for i, size in enumerate(order):
            block = f"{side}.{way}_blocks.{i}"
            for j in range(v["layers"] + bool(of_norm)):
                resnet(w, f"{block}.resnets.{j}", size if j else before, size, of_norm)
            if i + 1 < levels:
                w.conv(f"{block}.{way}samplers.0.conv", size, size, 3)
            before = size
        for i in range(2):
            middle = order[0] if of_norm else order[-1]
            resnet(w, f"{side}.mid_block.resnets.{i}", middle, middle, of_norm)
        norm(w, side + ".norm_out", before, of_norm)
        causal(w, side + ".conv_out", last, before)
    w.write(folder, "diffusion_pytorch_model")
