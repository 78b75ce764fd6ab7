// Flux's steps over ranks that divide the sequence of text and image: the same as on one rank, each
// token on one rank, nothing padded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "braid/engine/diffusion/flux_transformer.h"
#include "braid/parallel/sequence_parallel.h"
#include "golden/diffusion/case.h"
#include "golden/diffusion/differences.h"
#include "golden/diffusion/flux_steps.h"
#include "golden/diffusion/impossible.h"
#include "golden/diffusion/linear_rows.h"

namespace braid::golden {
namespace {

const Topology kTopologies[] = {{1, 2}, {2, 1}, {1, 3}, {2, 2}, {1, 5}, {3, 2}, {2, 4}};

// The velocities of two steps from the same inputs.
std::vector<float> velocities(FluxTransformer& transformer, const Picture& s) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  const auto draw = [&](int64_t n, int) {
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x) v = normal(random);
    return x;
  };
  begin(transformer, s, std::vector<float>{1.0f, 0.4f}, draw);
  const auto latents = draw(s.rows * s.columns * transformer.config().in_channels, 3);
  std::vector<float> all;
  for (int64_t step : {0, 1}) {
    const auto v = transformer.velocity(step, latents);
    all.insert(all.end(), v.begin(), v.end());
  }
  return all;
}

struct Loaded {
  explicit Loaded(const std::string& kind)
      : folder(tiny_pipeline(kind)), weights(folder.weights("transformer")) {}
  FluxTransformer transformer(const NetworkConfig& network) const {
    return {folder.config("transformer"), *weights, network};
  }
  DiffusersFolder folder;
  std::unique_ptr<WeightSource> weights;
};

void expect_near(const std::vector<float>& got, const std::vector<float>& want) {
  EXPECT_LE(worst_difference(got, want), 1e-5);
}

class FluxRanks : public testing::TestWithParam<SpMode> {};

