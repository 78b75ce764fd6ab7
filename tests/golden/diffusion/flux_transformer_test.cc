// Flux's transformer, sampler and noise against diffusers, step by step.
#include "braid/engine/diffusion/flux_transformer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "braid/engine/diffusion/flow_match.h"
#include "braid/engine/diffusion/latents.h"
#include "braid/engine/diffusion/torch_generator.h"
#include "golden/diffusion/case.h"

namespace braid::golden {
namespace {

// The largest difference, of values around 1.
double distance(std::span<const float> x, std::span<const float> y) {
  EXPECT_EQ(x.size(), y.size());
  double most = 0;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    const double d = std::abs(static_cast<double>(x[i]) - y[i]);
    most = std::isnan(d) ? INFINITY : std::max(most, d);
  }
  return most;
}

class FluxCase : public testing::TestWithParam<DiffusionCase> {};

TEST_P(FluxCase, EveryStepMatchesDiffusers) {
  const DiffusionCase& c = GetParam();
  const SafetensorsFile golden(diffusion_golden(c.name + ".safetensors"));
  const DiffusersFolder folder(tiny_pipeline(c.kind));
  const auto weights = folder.weights("transformer");
  FluxTransformer transformer(folder.config("transformer"), *weights, {.threads = 2});

  const int64_t tokens = golden.get("latents").shape[2];
  const int64_t per_pixel = c.kind == "guided" ? 8 : 4;
  const LatentShape shape{.channels = transformer.config().in_channels / 4,
                          .height = c.height / per_pixel * 2,
                          .width = c.width / per_pixel * 2};
  ASSERT_EQ(tokens, shape.tokens());

  std::vector<float> latents;
  for (uint64_t seed : c.seeds) {
    std::vector<float> noise(static_cast<size_t>(shape.elems()));
    TorchGenerator(seed).normals(noise);
    const auto packed = tokens_of_noise(shape, noise);
    latents.insert(latents.end(), packed.begin(), packed.end());
  }
  EXPECT_LT(distance(latents, tensor<float>(golden, "noise")), 1e-6);

  const auto sigmas = flow_match_sigmas(
      read_flow_match_config(folder.config("scheduler", "scheduler_config.json")), c.steps, tokens);
  EXPECT_LT(distance(sigmas, tensor<float>(golden, "sigmas")), 1e-6);

  const auto text = tensor<float>(golden, "text"), pooled = tensor<float>(golden, "pooled");
  transformer.begin({.batch = c.batch(),
                     .token_rows = shape.token_rows(),
                     .token_columns = shape.token_columns(),
                     .text = text,
                     .pooled = pooled,
                     .sigmas = std::span(sigmas).first(static_cast<size_t>(c.steps)),
                     .guidance = c.guidance});
  const auto want = tensor<float>(golden, "latents");
  double worst = 0;
  for (int64_t i = 0; i < c.steps; ++i) {
    euler_step(latents, transformer.velocity(i, latents), sigmas[i], sigmas[i + 1]);
    const auto step = std::span(want).subspan(static_cast<size_t>(i) * latents.size());
    worst = std::max(worst, distance(latents, step.first(latents.size())));
    ASSERT_LT(worst, 1e-4) << "step " << i;
  }
  RecordProperty("worst", std::to_string(worst));
}

INSTANTIATE_TEST_SUITE_P(Flux, FluxCase, testing::ValuesIn(diffusion_cases()),
                         [](const auto& info) { return info.param.name; });

TEST(FlowMatch, SigmasMatchDiffusers) {
  const nlohmann::json tables = diffusion_json("flow_match.json");
  for (const auto& table : tables) {
    SCOPED_TRACE(table.at("config").dump());
    const FlowMatchConfig config =
        read_flow_match_config(JsonObject("scheduler_config.json", table.at("config")));
    const auto sigmas = flow_match_sigmas(config, table.at("steps"), table.at("tokens"));
    EXPECT_LT(distance(sigmas, table.at("sigmas").get<std::vector<float>>()), 1e-6);
  }
}

TEST(TorchGenerator, DrawsWhatTorchDraws) {
  const nlohmann::json seeds = diffusion_json("torch_random.json");
  for (const auto& draws : seeds) {
    const uint64_t seed = std::stoull(draws.at("seed").get<std::string>());
    SCOPED_TRACE(seed);
    TorchGenerator integers(seed);
    for (uint32_t want : draws.at("low_24_bits")) EXPECT_EQ(integers.next() & 0xffffff, want);
    TorchGenerator generator(seed);
    for (const auto& call : draws.at("normals")) {
      std::vector<float> x(call.at("count").get<size_t>());
      generator.normals(x);
      const std::vector<float> first = call.at("first"), last = call.at("last");
      const auto n = first.size();
      EXPECT_LT(distance(std::span(x).first(n), first), 5e-7) << x.size();
      EXPECT_LT(distance(std::span(x).last(n), last), 5e-7) << x.size();
    }
    // Rounded, numbers are equal but for a last place that hangs on the f32 number's last place.
    for (const auto& [name, type, place] :
         {std::tuple("bf16", DType::bf16, 0x1p-8), {"f16", DType::f16, 0x1p-11}}) {
      const std::vector<float> want = draws.at(name);
      std::vector<float> x(want.size());
      TorchGenerator(seed, type).normals(x);
      int64_t equal = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        equal += x[i] == want[i] ? 1 : 0;
        EXPECT_NEAR(x[i], want[i], std::abs(want[i]) * place) << name << " " << i;
      }
      EXPECT_GE(equal, std::ssize(x) - 1) << name;
    }
  }
}

// The names and shapes of the real checkpoints: each tensor is read once and none is left.
TEST(FluxTransformer, TakesEveryTensorOfTheFullSize) {
  const nlohmann::json models = diffusion_json("flux_names.json");
  for (const auto& [name, model] : models.items()) {
    SCOPED_TRACE(name);
    const FluxConfig config = read_flux_config(JsonObject("config.json", model.at("config")));
    std::map<std::string, std::vector<int64_t>> found;
    const WeightDtype bf16 = [](std::string_view) { return DType::bf16; };
    for (const Program& program :
         {flux_text(config, 512, bf16), flux_modulation(config, 28, bf16),
          flux_step(config, {.batch = 1, .text = 512, .image = 4096}, bf16)}) {
      for (const Value& value : program.values) {
        if (value.kind != ValueKind::weight) continue;
        const Shape& shape = value.type.shape;
        EXPECT_TRUE(
            found.emplace(value.name, std::vector<int64_t>(shape.begin(), shape.end())).second)
            << value.name;
      }
    }
    EXPECT_EQ(found, (model.at("tensors").get<std::map<std::string, std::vector<int64_t>>>()));
  }
}

}  // namespace
}  // namespace braid::golden
