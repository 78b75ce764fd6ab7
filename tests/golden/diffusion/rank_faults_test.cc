// Ranks that other ranks wait for in vain, because they are late, unreachable, or have ended in the
// middle: a step and a decoding end with the deadline's error, in every mode, and the network stays
// ended. Text encoders use a single rank, which waits for nobody.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "braid/engine/diffusion/cogvideox_pipeline.h"
#include "braid/engine/diffusion/flux_transformer.h"
#include "braid/engine/diffusion/patch_source.h"
#include "braid/engine/diffusion/vae_decoder.h"
#include "braid/engine/world.h"
#include "braid/fabric/rank_threads.h"
#include "braid/parallel/picture_parallel.h"
#include "braid/parallel/sequence_parallel.h"
#include "braid/schedule/strategies/registry.h"
#include "golden/diffusion/case.h"
#include "golden/diffusion/impossible.h"

namespace braid::golden {
namespace {

constexpr int64_t kDeadlineMs = 300;

const std::vector<Topology> kTopologies = {{2, 1}, {2, 2}};

// Ranks on two machines, with `link` between the machines.
NetworkConfig ranks_of(SpMode mode, const Topology& topology, int64_t heads, const Link& link) {
  NetworkConfig network{
      .threads = 1, .mesh = sequence_mesh(mode, topology, heads), .deadline_ms = kDeadlineMs};
  network.links.machines = topology.machines;
  network.links.cluster_link = link;
  return network;
}

std::vector<float> values(int64_t n) {
  return std::vector<float>(static_cast<size_t>(n), 0.1f);
}

// Each attempt ends so: after the first the network has ended.
void expect_deadline(const std::function<void()>& run, int attempts = 2) {
  for (int attempt = 0; attempt < attempts; ++attempt) {
    try {
      run();
      ADD_FAILURE() << "no error in attempt " << attempt;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kDeadline) << e.what();
      EXPECT_THAT(e.what(), testing::HasSubstr("rank"));
    }
  }
}

class RankFaults : public testing::TestWithParam<Link> {};

TEST_P(RankFaults, StepOfFlux) {
  const DiffusersFolder folder(tiny_pipeline("guided"));
  const auto weights = folder.weights("transformer");
  const FluxConfig config = read_flux_config(folder.config("transformer"));
  const auto text = values(8 * config.text_dim), pooled = values(config.pooled_dim);
  const auto latents = values(16 * config.in_channels);
  const std::vector<float> sigmas = {1};
  for (SpMode mode : kSpModes) {
    for (const Topology& topology : kTopologies) {
      if (impossible(mode, topology, config.heads)) continue;
      SCOPED_TRACE(testing::Message() << to_string(mode) << ", " << to_string(topology));
      FluxTransformer transformer(folder.config("transformer"), *weights,
                                  ranks_of(mode, topology, config.heads, GetParam()));
      transformer.begin(
          {.token_rows = 4, .token_columns = 4, .text = text, .pooled = pooled, .sigmas = sigmas});
      expect_deadline([&] { transformer.velocity(0, latents); });
    }
  }
}

TEST_P(RankFaults, PassOfCogVideoX) {
  const DiffusersFolder folder(tiny_pipeline("video"));
  const CogVideoXConfig config = read_cogvideox_config(folder.config("transformer"));
  const auto text = values(8 * config.text_dim);
  const std::vector<int64_t> timesteps = {500};
  for (SpMode mode : kSpModes) {
    for (const Topology& topology : kTopologies) {
      if (impossible(mode, topology, config.heads)) continue;
      SCOPED_TRACE(testing::Message() << to_string(mode) << ", " << to_string(topology));
      CogVideoXTransformer transformer(folder.config("transformer"), folder.weights("transformer"),
                                       ranks_of(mode, topology, config.heads, GetParam()));
      const VideoGrid grid{1, 2, 3};
      transformer.begin({.grid = grid, .text_states = text, .timesteps = timesteps});
      const auto latents = values(grid.tokens() * config.token_dim());
      expect_deadline([&] { transformer.predict(0, latents); });
    }
  }
}

TEST_P(RankFaults, Decoders) {
  const DiffusersFolder flux(tiny_pipeline("guided")), video(tiny_pipeline("video"));
  for (const Topology& topology : kTopologies) {
    SCOPED_TRACE(to_string(topology));
    const NetworkConfig network = ranks_of(SpMode::ring, topology, 4, GetParam());
    VaeDecoder pictures(flux.config("vae"), flux.weights("vae"), network);
    const auto picture = values(6 * 4 * pictures.channels());
    expect_deadline([&] { pictures.decode(picture, 6, 4); });
    VideoDecoder frames(video.config("vae"), video.weights("vae"), network);
    const VideoLatentSize size{.frames = 3, .height = 4, .width = 2};
    const auto latents = values(3 * 4 * 2 * frames.channels());
    expect_deadline([&] { frames.decode(latents, size); });
  }
}

// Both groups of cfg ranks, each over two machines, or all ranks with both passes by turns. The
// prompts are encoded, and the first step ends.
TEST_P(RankFaults, PassesOfGuidance) {
  for (SpMode mode : kSpModes) {
    for (int cfg_ranks : {1, 2}) {
      SCOPED_TRACE(testing::Message() << to_string(mode) << ", cfg " << cfg_ranks);
      PipelineConfig config{.threads = 1,
                            .sp = mode,
                            .topology = {2 * cfg_ranks, 1},
                            .cfg_ranks = cfg_ranks,
                            .schedule = cfg_ranks == 1 ? "cfg_passes" : "sequence_parallel",
                            .deadline_ms = kDeadlineMs};
      config.links.cluster_link = GetParam();
      CogVideoXPipeline pipeline(tiny_pipeline("video"), config);
      auto stage = PipelineProgress::Stage::encode;
      VideoRequest request{.prompt = "a cat",
                           .negative = "sea",
                           .width = 24,
                           .height = 16,
                           .frames = 17,
                           .steps = 1,
                           .guidance = 5,
                           .text_tokens = 9};
      request.on_progress = [&](const PipelineProgress& p) {
        stage = p.stage;
        return true;
      };
      expect_deadline([&] { pipeline.generate(request); });
      EXPECT_EQ(stage, PipelineProgress::Stage::step);
    }
  }
}

// What the other rank says comes a second after it was said: too late. Or it never comes.
INSTANTIATE_TEST_SUITE_P(Links, RankFaults, testing::Values(Link{1e9, 1}, Link{1e-3, 1}),
                         [](const auto& info) {
                           return std::string(info.param.bytes_per_second > 1 ? "late" : "dead");
                         });

// A plan on ranks with a thread each, of which one ends in the middle and says nothing.
class EndingRanks {
 public:
  EndingRanks(const WeightSource& weights, const Program& program, const LayoutPlan& layout,
              const SequenceMesh& mesh, int64_t deadline_ms)
      : world_(make_cpu_world([&weights](std::string_view name) { return weights.get(name); },
                              {.ranks = mesh.ranks(),
                               .links = {.machines = mesh.topology.machines},
                               .deadline_ms = deadline_ms,
                               .sequence = {mesh.mesh}})),
        plan_(plan_network(program, layout, world_->catalogs(mesh.ranks()), mesh.topology,
                           *find_strategy("sequence_parallel"))) {}

