// Sequence-parallel attention gives what one rank would, for every mode, mesh and shape.
#include "dist/sequence_world.h"

namespace braid::testing_sp {
namespace {

struct Shape {
  const char* name;
  int64_t L = 37, kv_L = 0;  // 0: as L
  int64_t heads = 24, kv_heads = 24, D = 8, B = 1;
  int64_t left = -1, right = -1;
  int64_t joint_q = 0, joint_kv = 0;
  SequenceAttention::Rounds rounds = {};
  enum Layout { even, uneven, zigzag } layout = even;
};

SequenceLayout layout_of(Shape::Layout kind, int64_t L, int P, int64_t first, uint64_t seed) {
  if (kind == Shape::zigzag) return zigzag_layout(L, P, first);
  if (kind == Shape::even) return even_layout(L, P, first);
  return contiguous_layout(fabric::uneven_parts(seed, P, L), first);
}

SequenceAttention attention_of(const Shape& s, int P) {
  SequenceAttention a{.batch = s.B,
                      .q_heads = s.heads,
                      .kv_heads = s.kv_heads,
                      .head_dim = s.D,
                      .scale = 1 / std::sqrt(static_cast<float>(s.D)),
                      .window_left = s.left,
                      .window_right = s.right};
  a.joint_q = s.joint_q;
  a.joint_kv = s.joint_kv;
  a.rounds = s.rounds;
  a.q = layout_of(s.layout, s.L, P, s.joint_q, 3);
  a.kv = layout_of(s.layout, s.kv_L ? s.kv_L : s.L, P, s.joint_kv, s.kv_L ? 5 : 3);
  return a;
}

const Shape kShapes[] = {
    {.name = "24 heads", .L = 41},
    {.name = "uneven", .L = 45, .heads = 9, .kv_heads = 9, .D = 12, .layout = Shape::uneven},
    {.name = "gqa causal zigzag",
     .L = 53,
     .heads = 40,
     .kv_heads = 8,
     .right = 0,
     .layout = Shape::zigzag},
    {.name = "mqa window", .L = 61, .heads = 9, .kv_heads = 1, .B = 2, .left = 11, .right = 3},
    {.name = "joint prefix",
     .L = 33,
     .heads = 9,
     .kv_heads = 3,
     .B = 2,
     .joint_q = 7,
     .joint_kv = 7},
    {.name = "joint causal",
     .L = 35,
     .heads = 9,
     .kv_heads = 9,
     .right = 0,
     .joint_q = 5,
     .joint_kv = 5,
     .layout = Shape::zigzag},
    {.name = "cross",
     .L = 29,
     .kv_L = 17,
     .heads = 9,
     .kv_heads = 3,
     .joint_kv = 3,
     .layout = Shape::uneven},
    {.name = "fewer rows than ranks", .L = 3, .heads = 8, .kv_heads = 8},
};

// Every factorization of the mode's axes over a topology.
std::vector<SequenceMesh> meshes_of(SpMode mode, const Topology& topology, int64_t heads) {
  std::vector<SequenceMesh> meshes;
  const int P = topology.ranks();
  for (int t = 1; t <= P; ++t) {
    for (int u = 1; t * u <= P; ++u) {
      if (P % (t * u) != 0 || t * u > heads) continue;
      if (mode != SpMode::torus && t > 1) continue;
      if (mode == SpMode::ring && u > 1) continue;
      if (mode == SpMode::ulysses && u < P) continue;
      meshes.push_back(
          sequence_mesh(mode, topology, heads, {.torus = t, .ulysses = u, .ring = P / (t * u)}));
    }
  }
  return meshes;
}

constexpr SpMode kModes[] = {SpMode::ring, SpMode::ulysses, SpMode::usp, SpMode::tas,
                             SpMode::torus};

class SequenceExactness : public testing::TestWithParam<std::tuple<SpMode, const char*>> {};

TEST_P(SequenceExactness, EqualsOneRank) {
  const auto [mode, text] = GetParam();
  const Topology topology = parse_topology(text);
  size_t turn = 0;
  for (const Shape& shape : kShapes) {
    const SequenceAttention a = attention_of(shape, topology.ranks());
    const auto meshes = meshes_of(mode, topology, shape.heads);
    // Four meshes of up to four ranks, of more two, in turn from shape to shape.
    const size_t most = topology.ranks() <= 4 ? 4 : 2;
    for (size_t n = 0; n < std::min(most, meshes.size()); ++n) {
      const SequenceMesh& mesh = meshes[turn++ % meshes.size()];
      SCOPED_TRACE(fmt::format("{}: {} {} on {}", shape.name, to_string(mode),
                               to_string(mesh.degrees), text));
      const WorldConfig config{.strategy = turn % 3 == 0 ? "sequential" : "sequence_parallel",
                               .threads = 1 + static_cast<int>(turn % 2),
                               .steps = 2};
      const WorldResult got = run_world(a, mesh, config);
      expect_exact(a, got, config.seed + 1);
      if (HasFatalFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SequenceExactness,
                         testing::Combine(testing::ValuesIn(kModes),
                                          testing::Values("1x1", "1x2", "1x3", "1x4", "2x2", "4x1",
                                                          "1x5", "2x3", "1x7", "2x4", "4x2",
                                                          "3x2")),
                         [](const auto& info) {
                           return fmt::format("{}_{}", to_string(std::get<0>(info.param)),
                                              std::get<1>(info.param));
                         });

// Calls that take along some of the queries of another stage compute the same.
TEST(SequenceRounds, FilledCallsAreExact) {
  const Shape plain{
      .name = "filled", .L = 131, .heads = 9, .kv_heads = 3, .B = 2, .joint_q = 6, .joint_kv = 6};
  for (const char* text : {"2x1", "3x1", "2x2"}) {
    const Topology topology = parse_topology(text);
    for (int64_t tiles : {5, 23}) {
      for (Shape::Layout layout : {Shape::even, Shape::uneven}) {
        Shape shape = plain;
        shape.layout = layout;
        shape.rounds = {.rows = 4, .tiles = tiles};
        const SequenceAttention a = attention_of(shape, topology.ranks());
        for (const SequenceMesh& mesh : meshes_of(SpMode::torus, topology, shape.heads)) {
          SCOPED_TRACE(fmt::format("{} on {}, {} tiles", to_string(mesh.degrees), text, tiles));
          expect_exact(a, run_world(a, mesh, {}), 1);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// All factorizations of the eight-rank topologies, torus being the most general lowering.
TEST(SequenceMeshes, EveryFactorizationOfEightRanks) {
  const Shape shape{.name = "sweep",
                    .L = 43,
                    .heads = 16,
                    .kv_heads = 4,
                    .right = 0,
                    .joint_q = 3,
                    .joint_kv = 3,
                    .layout = Shape::zigzag};
  for (const char* text : {"2x4", "4x2"}) {
    const Topology topology = parse_topology(text);
    const SequenceAttention a = attention_of(shape, topology.ranks());
    for (SpMode mode : {SpMode::torus, SpMode::usp, SpMode::tas}) {
      for (const SequenceMesh& mesh : meshes_of(mode, topology, shape.heads)) {
        SCOPED_TRACE(fmt::format("{} {} on {}", to_string(mode), to_string(mesh.degrees), text));
        expect_exact(a, run_world(a, mesh, {}), 1);
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace braid::testing_sp
