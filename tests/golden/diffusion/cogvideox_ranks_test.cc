// CogVideoX over ranks that divide the sequence of text and video, and over cfg ranks that compute
// one pass of guidance each: the same as on one rank, each token on one rank, nothing padded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "braid/backend/null/null_backend.h"
#include "braid/parallel/sequence_parallel.h"
#include "braid/schedule/strategies/registry.h"
#include "golden/diffusion/impossible.h"
#include "golden/diffusion/linear_rows.h"
#include "golden/diffusion/video_case.h"

namespace braid::golden {
namespace {

VideoRequest request_of(int64_t text, int64_t width, int64_t height) {
  return {.prompt = "a small cat in a box",
          .negative = "sea",
          .width = width,
          .height = height,
          .frames = 17,
          .steps = 2,
          .guidance = 5,
          .text_tokens = text,
          .seed = 3};
}

// Latents of all steps, without pictures.
std::vector<float> latents_of(CogVideoXPipeline& pipeline, VideoRequest request) {
  request.on_progress = [](const PipelineProgress& p) {
    return p.stage != PipelineProgress::Stage::decode;
  };
  return make_video(pipeline, request).latents;
}

void expect_near(const std::vector<float>& got, const std::vector<float>& want) {
  const auto [low, high] = std::ranges::minmax(want);
  EXPECT_LE(worst_difference(got, want), 1e-5 * std::max(-low, high));
}

class CogVideoXRanks : public testing::TestWithParam<SpMode> {};

TEST_P(CogVideoXRanks, EqualOneRank) {
  const std::vector<VideoRequest> requests = {request_of(1, 24, 16), request_of(16, 8, 40)};
  for (const char* kind : {"video", "video_rotary", "video_pairs"}) {
    CogVideoXPipeline alone(tiny_pipeline(kind), {.threads = 2});
    std::vector<std::vector<float>> want;
    for (const VideoRequest& r : requests) want.push_back(latents_of(alone, r));
    for (const auto& [topology, cfg_ranks] : {std::pair<Topology, int>{{1, 2}, 1},
                                              {{1, 2}, 2},
                                              {{2, 1}, 1},
                                              {{1, 3}, 1},
                                              {{2, 2}, 1}}) {
      const PipelineConfig config{.threads = 1,
                                  .sp = GetParam(),
                                  .topology = {topology.machines, topology.devices * cfg_ranks},
                                  .cfg_ranks = cfg_ranks};
      if (impossible(GetParam(), topology, alone.transformer().heads)) {
        EXPECT_THROW(CogVideoXPipeline(tiny_pipeline(kind), config), Error);
        continue;
      }
      CogVideoXPipeline divided(tiny_pipeline(kind), config);
      EXPECT_EQ(divided.mesh()->ranks(), topology.ranks());
      for (size_t i = 0; i < requests.size(); ++i) {
        SCOPED_TRACE(testing::Message() << kind << ", " << to_string(topology) << ", cfg "
                                        << cfg_ranks << ", text " << requests[i].text_tokens);
        expect_near(latents_of(divided, requests[i]), want[i]);
      }
    }
  }
}

// Text whole on each rank, beside shares of the video: passes one after another, by turns, and on
// two groups of ranks.
TEST_P(CogVideoXRanks, ReplicatedTextEqualsOneRank) {
  const VideoRequest request = request_of(9, 24, 16);
  for (const char* kind : {"video", "video_rotary", "video_pairs"}) {
    CogVideoXPipeline alone(tiny_pipeline(kind), {.threads = 2});
    const auto want = latents_of(alone, request);
    for (const auto& [topology, cfg_ranks] :
         {std::pair<Topology, int>{{1, 2}, 1}, {{1, 2}, 2}, {{1, 3}, 1}, {{2, 2}, 1}}) {
      if (impossible(GetParam(), topology, alone.transformer().heads)) continue;
      for (const char* schedule : {"sequence_parallel", "cfg_passes"}) {
        SCOPED_TRACE(testing::Message() << kind << ", " << to_string(topology) << ", cfg "
                                        << cfg_ranks << ", " << schedule);
        CogVideoXPipeline divided(tiny_pipeline(kind),
                                  {.threads = 1,
                                   .sp = GetParam(),
                                   .text = TextRows::replicated,
                                   .topology = {topology.machines, topology.devices * cfg_ranks},
                                   .cfg_ranks = cfg_ranks,
                                   .schedule = schedule});
        EXPECT_EQ(divided.text_rows(), TextRows::replicated);
        expect_near(latents_of(divided, request), want);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, CogVideoXRanks, testing::ValuesIn(kSpModes),
                         [](const auto& info) { return std::string(to_string(info.param)); });

TEST(CogVideoXCfgRanks, EqualOneRank) {
  for (const char* kind : {"video", "video_rotary"}) {
    CogVideoXPipeline alone(tiny_pipeline(kind), {.threads = 1});
    CogVideoXPipeline divided(tiny_pipeline(kind), {.threads = 1, .cfg_ranks = 2});
    const VideoRequest r = request_of(9, 32, 8);
    expect_near(latents_of(divided, r), latents_of(alone, r));
  }
}

// The schedule "cfg_passes" runs both passes by turns, over machines with slow links as well.
TEST(CogVideoXPasses, ByTurnsEqualOneRank) {
  for (const char* kind : {"video", "video_rotary", "video_pairs"}) {
    CogVideoXPipeline alone(tiny_pipeline(kind), {.threads = 1});
    const VideoRequest r = request_of(9, 32, 16);
    const auto want = latents_of(alone, r);
    for (const SpMode mode : kSpModes) {
      for (const Topology& topology : {Topology{1, 2}, {2, 1}, {1, 3}, {2, 2}}) {
        SCOPED_TRACE(testing::Message()
                     << kind << ", " << to_string(mode) << ", " << to_string(topology));
        PipelineConfig config{
            .threads = 1, .sp = mode, .topology = topology, .schedule = "cfg_passes"};
        config.links.cluster_link = Link{.bytes_per_second = 1e8};
        if (impossible(mode, topology, alone.transformer().heads)) {
          EXPECT_THROW(CogVideoXPipeline(tiny_pipeline(kind), config), Error);
          continue;
        }
        CogVideoXPipeline divided(tiny_pipeline(kind), config);
        expect_near(latents_of(divided, r), want);
      }
    }
  }
}

// At the full size, of a single block, over links of 12.5 GB/s between machines: passes by turns
// hide transfers that a pass alone waits for.
TEST(CogVideoXPasses, HideEachOthersTransfers) {
  const WeightDtype bf16 = [](std::string_view) { return DType::bf16; };
  CogVideoXConfig config;
  config.blocks = 1;
  const Topology topology{.machines = 2, .devices = 1};
  Profile profile = load_profile("h100");
  const CostModel cost(profile, topology);
  const NullBackend backend;
  const std::vector<const KernelCatalog*> catalogs(2, &backend.catalog());
  const auto seconds = [&](const CogVideoXShape& shape, const char* schedule) {
    std::vector<std::vector<std::string>> parts = {{"text"}, {"latents", "positions"}};
    if (shape.passes) parts[0] = {"text.0", "text.1"};
    const Program program = cogvideox_step(config, shape, bf16, DType::bf16);
    const SequenceMesh mesh = sequence_mesh(SpMode::ulysses, topology, config.heads);
    return network_seconds(plan_network(program, row_parallel(program, mesh, parts), catalogs,
                                        topology, *find_strategy(schedule)),
                           cost);
  };
  const double alone = seconds({.text = 226, .tokens = 13 * 30 * 45}, "sequence_parallel");
  const double turns =
      seconds({.texts = 2, .text = 226, .tokens = 13 * 30 * 45, .passes = true}, "cfg_passes");
  EXPECT_LT(turns, 1.9 * alone);
  RecordProperty("one after another, ms", fmt::format("{:.3f}", 2e3 * alone));
  RecordProperty("by turns, ms", fmt::format("{:.3f}", 1e3 * turns));
}

// `auto` prices every mode for a group of all ranks and for two groups, and takes the least.
TEST(CogVideoXAuto, TakesTheLeastPrice) {
  const VideoRequest r = request_of(9, 32, 16);
  CogVideoXPipeline alone(tiny_pipeline("video"), {.threads = 1});
  for (int ranks : {1, 2, 3, 4}) {
    SCOPED_TRACE(ranks);
    CogVideoXPipeline chosen(tiny_pipeline("video"), {.threads = 1,
                                                      .choose_sp = true,
                                                      .topology = {.machines = 1, .devices = ranks},
                                                      .cfg_ranks = 0,
                                                      .profile = load_profile("h100")});
    const auto groups = [&](const char* prefix) {
      return std::ranges::count_if(chosen.priced(),
                                   [&](const std::string& s) { return s.starts_with(prefix); });
    };
    EXPECT_GT(groups("cfg ranks 1, "), 0);
    EXPECT_EQ(groups("cfg ranks 2, ") > 0, ranks % 2 == 0);
    EXPECT_EQ(ranks % chosen.cfg_ranks(), 0);
    EXPECT_EQ(chosen.mesh() ? chosen.mesh()->ranks() : 1, ranks / chosen.cfg_ranks());
    expect_near(latents_of(chosen, r), latents_of(alone, r));
  }
}

TEST(CogVideoXAuto, NeedsAProfile) {
  EXPECT_THROW(CogVideoXPipeline(tiny_pipeline("video"),
                                 {.choose_sp = true, .topology = {.machines = 1, .devices = 2}}),
               Error);
}

// At the full size, in every mode: rows of each linear, over all ranks, are text and video once for
// each pass of guidance. Passes run on the same ranks, or each on its own group of ranks.
TEST(CogVideoXRows, EachTokenPassesEachLinearOnce) {
  const WeightDtype bf16 = [](std::string_view) { return DType::bf16; };
  const int64_t video = 5 * 15 * 23;
  for (int64_t heads : {30, 48}) {
    CogVideoXConfig config;
    config.blocks = 1;
    config.heads = heads;
    config.rotary = heads == 48;
    for (int64_t text : {1, 77, 226, 511, 512}) {
      for (const TextOrder order : {TextOrder::apart, TextOrder::batch, TextOrder::turns}) {
        const int64_t passes = order == TextOrder::apart ? 1 : 2;
        const CogVideoXShape shape{
            .texts = passes, .text = text, .tokens = video, .passes = order == TextOrder::turns};
        const Program program = cogvideox_step(config, shape, bf16);
        const auto parts = CogVideoXTransformer::row_parts(TextRows::split, shape);
        for (const SequenceMesh& mesh : meshes_of_every_mode(heads)) {
          SCOPED_TRACE(testing::Message()
                       << to_string(mesh.mode) << ", " << to_string(mesh.topology) << ", text "
                       << text << ", " << to_string(order));
          const LinearRows rows = linear_rows(lower(program, row_parallel(program, mesh, parts)));
          EXPECT_LE(rows.most.at("transformer_blocks.0.ff.net.2.weight"),
                    passes * ceil_div(text + video, mesh.ranks()));
          for (const char* weight : {"attn1.to_q", "attn1.to_out.0", "ff.net.0.proj", "ff.net.2"}) {
            EXPECT_EQ(rows.all.at(fmt::format("transformer_blocks.0.{}.weight", weight)),
                      passes * (text + video));
          }
          EXPECT_EQ(rows.all.at("patch_embed.proj.weight"), video);  // the same for all passes
          EXPECT_EQ(rows.all.at("proj_out.weight"), passes * video);
        }
      }
    }
  }
}

// The Programs that two groups of cfg ranks run: each text passes each linear of one group once.
TEST(CogVideoXRows, EachGroupComputesOneText) {
  const DiffusersFolder folder(tiny_pipeline("video"));
  const CogVideoXConfig config = read_cogvideox_config(folder.config("transformer"));
  const std::vector<int64_t> timesteps = {500};
  const VideoGrid grid{1, 3, 5};
  for (SpMode mode : kSpModes) {
    std::map<std::string, int64_t> rows;
    for (int group : {0, 1}) {
      const std::vector<float> text(static_cast<size_t>(9 * config.text_dim), 0.1f * group);
      CogVideoXTransformer transformer(
          folder.config("transformer"), folder.weights("transformer"),
          {.threads = 1, .mesh = sequence_mesh(mode, {.devices = 2}, config.heads)});
      transformer.begin({.grid = grid, .text_states = text, .timesteps = timesteps});
      std::vector<RankProgram> ranks(2);
      for (int r : {0, 1}) {
        ranks[static_cast<size_t>(r)].program = transformer.bound_step().executor(r).program();
      }
      for (const auto& [weight, n] : linear_rows(ranks).all) rows[weight] += n;
    }
    EXPECT_EQ(rows.at("transformer_blocks.1.attn1.to_q.weight"), 2 * (9 + grid.tokens()));
    EXPECT_EQ(rows.at("transformer_blocks.1.attn1.to_out.0.weight"), 2 * (9 + grid.tokens()));
  }
}

TEST(CogVideoXRows, FewerTokensThanRanksAreRefused) {
  CogVideoXPipeline pipeline(
      tiny_pipeline("video_rotary"),
      {.threads = 1, .sp = SpMode::ring, .topology = {.machines = 1, .devices = 4}});
  VideoRequest r = request_of(1, 8, 8);
  r.frames = 1;
  try {
    make_video(pipeline, r);
    FAIL() << "no error";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(),
                testing::HasSubstr("2 tokens cannot be divided over 4 ranks: at most --ranks 2"));
  }
}

}  // namespace
}  // namespace braid::golden
