// Both passes of guidance on the same ranks: one after another, as one batch, by turns, and the
// choice among these and two groups of ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "braid/engine/diffusion/pass_choice.h"
#include "braid/engine/diffusion/torch_generator.h"
#include "golden/diffusion/impossible.h"
#include "golden/diffusion/video_case.h"

namespace braid::golden {
namespace {

using testing::HasSubstr;

// Predictions of two steps with two unequal texts.
class Passes {
 public:
  explicit Passes(const char* kind)
      : folder_(tiny_pipeline(kind)),
        config_(read_cogvideox_config(folder_.config("transformer"))),
        text_(normals(1, 2 * 9 * config_.text_dim)),
        latents_(normals(2, kGrid.tokens() * config_.token_dim())) {}

  int64_t heads() const { return config_.heads; }
  std::vector<float> run(const NetworkConfig& network, TextOrder order) const {
    CogVideoXTransformer transformer(folder_.config("transformer"), folder_.weights("transformer"),
                                     network);
    const std::vector<int64_t> timesteps = {999, 500};
    transformer.begin(
        {.grid = kGrid, .texts = 2, .text_states = text_, .timesteps = timesteps, .order = order});
    EXPECT_EQ(transformer.order(), order);
    std::vector<float> all;
    for (const int64_t step : {0, 1}) {
      const auto made = transformer.predict(step, latents_);
      all.insert(all.end(), made.begin(), made.end());
    }
    return all;
  }

 private:
  static constexpr VideoGrid kGrid{2, 3, 5};

  static std::vector<float> normals(uint64_t seed, int64_t n) {
    std::vector<float> out(static_cast<size_t>(n));
    TorchGenerator(seed).normals(out);
    return out;
  }