  // Of rank `rank` only a share of its launches run, and its thread ends; -1: all ranks run all.
  void run(int rank, double share) {
    PlannedForward plan = plan_;
    if (rank >= 0) {
      auto& launches = plan.schedules[static_cast<size_t>(rank)].launches;
      launches.resize(static_cast<size_t>(share * static_cast<double>(launches.size())));
    }
    const auto executors = world_->bind(std::move(plan));
    fabric::run_rank_threads(world_->fabric(), [&](int r) {
      Executor& executor = *executors[static_cast<size_t>(r)];
      for (const Value& value : executor.program().values) {
        if (value.kind != ValueKind::input) continue;
        const TensorView& input = executor.input(value.name);
        std::memset(input.data, 0, static_cast<size_t>(input.bytes()));
      }
      const Extents all = executor.program().capacity;
      executor.run({&all, 1});
    });
  }

 private:
  std::unique_ptr<World> world_;
  PlannedForward plan_;
};

void expect_ends(const WeightSource& weights, const Program& program, const LayoutPlan& layout,
                 const SequenceMesh& mesh) {
  EndingRanks(weights, program, layout, mesh, 60000).run(-1, 1);
  for (const int rank : {0, mesh.ranks() - 1}) {
    for (const double share : {0.0, 0.5}) {
      SCOPED_TRACE(fmt::format("{}, {} on {}, rank {} ends after {} of its launches",
                               to_string(mesh.mode), to_string(mesh.degrees),
                               to_string(mesh.topology), rank, share));
      EndingRanks ranks(weights, program, layout, mesh, kDeadlineMs);
      expect_deadline([&] { ranks.run(rank, share); }, 1);
    }
  }
}

std::vector<SequenceMesh> meshes_of_modes(int64_t heads) {
  std::vector<SequenceMesh> meshes;
  for (SpMode mode : kSpModes) {
    for (const Topology& topology : {Topology{1, 3}, {2, 2}}) {
      if (!impossible(mode, topology, heads)) {
        meshes.push_back(sequence_mesh(mode, topology, heads));
      }
    }
  }
  return meshes;
}

const WeightDtype kF32 = [](std::string_view) { return DType::f32; };

TEST(EndedRank, StepOfFlux) {
  const DiffusersFolder folder(tiny_pipeline("guided"));
  const auto weights = folder.weights("transformer");
  const FluxConfig config = read_flux_config(folder.config("transformer"));
  const Program step = flux_step(config, {.text = 8, .image = 16}, kF32);
  for (const SequenceMesh& mesh : meshes_of_modes(config.heads)) {
    expect_ends(*weights, step, row_parallel(step, mesh, FluxTransformer::row_parts()), mesh);
  }
}

// A pass, as a group of cfg ranks computes it, and both passes by turns.
TEST(EndedRank, StepOfCogVideoX) {
  const DiffusersFolder folder(tiny_pipeline("video"));
  const PatchSource weights(folder.weights("transformer"), "patch_embed.proj.weight");
  const CogVideoXConfig config = read_cogvideox_config(folder.config("transformer"));
  for (const bool passes : {false, true}) {
    const Program step = cogvideox_step(
        config, {.texts = passes ? 2 : 1, .text = 8, .tokens = 16, .passes = passes}, kF32);
    auto parts = CogVideoXTransformer::row_parts();
    if (passes) parts[0] = {"text.0", "text.1"};
    for (const SequenceMesh& mesh : meshes_of_modes(config.heads)) {
      if (passes && mesh.mode != SpMode::usp && mesh.mode != SpMode::tas) continue;
      expect_ends(weights, step, row_parallel(step, mesh, parts), mesh);
    }
  }
}

TEST(EndedRank, Decoders) {
  const SequenceMesh mesh = sequence_mesh(SpMode::ring, {.machines = 1, .devices = 3}, 3);
  const DiffusersFolder flux(tiny_pipeline("guided")), video(tiny_pipeline("video"));
  const Program picture = autoencoder_kl_decode(read_autoencoder_kl_config(flux.config("vae")),
                                                {.height = 6, .width = 4}, kF32);
  expect_ends(*flux.weights("vae"), picture, picture_parallel(picture, {"latents"}, 6, 4, 3), mesh);
  const Program frames =
      autoencoder_cogvideox_decode(read_autoencoder_cogvideox_config(video.config("vae")),
                                   {.frames = 1, .height = 6, .width = 4}, kF32);
  expect_ends(*video.weights("vae"), frames, picture_parallel(frames, {"latents.0"}, 6, 4, 3),
              mesh);
}

}  // namespace
}  // namespace braid::golden
