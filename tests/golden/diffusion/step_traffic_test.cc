// Bytes that each rank's Programs of whole steps move equal closed forms of token counts, heads and
// degrees: attention moves what docs/sequence-parallel.md says, and everything else moves nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "braid/model/flux.h"
#include "braid/ops/one_sided.h"
#include "braid/parallel/sequence_parallel.h"
#include "golden/diffusion/impossible.h"
#include "golden/diffusion/video_case.h"

namespace braid::golden {
namespace {

// Bytes that a rank asks the fabric for in a step, and the share of other machines: the reader of
// queries and keys asks (in ulysses the sender), and the sender of results.
struct Asked {
  int64_t all = 0;
  int64_t between_machines = 0;
};

// [ranks]; collectives count, too, as if all their ranks were on other machines.
std::vector<Asked> counted(const std::vector<RankProgram>& ranks, const Topology& topology) {
  std::vector<Asked> asked;
  for (const RankProgram& rank : ranks) {
    const Work work{.extents = rank.program.capacity};
    double all = 0, between = 0;
    for (const Op& op : rank.program.ops) {
      if (op.def->transfers == nullptr) {
        const double bytes = rank.program.cost(op, work).wire_bytes;
        all += bytes, between += bytes;
        continue;
      }
      for (const Transfer& t : op.def->transfers(op.attrs, rank.program.input_types(op), work)) {
        all += t.bytes;
        between += topology.link(rank.rank, t.peer) == LinkClass::cluster ? t.bytes : 0;
      }
    }
    asked.push_back({std::llround(all), std::llround(between)});
  }
  return asked;
}

// The attentions of a step: L tokens in even shares, H heads in even groups. Further `joint` tokens
// are whole on each rank: their keys move nowhere, and each (token, head) has its result on one
// rank, which brings the result to all others, between machines once.
struct Attentions {
  int64_t L = 0;
  int64_t joint = 0;
  int64_t H = 0;
  int64_t head_bytes = 0;  // of a head's row
  int64_t count = 1;
};

// A rank of T x U x R: its tokens and heads.
class Forms {
 public:
  Forms(const Attentions& a, const SequenceMesh& mesh) : a_(a), mesh_(mesh) {}

  // Bytes that rank x asks for.
  int64_t all(int x) const {
    if (mesh_.mode == SpMode::ulysses) {
      // q, k and v of its rows to other heads' ranks; results to all other rows' ranks.
      return bytes(3 * tokens(x) * (a_.H - heads(x)) + (a_.L - tokens(x)) * heads(x) +
                   joint_results(x));
    }
    // q, k, v and results of ranks with its r; k and v of all other ranks.
    const int64_t of_ring_rank = tokens_of(mesh_.r(x));
    return bytes(4 * (of_ring_rank - tokens(x)) * heads(x) + 2 * (a_.L - of_ring_rank) * heads(x) +
                 joint_results(x));
  }

  // Bytes that all ranks of machine m ask other machines for.
  int64_t between(int m) const {
    int64_t elements = 0;
    for (int x = 0; x < mesh_.ranks(); ++x) {
      if (on(x) != m) continue;
      elements += (mesh_.topology.machines - 1) * joint(x);
      for (int y = 0; y < mesh_.ranks(); ++y) {
        if (on(y) == m) continue;
        if (mesh_.mode == SpMode::ring) elements += 2 * tokens(y) * a_.H;
        if (mesh_.r(y) != mesh_.r(x)) continue;
        elements += mesh_.mode == SpMode::ulysses ? 3 * tokens(x) * heads(y) + tokens(y) * heads(x)
                                                  : 4 * tokens(y) * heads(x);
      }
    }
    if (mesh_.mode == SpMode::ring) return bytes(elements);
    // Ring keys cross once for each head group of the machine.
    for (int g = 0; g < mesh_.degrees.head_groups(); ++g) {
      const auto here = [&](int r) { return on(rank_of(g, r)) == m; };
      bool any = false;
      int64_t elsewhere = 0;
      for (int r = 0; r < mesh_.degrees.ring; ++r) {
        any = any || here(r);
        if (!here(r)) elsewhere += tokens_of(r);
      }
      if (any) elements += 2 * elsewhere * heads_of(g);
    }
    return bytes(elements);
  }

