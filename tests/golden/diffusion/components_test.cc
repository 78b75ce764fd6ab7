// Text encoders and the autoencoder's decoder against transformers and diffusers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "braid/engine/diffusion/network.h"
#include "braid/io/padded_prompt.h"
#include "braid/io/tokenizer_load.h"
#include "braid/model/autoencoder_cogvideox.h"
#include "braid/model/autoencoder_kl.h"
#include "braid/model/clip_text.h"
#include "braid/model/t5_encoder.h"
#include "braid/ops/relative_bias.h"
#include "golden/diffusion/case.h"

namespace braid::golden {
namespace {

// The largest difference, relative to the largest wanted value.
double relative(std::span<const float> x, std::span<const float> want) {
  EXPECT_EQ(x.size(), want.size());
  double most = 0, size = 0;
  for (size_t i = 0; i < std::min(x.size(), want.size()); ++i) {
    const double d = std::abs(static_cast<double>(x[i]) - want[i]);
    most = std::isnan(d) ? INFINITY : std::max(most, d);
    size = std::max(size, std::abs(static_cast<double>(want[i])));
  }
  return most / size;
}

using Ids = std::vector<int32_t>;

class TextCase : public testing::TestWithParam<DiffusionCase> {
 protected:
  // The ids of all prompts, padded; equal to those of transformers.
  Ids ids(const char* folder, int64_t length, const char* golden) {
    const Tokenizer tokenizer(tokenizer_from_folder(folder_.folder(folder)));
    Ids all;
    ends_.clear();
    for (const std::string& prompt : case_.prompts) {
      const PaddedPrompt padded = padded_prompt(tokenizer, prompt, length);
      const auto end = std::ranges::find(padded.ids, tokenizer.special().eos);
      ends_.push_back(static_cast<int32_t>(std::ssize(all) + (end - padded.ids.begin())));
      all.insert(all.end(), padded.ids.begin(), padded.ids.end());
    }
    EXPECT_EQ(all, tensor<int32_t>(golden_, golden));
    return all;
  }

