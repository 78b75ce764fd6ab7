// Fields of components' configurations: those that the libraries write pass, others are refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "braid/engine/diffusion/cogvideox_sampler.h"
#include "braid/engine/diffusion/flow_match.h"
#include "braid/model/autoencoder_cogvideox.h"
#include "braid/model/autoencoder_kl.h"
#include "braid/model/clip_text.h"
#include "braid/model/cogvideox.h"
#include "braid/model/flux.h"
#include "braid/model/t5_encoder.h"

namespace braid {
namespace {

using nlohmann::json;

struct Component {
  std::string name;
  std::string config;  // as the model's authors published it
  std::function<void(const JsonObject&)> read;
};

std::vector<Component> components() {
  return {
      {"flux_scheduler",
       R"({"_class_name": "FlowMatchEulerDiscreteScheduler", "_diffusers_version": "0.30.0.dev0",
           "base_image_seq_len": 256, "base_shift": 0.5, "max_image_seq_len": 4096,
           "max_shift": 1.15, "num_train_timesteps": 1000, "shift": 3.0,
           "use_dynamic_shifting": true})",
       [](const JsonObject& c) { read_flow_match_config(c); }},
      {"video_scheduler",
       R"({"_class_name": "CogVideoXDPMScheduler", "_diffusers_version": "0.30.0.dev0",
           "beta_end": 0.012, "beta_schedule": "scaled_linear", "beta_start": 0.00085,
           "clip_sample": false, "clip_sample_range": 1.0, "num_train_timesteps": 1000,
           "prediction_type": "v_prediction", "rescale_betas_zero_snr": true,
           "sample_max_value": 1.0, "set_alpha_to_one": true, "snr_shift_scale": 1.0,
           "steps_offset": 0, "timestep_spacing": "trailing", "trained_betas": null})",
       [](const JsonObject& c) { read_cogvideox_sampler_config(c); }},
      {"flux_transformer",
       R"({"_class_name": "FluxTransformer2DModel", "_diffusers_version": "0.30.0.dev0",
           "_name_or_path": "../checkpoints/flux-dev/transformer", "attention_head_dim": 128,
           "guidance_embeds": true, "in_channels": 64, "joint_attention_dim": 4096,
           "num_attention_heads": 24, "num_layers": 19, "num_single_layers": 38, "patch_size": 1,
           "pooled_projection_dim": 768})",
       [](const JsonObject& c) { read_flux_config(c); }},
      {"video_transformer",
       R"({"_class_name": "CogVideoXTransformer3DModel", "_diffusers_version": "0.32.0.dev0",
           "activation_fn": "gelu-approximate", "attention_bias": true, "attention_head_dim": 64,
           "dropout": 0.0, "flip_sin_to_cos": true, "freq_shift": 0, "in_channels": 16,
           "max_text_seq_length": 226, "norm_elementwise_affine": true, "norm_eps": 1e-05,
           "num_attention_heads": 48, "num_layers": 42, "ofs_embed_dim": null, "out_channels": 16,
           "patch_bias": false, "patch_size": 2, "patch_size_t": 2, "sample_frames": 81,
           "sample_height": 96, "sample_width": 170, "spatial_interpolation_scale": 1.875,
           "temporal_compression_ratio": 4, "temporal_interpolation_scale": 1.0,
           "text_embed_dim": 4096, "time_embed_dim": 512, "timestep_activation_fn": "silu",
           "use_learned_positional_embeddings": false, "use_rotary_positional_embeddings": true})",
       [](const JsonObject& c) { read_cogvideox_config(c); }},
      {"picture_autoencoder",
       R"({"_class_name": "AutoencoderKL", "_diffusers_version": "0.30.0.dev0", "act_fn": "silu",
           "block_out_channels": [128, 256, 512, 512], "force_upcast": true, "in_channels": 3,
           "down_block_types": ["DownEncoderBlock2D"], "latent_channels": 16, "latents_mean": null,
           "latents_std": null, "layers_per_block": 2, "mid_block_add_attention": true,
           "norm_num_groups": 32, "out_channels": 3, "sample_size": 1024, "scaling_factor": 0.3611,
           "shift_factor": 0.1159, "up_block_types": ["UpDecoderBlock2D"],
           "use_post_quant_conv": false, "use_quant_conv": false})",
       [](const JsonObject& c) { read_autoencoder_kl_config(c); }},
      {"video_autoencoder",
       R"({"_class_name": "AutoencoderKLCogVideoX", "_diffusers_version": "0.32.0.dev0",
           "act_fn": "silu", "block_out_channels": [128, 256, 256, 512], "force_upcast": true,
           "down_block_types": ["CogVideoXDownBlock3D"], "in_channels": 3,
           "invert_scale_latents": false, "latent_channels": 16, "latents_mean": null,
           "latents_std": null, "layers_per_block": 3, "norm_eps": 1e-06, "norm_num_groups": 32,
           "out_channels": 3, "sample_height": 480, "sample_width": 720, "scaling_factor": 0.7,
           "shift_factor": null, "temporal_compression_ratio": 4,
           "up_block_types": ["CogVideoXUpBlock3D"], "use_post_quant_conv": false,
           "use_quant_conv": false})",
       [](const JsonObject& c) { read_autoencoder_cogvideox_config(c); }},
      {"clip",
       R"({"_name_or_path": "openai/clip-vit-large-patch14", "architectures": ["CLIPTextModel"],
           "attention_dropout": 0.0, "bos_token_id": 0, "dropout": 0.0, "eos_token_id": 2,
           "hidden_act": "quick_gelu", "hidden_size": 768, "initializer_factor": 1.0,
           "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-05,
           "max_position_embeddings": 77, "model_type": "clip_text_model",
           "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 1,
           "projection_dim": 768, "torch_dtype": "bfloat16", "transformers_version": "4.43.3",
           "vocab_size": 49408})",
       [](const JsonObject& c) { read_clip_text_config(c); }},
      {"t5",
       R"({"_name_or_path": "google/t5-v1_1-xxl", "architectures": ["T5EncoderModel"],
           "classifier_dropout": 0.0, "d_ff": 10240, "d_kv": 64, "d_model": 4096,
           "decoder_start_token_id": 0, "dense_act_fn": "gelu_new", "dropout_rate": 0.1,
           "eos_token_id": 1, "feed_forward_proj": "gated-gelu", "initializer_factor": 1.0,
           "is_encoder_decoder": true, "is_gated_act": true, "layer_norm_epsilon": 1e-06,
           "model_type": "t5", "num_decoder_layers": 24, "num_heads": 64, "num_layers": 24,
           "output_past": true, "pad_token_id": 0, "relative_attention_max_distance": 128,
           "relative_attention_num_buckets": 32, "tie_word_embeddings": false,
           "torch_dtype": "bfloat16", "transformers_version": "4.43.3", "use_cache": true,
           "vocab_size": 32128})",
       [](const JsonObject& c) { read_t5_encoder_config(c); }},
  };
}