TEST_P(FluxRanks, EqualOneRank) {
  for (const char* kind : {"guided", "fast"}) {
    const Loaded loaded(kind);
    FluxTransformer alone = loaded.transformer({.threads = 2});
    const int64_t heads = alone.config().heads;
    std::map<int64_t, std::vector<float>> wanted;
    for (const Topology& topology : kTopologies) {
      if (impossible(GetParam(), topology, heads)) {
        EXPECT_THROW(sequence_mesh(GetParam(), topology, heads), Error);
        continue;
      }
      const SequenceMesh mesh = sequence_mesh(GetParam(), topology, heads);
      FluxTransformer divided = loaded.transformer({.threads = 1, .mesh = mesh});
      for (const Picture& s : {Picture{1, 3, 5}, {77, 2, 3}, {20, 4, 4}}) {
        SCOPED_TRACE(testing::Message()
                     << kind << ", " << to_string(topology) << ", " << to_string(mesh.degrees)
                     << ", text " << s.text << ", image " << s.rows << " x " << s.columns);
        auto& want = wanted[s.text];
        if (want.empty()) want = velocities(alone, s);
        expect_near(velocities(divided, s), want);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, FluxRanks, testing::ValuesIn(kSpModes),
                         [](const auto& info) { return std::string(to_string(info.param)); });

// The same ranks take one mesh after another, and strategies that hide or do not.
TEST(FluxMeshes, OneAfterAnotherOnTheSameRanks) {
  const Loaded loaded("guided");
  FluxTransformer alone = loaded.transformer({.threads = 2});
  const Picture shape{20, 4, 4};
  const std::vector<float> want = velocities(alone, shape);
  for (const Topology& topology : {Topology{.machines = 2, .devices = 2}, {4, 1}}) {
    std::vector<SequenceMesh> meshes;
    for (SpMode mode : kSpModes) {
      for (SequenceMesh& mesh : sequence_meshes(mode, topology, alone.config().heads)) {
        meshes.push_back(std::move(mesh));
      }
    }
    FluxTransformer divided = loaded.transformer({.mesh = meshes[0], .further = meshes});
    for (const SequenceMesh& mesh : meshes) {
      for (const char* schedule : {"sequential", "sequence_parallel"}) {
        SCOPED_TRACE(testing::Message() << to_string(mesh.mode) << ", " << to_string(mesh.degrees)
                                        << ", " << schedule);
        divided.divide_by(mesh, schedule);
        EXPECT_EQ(divided.mesh()->degrees, mesh.degrees);
        expect_near(velocities(divided, shape), want);
      }
    }
  }
}

// Text whole on each rank, beside shares of the image.
TEST_P(FluxRanks, ReplicatedTextEqualsOneRank) {
  for (const char* kind : {"guided", "fast"}) {
    const Loaded loaded(kind);
    FluxTransformer alone = loaded.transformer({.threads = 2});
    const int64_t heads = alone.config().heads;
    std::map<int64_t, std::vector<float>> wanted;
    for (const Topology& topology : kTopologies) {
      if (impossible(GetParam(), topology, heads)) continue;
      const SequenceMesh mesh = sequence_mesh(GetParam(), topology, heads);
      FluxTransformer divided =
          loaded.transformer({.threads = 1, .mesh = mesh, .text = TextRows::replicated});
      for (const Picture& s : {Picture{1, 3, 5}, {77, 2, 5}, {20, 4, 4}}) {
        SCOPED_TRACE(testing::Message()
                     << kind << ", " << to_string(topology) << ", " << to_string(mesh.degrees)
                     << ", text " << s.text << ", image " << s.rows << " x " << s.columns);
        auto& want = wanted[s.text];
        if (want.empty()) want = velocities(alone, s);
        expect_near(velocities(divided, s), want);
      }
      divided.divide_by(mesh, "sequential", TextRows::split);
      expect_near(velocities(divided, {1, 3, 5}), wanted[1]);
    }
  }
}

// At the full size, in every mode: rows of each linear, over all ranks, are the tokens that it is
// for.
TEST(FluxRows, EachTokenPassesEachLinearOnce) {
  const WeightDtype bf16 = [](std::string_view) { return DType::bf16; };
  FluxConfig config;
  config.blocks = 1;
  config.single_blocks = 1;
  for (int64_t text : {1, 77, 226, 511, 512}) {
    for (int64_t image : {63 * 63, 52 * 76, 4096}) {
      const Program program = flux_step(config, {.text = text, .image = image}, bf16);
      for (const SequenceMesh& mesh : meshes_of_every_mode(config.heads)) {
        SCOPED_TRACE(testing::Message() << to_string(mesh.mode) << ", " << to_string(mesh.topology)
                                        << ", text " << text << ", image " << image);
        const LinearRows rows = linear_rows(
            lower(program, row_parallel(program, mesh, {{"text"}, {"latents", "rope"}})));
        EXPECT_LE(rows.most.at("single_transformer_blocks.0.proj_mlp.weight"),
                  ceil_div(text + image, mesh.ranks()));
        const auto& all = rows.all;
        EXPECT_EQ(all.at("transformer_blocks.0.ff_context.net.2.weight"), text);
        EXPECT_EQ(all.at("transformer_blocks.0.attn.add_q_proj.weight"), text);
        EXPECT_EQ(all.at("transformer_blocks.0.ff.net.2.weight"), image);
        EXPECT_EQ(all.at("x_embedder.weight"), image);
        EXPECT_EQ(all.at("proj_out.weight"), image);
        EXPECT_EQ(all.at("single_transformer_blocks.0.proj_out.weight"), text + image);
      }
    }
  }
}

// Replicated text passes its linears on every rank, the image once.
TEST(FluxRows, ReplicatedTextPassesOnEachRank) {
  const WeightDtype bf16 = [](std::string_view) { return DType::bf16; };
  FluxConfig config;
  config.blocks = 1;
  config.single_blocks = 1;
  const int64_t text = 77, image = 63 * 63;
  const Program program = flux_step(config, {.text = text, .image = image, .apart = true}, bf16);
  for (const SequenceMesh& mesh : meshes_of_every_mode(config.heads)) {
    const LinearRows rows = linear_rows(lower(
        program, row_parallel(program, mesh, FluxTransformer::row_parts(TextRows::replicated))));
    const int64_t P = mesh.ranks();
    EXPECT_EQ(rows.all.at("transformer_blocks.0.ff_context.net.2.weight"), P * text);
    EXPECT_EQ(rows.all.at("transformer_blocks.0.ff.net.2.weight"), image);
    EXPECT_EQ(rows.all.at("single_transformer_blocks.0.proj_out.weight"), P * text + image);
    EXPECT_EQ(rows.most.at("x_embedder.weight"), ceil_div(image, P));
  }
}

TEST(FluxRows, FewerTokensThanRanksAreRefused) {
  const Loaded loaded("fast");
  FluxTransformer divided =
      loaded.transformer({.mesh = sequence_mesh(SpMode::ring, {.machines = 1, .devices = 4}, 3)});
  try {
    velocities(divided, {1, 1, 2});
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(),
                testing::HasSubstr("3 tokens cannot be divided over 4 ranks: at most --ranks 3"));
  }
}

}  // namespace
}  // namespace braid::golden