  const DiffusionCase& case_ = GetParam();
  const SafetensorsFile golden_{diffusion_golden(case_.name + ".safetensors")};
  const DiffusersFolder folder_{tiny_pipeline(case_.kind)};
  Ids ends_;  // rows of the first EOS of each prompt
};

TEST_P(TextCase, ClipMatchesTransformers) {
  const auto config = read_clip_text_config(folder_.config("text_encoder"));
  const auto weights = folder_.weights("text_encoder");
  Network network("text encoder", *weights, {.threads = 2});
  const auto make = [&] {
    return clip_text(config, case_.batch(), config.positions, network.dtype_of());
  };
  network.check({{make()}}, clip_text_ignores);
  BoundNetwork& bound = network.plan("clip", make);
  const Ids tokens = ids("tokenizer", config.positions, "clip_ids");
  Ids positions;
  for (size_t i = 0; i < tokens.size(); ++i) {
    positions.push_back(static_cast<int32_t>(i) % static_cast<int32_t>(config.positions));
  }
  bound.write("token_ids", tokens);
  bound.write("positions", positions);
  bound.write("rows", ends_);
  bound.run();
  EXPECT_LT(relative(bound.output(0), tensor<float>(golden_, "pooled")), 1e-5);
}

TEST_P(TextCase, T5MatchesTransformers) {
  const auto config = read_t5_encoder_config(folder_.config("text_encoder_2"));
  const auto weights = folder_.weights("text_encoder_2");
  Network network("text encoder", *weights, {.threads = 2});
  const T5EncoderShape shape{.batch = case_.batch(), .length = case_.text};
  const auto make = [&] { return t5_encoder(config, shape, network.dtype_of()); };
  network.check({{make()}}, t5_encoder_ignores);
  BoundNetwork& bound = network.plan("t5", make);
  bound.write("token_ids", ids("tokenizer_2", case_.text, "t5_ids"));
  bound.run();
  const auto want = tensor<float>(golden_, "text");
  EXPECT_LT(relative(bound.output(0), want), 3e-5);

  // Padding that is not attended to changes no token of the text.
  const T5EncoderShape padded{.batch = case_.batch(), .length = case_.text + 3, .padding = true};
  BoundNetwork& longer =
      network.plan("t5 padded", [&] { return t5_encoder(config, padded, network.dtype_of()); });
  const Ids tokens = tensor<int32_t>(golden_, "t5_ids");
  Ids more;
  for (int64_t b = 0; b < case_.batch(); ++b) {
    const auto begin = tokens.begin() + (b * case_.text);
    more.insert(more.end(), begin, begin + case_.text);
    more.insert(more.end(), 3, 5);
  }
  longer.write("token_ids", more);
  longer.write("key_len",
               Ids(static_cast<size_t>(case_.batch()), static_cast<int32_t>(case_.text)));
  longer.run();
  const auto per_text = static_cast<size_t>(case_.text * config.width);
  for (size_t b = 0; b < static_cast<size_t>(case_.batch()); ++b) {
    const auto with_padding = static_cast<size_t>(padded.length * config.width);
    EXPECT_LT(relative(longer.output(0).subspan(b * with_padding, per_text),
                       std::span(want).subspan(b * per_text, per_text)),
              3e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Flux, TextCase, testing::ValuesIn(diffusion_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(AutoencoderKl, DecodesAsDiffusers) {
  const SafetensorsFile golden(diffusion_golden("autoencoder.safetensors"));
  for (const char* kind : {"guided", "fast"}) {
    const DiffusersFolder folder(tiny_pipeline(kind));
    const auto config = read_autoencoder_kl_config(folder.config("vae"));
    EXPECT_FLOAT_EQ(config.scaling_factor, 0.3611f);
    EXPECT_FLOAT_EQ(config.shift_factor, 0.1159f);
    const auto weights = folder.weights("vae");
    Network network("autoencoder", *weights, {.threads = 2});
    for (int i = 0; i < 2; ++i) {
      const std::string name = fmt::format("{}.{}", kind, i);
      SCOPED_TRACE(name);
      const Shape z = golden.get(name + ".latents").shape;
      const LatentSize size{.batch = z[0], .height = z[1], .width = z[2]};
      const auto make = [&] { return autoencoder_kl_decode(config, size, network.dtype_of()); };
      network.check({{make()}}, autoencoder_kl_ignores);
      BoundNetwork& bound = network.plan(name, make);
      bound.write("latents", tensor<float>(golden, name + ".latents"));
      bound.run();
      EXPECT_EQ(golden.get(name + ".image").shape[1], size.height * config.scale());
      EXPECT_LT(relative(bound.output(0), tensor<float>(golden, name + ".image")), 2e-5);
    }
  }
}

TEST(AutoencoderCogVideoX, DecodesAsDiffusers) {
  const SafetensorsFile golden(diffusion_golden("video_autoencoder.safetensors"));
  const AutoencoderCogVideoXConfig config{
      .latent_channels = 4, .channels = {4, 4, 8, 8}, .resnets = 1, .groups = 2};
  Network network("autoencoder", golden, {.threads = 2});
  for (const int64_t frames : {1, 2, 5, 6}) {
    SCOPED_TRACE(frames);
    const Shape z = golden.get(fmt::format("latents.{}", frames)).shape;
    const auto latents = tensor<float>(golden, fmt::format("latents.{}", frames));
    const VideoLatentSize size{.frames = frames, .height = z[1], .width = z[2]};
    const auto make = [&] {
      return autoencoder_cogvideox_decode(config, size, network.dtype_of());
    };
    network.check({{make()}}, [](std::string_view tensor) {
      return tensor.starts_with("latents.") || tensor.starts_with("pixels.");
    });
    BoundNetwork& bound = network.plan(std::to_string(frames), make);
    const std::vector<int64_t> chunks = cogvideox_chunks(frames);
    size_t at = 0;
    for (size_t i = 0; i < chunks.size(); ++i) {
      const auto count = static_cast<size_t>(chunks[i] * z[1] * z[2] * z[3]);
      bound.write(fmt::format("latents.{}", i), std::span(latents).subspan(at, count));
      at += count;
    }
    EXPECT_EQ(at, latents.size());
    bound.run();
    std::vector<float> pixels;
    for (size_t i = 0; i < chunks.size(); ++i) {
      const auto part = bound.output(i);
      pixels.insert(pixels.end(), part.begin(), part.end());
    }
    EXPECT_LT(relative(pixels, tensor<float>(golden, fmt::format("pixels.{}", frames))), 3e-5);
  }
}

TEST(T5Encoder, BucketsMatchTransformers) {
  const std::vector<int64_t> want = diffusion_json("t5_buckets.json")[0];
  for (int64_t distance = -999; distance <= 999; ++distance) {
    EXPECT_EQ(ops::relative_bucket(distance, 32, 128), want[static_cast<size_t>(distance + 999)])
        << distance;
  }
}

// The names and shapes of the real checkpoints: each tensor is read once and none is left.
TEST(Components, TakeEveryTensorOfTheFullSize) {
  const nlohmann::json models = diffusion_json("component_names.json");
  const WeightDtype f32 = [](std::string_view) { return DType::f32; };
  const auto config = [&](const char* name) {
    return JsonObject("config.json", models.at(name).at("config"));
  };
  const auto check = [&](const char* name, const Program& program, auto ignores) {
    SCOPED_TRACE(name);
    std::map<std::string, std::vector<int64_t>> found;
    for (const Value& value : program.values) {
      if (value.kind != ValueKind::weight) continue;
      const Shape& shape = value.type.shape;
      EXPECT_TRUE(
          found.emplace(value.name, std::vector<int64_t>(shape.begin(), shape.end())).second)
          << value.name << " is read twice";
    }
    std::map<std::string, std::vector<int64_t>> want = models.at(name).at("tensors");
    std::erase_if(want, [&](const auto& tensor) { return ignores(tensor.first); });
    EXPECT_EQ(found, want);
  };
  check("clip", clip_text(read_clip_text_config(config("clip")), 1, 77, f32), clip_text_ignores);
  check("t5", t5_encoder(read_t5_encoder_config(config("t5")), {.length = 512}, f32),
        t5_encoder_ignores);
  check("vae",
        autoencoder_kl_decode(read_autoencoder_kl_config(config("vae")),
                              {.height = 128, .width = 128}, f32),
        autoencoder_kl_ignores);
  const auto video = read_autoencoder_cogvideox_config(config("cogvideox_vae"));
  check("cogvideox_vae",
        autoencoder_cogvideox_decode(video, {.frames = 13, .height = 60, .width = 90}, f32),
        autoencoder_cogvideox_ignores);
}

}  // namespace
}  // namespace braid::golden