 private:
  static int64_t even(int64_t n, int64_t parts, int64_t i) { return n / parts + (i < n % parts); }
  int64_t bytes(int64_t elements) const { return elements * a_.head_bytes * a_.count; }
  int64_t tokens(int x) const { return even(a_.L, mesh_.ranks(), x); }
  int64_t heads_of(int g) const { return even(a_.H, mesh_.degrees.head_groups(), g); }
  int64_t heads(int x) const { return heads_of(mesh_.head_group(x)); }
  // Of the joint tokens' results, those that rank x computes, and those that it sends or hands on.
  int64_t joint(int x) const { return even(a_.joint, mesh_.degrees.ring, mesh_.r(x)) * heads(x); }
  int64_t joint_results(int x) const {
    const Topology& t = mesh_.topology;
    int64_t on_machine = 0;  // of the ranks with x's number on all machines
    for (int m = 0; m < t.machines; ++m) on_machine += joint(m * t.devices + x % t.devices);
    return (t.machines - 1) * joint(x) + (t.devices - 1) * on_machine;
  }
  int on(int x) const { return x / mesh_.topology.devices; }
  int rank_of(int g, int r) const {
    return mesh_.rank(g / mesh_.degrees.ulysses, g % mesh_.degrees.ulysses, r);
  }
  // Tokens of all ranks with this r.
  int64_t tokens_of(int r) const {
    int64_t n = 0;
    for (int g = 0; g < mesh_.degrees.head_groups(); ++g) n += tokens(rank_of(g, r));
    return n;
  }