  const DiffusersFolder folder_;
  const CogVideoXConfig config_;
  const std::vector<float> text_, latents_;
};

void expect_near(const std::vector<float>& got, const std::vector<float>& want) {
  const auto [low, high] = std::ranges::minmax(want);
  EXPECT_LE(worst_difference(got, want), 1e-5 * std::max(-low, high));
}

TEST(PassOrders, EqualOneRankInEveryMode) {
  for (const char* kind : {"video", "video_rotary", "video_pairs"}) {
    const Passes passes(kind);
    const auto want = passes.run({.threads = 1}, TextOrder::apart);
    expect_near(passes.run({.threads = 1}, TextOrder::batch), want);
    for (const SpMode mode : kSpModes) {
      for (const Topology& topology : {Topology{1, 2}, {1, 3}, {2, 2}}) {
        if (impossible(mode, topology, passes.heads())) continue;
        for (const TextRows text : kTextRows) {
          for (const TextOrder order : {TextOrder::apart, TextOrder::batch, TextOrder::turns}) {
            SCOPED_TRACE(fmt::format("{}, {}, {}, {}, text {}", kind, to_string(mode),
                                     to_string(topology), to_string(order), to_string(text)));
            NetworkConfig network{.mesh = sequence_mesh(mode, topology, passes.heads()),
                                  .text = text};
            if (order == TextOrder::turns) network.schedule = "cfg_passes";
            expect_near(passes.run(network, order), want);
          }
        }
      }
    }
  }
}

// Both passes are a batch up to a number of rows, or by the schedule "cfg_passes" by turns, which
// takes several ranks.
TEST(PassOrders, Rule) {
  const DiffusersFolder folder(tiny_pipeline("video"));
  const auto order = [&](int ranks, const char* schedule, int64_t rows) {
    NetworkConfig network{.schedule = schedule};
    if (ranks > 1) network.mesh = sequence_mesh(SpMode::ring, {.devices = ranks}, 2);
    return CogVideoXTransformer(folder.config("transformer"), folder.weights("transformer"),
                                network)
        .usual_order(rows);
  };
  for (const int64_t rows : {kMostBatchRows, kMostBatchRows + 1}) {
    const TextOrder usual = rows > kMostBatchRows ? TextOrder::apart : TextOrder::batch;
    for (const int ranks : {1, 2, 4}) {
      EXPECT_EQ(order(ranks, "sequence_parallel", rows), usual);
      EXPECT_EQ(order(ranks, "cfg_passes", rows), ranks > 1 ? TextOrder::turns : usual);
    }
  }
}

// The price of each candidate of `auto` for a 5B model, by the line without its time.
std::map<std::string, double> prices_of(const PassChoice& choice) {
  std::map<std::string, double> prices;
  for (const std::string& line : choice.priced) {
    const size_t colon = line.rfind(": ");
    prices[line.substr(0, colon)] = std::stod(line.substr(colon + 2));
  }
  return prices;
}

PassChoice choose(PipelineConfig config, const MemoryRoom& room, int64_t tokens = 3 * 30 * 45) {
  const PipelineParts parts = random_cogvideox(BRAID_TEST_DATA "/../configs/cogvideox-5b.json",
                                               DType::f32, {{"num_layers", 1}});
  config.choose_sp = true;
  config.text = TextRows::split;
  config.profile = load_profile("h100");
  return choose_passes(config, read_cogvideox_config(parts.transformer), 226, tokens,
                       *parts.transformer_weights, room);
}

const MemoryRoom kRoom = MemoryRoom::of_cpu(int64_t{1} << 40);

// `auto` prices every mode with the passes in each order on all ranks, and on two groups.
TEST(PassChoice, TakesTheLeastPrice) {
  for (const double bytes_per_second : {1e9, 25e9, 1e12}) {
    SCOPED_TRACE(bytes_per_second);
    const Topology topology{
        .machines = 2, .devices = 1, .cluster_link = {bytes_per_second, 1e-6}, .emulated = true};
    const PassChoice choice = choose({.topology = topology, .cfg_ranks = 0}, kRoom);
    const auto prices = prices_of(choice);
    const auto least = std::ranges::min_element(
        prices, [](const auto& a, const auto& b) { return a.second < b.second; });
    std::map<std::string, int> kinds;
    for (const auto& [line, ms] : prices) {
      kinds[line.starts_with("cfg ranks 2, ") ? "groups" : line.substr(line.rfind(", ") + 2)] += 1;
      EXPECT_EQ(line.find("cfg_passes") != line.npos, line.ends_with("by turns")) << line;
    }
    EXPECT_EQ(kinds.size(), 4u);
    for (const char* order : {"one after another", "as one batch", "by turns"}) {
      EXPECT_EQ(kinds[order], 3) << order;  // ring, ulysses, torus
    }
    EXPECT_THAT(least->first, HasSubstr(fmt::format("cfg ranks {}, ", choice.cfg_ranks)));
    if (choice.cfg_ranks == 1) {
      EXPECT_THAT(least->first, testing::EndsWith(to_string(choice.order.value())));
      EXPECT_THAT(least->first, HasSubstr(choice.schedule));
    } else {
      EXPECT_FALSE(choice.order.has_value());
    }
  }
}

// On one group of two machines the passes hide each other's transfers, on fast links nothing
// is to be hidden.
TEST(PassChoice, TurnsWhereTransfersWait) {
  const auto order = [](double bytes_per_second) {
    const Topology topology{
        .machines = 2, .devices = 1, .cluster_link = {bytes_per_second, 1e-6}, .emulated = true};
    return choose({.topology = topology}, kRoom, 13 * 30 * 45).order;
  };
  EXPECT_EQ(order(12.5e9), TextOrder::turns);
  EXPECT_NE(order(1e13), TextOrder::turns);
}

TEST(PassChoice, ASinglePassAndANamedScheduleHaveNoOtherOrders) {
  const Topology topology{.machines = 1, .devices = 2};
  const PassChoice single = choose({.topology = topology, .passes = 1}, kRoom);
  EXPECT_FALSE(single.order.has_value());
  for (const auto& [line, ms] : prices_of(single)) EXPECT_EQ(line.find("batch"), line.npos) << line;
  const PassChoice turns = choose({.topology = topology, .schedule = "cfg_passes"}, kRoom);
  EXPECT_EQ(turns.order, TextOrder::turns);
  EXPECT_EQ(turns.schedule, "cfg_passes");
  const PassChoice named = choose({.topology = topology, .schedule = "sequential"}, kRoom);
  for (const auto& [line, ms] : prices_of(named)) {
    EXPECT_THAT(line, testing::AnyOf(HasSubstr("sequential, as one batch"),
                                     HasSubstr("sequential, one after another")));
  }
}

// Both passes at once take more memory than one: without room, one follows the other.
TEST(PassChoice, OrdersHaveRoom) {
  const Topology topology{
      .machines = 2, .devices = 1, .cluster_link = {12.5e9, 1e-6}, .emulated = true};
  // Of each of two ranks.
  const auto with_room = [&](double gb) {
    MemoryRoom room = kRoom;
    room.free = room.reserved + static_cast<int64_t>(2e9 * gb);
    return choose({.topology = topology}, room, 13 * 30 * 45);
  };
  const auto least_values = [](const PassChoice& choice, const char* order) {
    double least = 1e9;
    for (const std::string& line : choice.priced) {
      if (line.find(order) == line.npos) continue;
      const size_t at = line.find("values of ");
      least = std::min(least, at == line.npos ? 0 : std::stod(line.substr(at + 10)));
    }
    return least;
  };
  EXPECT_EQ(with_room(1000).order, TextOrder::turns);
  EXPECT_EQ(least_values(with_room(1000), "by turns"), 0);
  const PassChoice none = with_room(0);
  const double apart = least_values(none, "one after another");
  const double turns = least_values(none, "by turns");
  EXPECT_GT(apart, 0);
  EXPECT_GT(turns, 1.3 * apart);
  EXPECT_EQ(none.order, TextOrder::apart);
  const PassChoice some = with_room((apart + turns) / 2);
  EXPECT_EQ(some.order, TextOrder::apart);
  EXPECT_EQ(least_values(some, "one after another"), 0);
  EXPECT_EQ(least_values(some, "by turns"), turns);
}

// A pipeline without room for its choice runs one pass after the other, to the same latents.
TEST(PassChoice, APipelineWithoutRoomForTurns) {
  const VideoRequest request{.prompt = "a small cat",
                             .negative = "sea",
                             .width = 64,
                             .height = 64,
                             .frames = 9,
                             .steps = 2,
                             .guidance = 5,
                             .text_tokens = 8,
                             .seed = 3};
  struct Made {
    VideoResult result;
    std::vector<float> latents;
  };
  const auto make = [&](double bytes_per_second, int64_t free) {
    CogVideoXPipeline pipeline(tiny_pipeline("video_rotary"),
                               {.threads = 1,
                                .choose_sp = true,
                                .degrees = {.ulysses = 2},
                                .topology = {.machines = 2,
                                             .devices = 1,
                                             .cluster_link = {bytes_per_second, 1e-6},
                                             .emulated = true},
                                .profile = load_profile("h100"),
                                .width = 1024,
                                .height = 1024,
                                .free_bytes = free});
    Made made;
    VideoRequest r = request;
    r.on_latents = [&](int64_t, int64_t, std::span<const float> latents) {
      made.latents.insert(made.latents.end(), latents.begin(), latents.end());
    };
    made.result = pipeline.generate(r);
    return made;
  };
  // Some links are just so fast that a pass of a large video computes while the other's rows
  // travel.
  for (double bytes_per_second = 1e9; bytes_per_second < 1e12; bytes_per_second *= 2) {
    const Made all = make(bytes_per_second, int64_t{1} << 40);
    if (all.result.passes != "by turns") continue;
    const Made less =
        make(bytes_per_second, all.result.memory->most + MemoryRoom::of_cpu(0).reserved - 1);
    EXPECT_EQ(less.result.passes, "one after another");
    EXPECT_LT(less.result.memory->most, all.result.memory->most);
    expect_near(less.latents, all.latents);
    return;
  }
  FAIL() << "no links with passes by turns";
}

}  // namespace
}  // namespace braid::golden