class ConfigFields : public testing::TestWithParam<Component> {};

TEST_P(ConfigFields, PublishedOnesPass) {
  const Component& c = GetParam();
  EXPECT_NO_THROW(c.read(JsonObject("config.json", json::parse(c.config))));
}

TEST_P(ConfigFields, UnknownOnesAreRefusedByName) {
  const Component& c = GetParam();
  for (const auto& [key, value] : {std::pair<std::string, json>{"foo_option", true},
                                   {"use_karras", true},
                                   {"sigma_schedule", "beta"},
                                   {"quantization_config", json::object()}}) {
    json config = json::parse(c.config);
    config[key] = value;
    try {
      c.read(JsonObject("config.json", config));
      ADD_FAILURE() << key << " passes";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
      EXPECT_THAT(e.what(), testing::HasSubstr("'" + key + "'"));
    }
    config[key] = nullptr;  // as absent
    EXPECT_NO_THROW(c.read(JsonObject("config.json", config))) << key;
  }
}

INSTANTIATE_TEST_SUITE_P(Components, ConfigFields, testing::ValuesIn(components()),
                         [](const auto& info) { return info.param.name; });

// Known fields with values that would change the picture.
TEST(ConfigValues, AreRefusedByName) {
  for (const auto& [name, key, value] :
       {std::tuple<std::string, std::string, json>{"flux_scheduler", "use_beta_sigmas", true},
        {"flux_scheduler", "stochastic_sampling", true},
        {"video_scheduler", "beta_schedule", "linear"},
        {"picture_autoencoder", "_class_name", "AutoencoderTiny"},
        {"video_autoencoder", "norm_eps", 1e-5},
        {"video_autoencoder", "up_block_types", "UpBlock3D"},
        {"clip", "model_type", "siglip"},
        {"t5", "model_type", "umt5"},
        {"t5", "dense_act_fn", "relu"},
        {"t5", "is_decoder", true}}) {
    for (const Component& c : components()) {
      if (c.name != name) continue;
      json config = json::parse(c.config);
      config[key] = value;
      try {
        c.read(JsonObject("config.json", config));
        ADD_FAILURE() << name << ": " << key << " passes";
      } catch (const Error& e) {
        EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
        EXPECT_THAT(e.what(), testing::HasSubstr(key));
      }
    }
  }
}

}  // namespace
}  // namespace braid