  const Attentions& a_;
  const SequenceMesh& mesh_;
};

// What differs from the forms; nothing: "".
std::string difference(const std::vector<RankProgram>& ranks, const Attentions& a,
                       const SequenceMesh& mesh) {
  const Forms forms(a, mesh);
  const std::vector<Asked> got = counted(ranks, mesh.topology);
  std::string wrong;
  std::vector<int64_t> between(static_cast<size_t>(mesh.topology.machines));
  for (int x = 0; x < mesh.ranks(); ++x) {
    const Asked& asked = got[static_cast<size_t>(x)];
    between[static_cast<size_t>(mesh.topology.machine_of(x))] += asked.between_machines;
    if (asked.all == forms.all(x)) continue;
    wrong += fmt::format("rank {}: {} bytes, not {}\n", x, asked.all, forms.all(x));
  }
  for (int m = 0; m < mesh.topology.machines; ++m) {
    const int64_t got_between = between[static_cast<size_t>(m)];
    if (got_between == forms.between(m)) continue;
    wrong +=
        fmt::format("machine {}: {} bytes from others, not {}\n", m, got_between, forms.between(m));
  }
  return wrong;
}

const std::vector<Topology> kTopologies = {{1, 2}, {1, 3}, {1, 4}, {1, 5}, {1, 6}, {1, 7},
                                           {1, 8}, {2, 1}, {2, 2}, {2, 3}, {2, 4}};
const WeightDtype kBf16 = [](std::string_view) { return DType::bf16; };
const std::vector<std::vector<std::string>> kPictureParts = {{"text"}, {"latents", "rope"}};
const std::vector<std::vector<std::string>> kVideoParts = {{"text"}, {"latents", "positions"}};

FluxConfig flux_of_two_blocks() {
  FluxConfig config;
  config.blocks = 1;
  config.single_blocks = 1;
  return config;
}

// All degrees of the mode on each topology.
void each_mesh(SpMode mode, int64_t heads, const std::function<void(const SequenceMesh&)>& check) {
  for (const Topology& topology : kTopologies) {
    for (const SequenceMesh& mesh : sequence_meshes(mode, topology, heads)) {
      SCOPED_TRACE(
          fmt::format("{} heads, {} on {}", heads, to_string(mesh.degrees), to_string(topology)));
      check(mesh);
    }
  }
}

class StepTraffic : public testing::TestWithParam<SpMode> {};

TEST_P(StepTraffic, OfFlux) {
  const FluxConfig config = flux_of_two_blocks();
  for (const auto& [text, image] :
       {std::pair<int64_t, int64_t>{1, 63 * 63}, {77, 52 * 76}, {511, 63 * 63}, {512, 4096}}) {
    const Program step = flux_step(config, {.text = text, .image = image}, kBf16, DType::bf16);
    const Attentions a{
        .L = text + image, .H = config.heads, .head_bytes = 2 * config.head_dim, .count = 2};
    each_mesh(GetParam(), config.heads, [&](const SequenceMesh& mesh) {
      EXPECT_EQ(difference(lower(step, row_parallel(step, mesh, kPictureParts)), a, mesh), "")
          << "text " << text;
    });
  }
}

// A pass on each group of cfg ranks, and both passes on all ranks.
TEST_P(StepTraffic, OfCogVideoX) {
  for (int64_t heads : {30, 48}) {
    CogVideoXConfig config;
    config.blocks = 1;
    config.heads = heads;
    config.rotary = heads == 48;
    for (const int64_t text : {1, 226, 512}) {
      for (const TextOrder order : {TextOrder::apart, TextOrder::batch, TextOrder::turns}) {
        const int64_t passes = order == TextOrder::apart ? 1 : 2;
        const CogVideoXShape shape{.texts = passes,
                                   .text = text,
                                   .tokens = 5 * 15 * 23,
                                   .passes = order == TextOrder::turns};
        const Program step = cogvideox_step(config, shape, kBf16, DType::bf16);
        const auto parts = CogVideoXTransformer::row_parts(TextRows::split, shape);
        // A batch's texts are further heads.
        const bool batch = order == TextOrder::batch;
        const Attentions a{.L = text + shape.tokens,
                           .H = batch ? passes * heads : heads,
                           .head_bytes = 2 * config.head_dim,
                           .count = batch ? 1 : passes};
        each_mesh(GetParam(), heads, [&](const SequenceMesh& mesh) {
          EXPECT_EQ(difference(lower(step, row_parallel(step, mesh, parts)), a, mesh), "")
              << "text " << text << ", " << to_string(order);
        });
      }
    }
  }
}

TEST_P(StepTraffic, OfReplicatedText) {
  const FluxConfig flux = flux_of_two_blocks();
  CogVideoXConfig cogvideox;
  cogvideox.blocks = 1;
  for (const int64_t text : {1, 77, 512}) {
    const int64_t image = 52 * 76, video = 5 * 15 * 23;
    const Program picture =
        flux_step(flux, {.text = text, .image = image, .apart = true}, kBf16, DType::bf16);
    const Program passes = cogvideox_step(
        cogvideox, {.texts = 2, .text = text, .tokens = video, .passes = true}, kBf16, DType::bf16);
    const Attentions of_picture{
        .L = image, .joint = text, .H = flux.heads, .head_bytes = 2 * flux.head_dim, .count = 2};
    const Attentions of_passes{.L = video,
                               .joint = text,
                               .H = cogvideox.heads,
                               .head_bytes = 2 * cogvideox.head_dim,
                               .count = 2};
    const auto check = [&](const Program& step, const Attentions& a,
                           const std::vector<std::string>& divided) {
      each_mesh(GetParam(), a.H, [&](const SequenceMesh& mesh) {
        EXPECT_EQ(difference(lower(step, row_parallel(step, mesh, {divided})), a, mesh), "")
            << "text " << text;
      });
    };
    check(picture, of_picture, kPictureParts[1]);
    check(passes, of_passes, kVideoParts[1]);
  }
}

// A pipeline's report of a step with two passes: with two groups of ranks each pass moves rows
// inside a group, and the groups exchange predictions through the host.
TEST_P(StepTraffic, AsPipelinesReport) {
  VideoRequest request{.prompt = "a small cat in a box",
                       .negative = "sea",
                       .width = 24,
                       .height = 16,
                       .frames = 17,
                       .steps = 1,
                       .guidance = 5,
                       .text_tokens = 9,
                       .seed = 3};
  request.on_progress = [](const PipelineProgress& p) {
    return p.stage != PipelineProgress::Stage::decode;
  };
  for (const char* schedule : {"sequence_parallel", "cfg_passes"}) {
    for (const auto& [topology, cfg_ranks] : {std::pair<Topology, int>{{1, 2}, 1},
                                              {{1, 3}, 1},
                                              {{2, 2}, 1},
                                              {{1, 2}, 2},
                                              {{1, 3}, 2}}) {
      SCOPED_TRACE(fmt::format("{}, {}, cfg {}", schedule, to_string(topology), cfg_ranks));
      if (impossible(GetParam(), topology, 2)) continue;
      CogVideoXPipeline pipeline(tiny_pipeline("video"),
                                 {.threads = 1,
                                  .sp = GetParam(),
                                  .topology = {topology.machines, topology.devices * cfg_ranks},
                                  .cfg_ranks = cfg_ranks,
                                  .schedule = schedule});
      const CogVideoXConfig& config = pipeline.transformer();
      const VideoResult result = pipeline.generate(request);
      const SequenceMesh& mesh = pipeline.mesh().value();
      ASSERT_EQ(mesh.ranks(), topology.ranks());
      const int64_t patches =
          (request.width / pipeline.unit()) * (request.height / pipeline.unit());
      // A batch, unless the schedule says otherwise.
      const bool batch = cfg_ranks == 1 && std::string_view(schedule) != "cfg_passes";
      EXPECT_EQ(result.passes == "as one batch", batch) << result.passes;
      const Attentions a{.L = request.text_tokens + (5 * patches),
                         .H = batch ? 2 * config.heads : config.heads,
                         .head_bytes = 4 * config.head_dim,
                         .count = batch ? config.blocks : 2 * config.blocks};
      int64_t want = 0;
      for (int x = 0; x < mesh.ranks(); ++x) want += Forms(a, mesh).all(x);
      EXPECT_EQ(result.step_bytes, want);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, StepTraffic, testing::ValuesIn(kSpModes),
                         [](const auto& info) { return std::string(to_string(info.param)); });

// The counter finds faults: a rank that copies some rows twice, and text that lies on one rank in
// place of even shares of the whole sequence.
TEST(StepTrafficFaults, AreFound) {
  CogVideoXConfig config;
  config.blocks = 2;
  const Program step = cogvideox_step(config, {.text = 77, .tokens = 200}, kBf16, DType::bf16);
  const Attentions a{.L = 277, .H = config.heads, .head_bytes = 2 * config.head_dim, .count = 2};
  for (SpMode mode : kSpModes) {
    const SequenceMesh mesh = sequence_mesh(mode, {.machines = 2, .devices = 2}, config.heads);
    const LayoutPlan plan = row_parallel(step, mesh, kVideoParts);
    std::vector<RankProgram> ranks = lower(step, plan);
    ASSERT_EQ(difference(ranks, a, mesh), "");
    for (Op& op : ranks[1].program.ops) {
      if (op.def != &ops::kPull && op.def != &ops::kPush) continue;
      ops::MoveAttrs attrs = op.attrs.as<ops::MoveAttrs>();
      if (attrs.moves.empty()) continue;
      attrs.moves.push_back(attrs.moves[0]);
      op.attrs = Attrs::of(attrs);
      break;
    }
    EXPECT_THAT(difference(ranks, a, mesh), testing::StartsWith("rank 1: ")) << to_string(mode);

    LayoutPlan apart = plan;
    apart.pinned["text"] = Placement::shard(0, {{0, 0}, {0, 0}, {0, 0}, {0, 77}});
    EXPECT_THAT(difference(lower(step, apart), a, mesh), testing::StartsWith("rank 0: "))
        << to_string(mode);
  }
}

}  // namespace
}  // namespace braid::golden
