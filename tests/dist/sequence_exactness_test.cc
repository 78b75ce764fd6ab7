// Sequence-parallel attention gives what one rank would, for every mode, mesh and shape.
#include "dist/sequence_shapes.h"
#include "dist/sequence_world.h"

namespace braid::testing_sp {
namespace {

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

class SequenceExactness : public testing::TestWithParam<std::tuple<SpMode, const char*>> {};

TEST_P(SequenceExactness, EqualsOneRank) {
  const auto [mode, text] = GetParam();
  const Topology topology = parse_topology(text);
  size_t turn = 0;
  for (const Shape& shape : kShapes) {
    const SequenceAttention a = attention_of(shape, topology.ranks(), DType::f32);
    for (const SequenceMesh& mesh : sequence_meshes(mode, topology, shape.heads)) {
      ++turn;
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
                         testing::Combine(testing::ValuesIn(kSpModes),
                                          testing::Values("1x1", "1x2", "1x3", "1x4", "2x2", "4x1",
                                                          "1x5", "2x3", "1x7", "2x4", "4x2", "3x2",
                                                          "2x2x1", "2x2x2")),
                         [](const auto& info) {
                           return fmt::format("{}_{}", to_string(std::get<0>(info.param)),
                                              std::get<1>(info.param));
                         });

// Stages in one call compute the same.
TEST(SequenceStages, OneCallIsExact) {
  const Shape plain{
      .name = "stages", .L = 131, .heads = 9, .kv_heads = 3, .B = 2, .joint_q = 6, .joint_kv = 6};
  for (const char* text : {"1x2", "1x3", "2x1", "3x1", "2x2"}) {
    const Topology topology = parse_topology(text);
    for (bool causal : {false, true}) {
      for (Shape::Layout layout : {Shape::even, Shape::uneven, Shape::lopsided, Shape::zigzag}) {
        Shape shape = plain;
        shape.layout = layout;
        if (causal) shape.right = 0;
        const SequenceAttention a = attention_of(shape, topology.ranks(), DType::f32);
        for (SpMode mode : kSpModes) {
          for (const SequenceMesh& mesh : sequence_meshes(mode, topology, shape.heads)) {
            SCOPED_TRACE(fmt::format("{} {} on {}, layout {}, causal {}", to_string(mode),
                                     to_string(mesh.degrees), text, static_cast<int>(layout),
                                     causal));
            expect_exact(a, run_world(a, mesh, {.kernels = {&any_phases}}), 1);
            if (HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

// Where ranks cannot store into the memory of others, every result is pushed, to the same bits.
TEST(SequenceStores, WhatCannotBeStoredIsPushed) {
  for (SpMode mode : kSpModes) {
    for (const char* text : {"1x3", "2x2"}) {
      SequenceMesh mesh = sequence_mesh(mode, parse_topology(text), 9, {});
      SCOPED_TRACE(fmt::format("{} on {}", to_string(mode), text));
      const Shape shape{.name = "joint", .L = 33, .heads = 9, .kv_heads = 3, .B = 2, .joint_q = 7};
      const SequenceAttention a = attention_of(shape, mesh.ranks(), DType::f32);
      WorldConfig config{.steps = 2};
      const WorldResult stored = run_world(a, mesh, config);
      expect_exact(a, stored, config.seed + 1);
      mesh.topology.mapped = false;
      config.links.machine_link = Link{1e9, 1e-6};
      const WorldResult pushed = run_world(a, mesh, config);
      EXPECT_EQ(stored.o, pushed.o);
      EXPECT_EQ(stored.joint_o, pushed.joint_o);
      int64_t stores[2] = {0, 0};
      for (int i : {0, 1}) {
        for (const auto& rank : (i == 0 ? stored : pushed).traffic) {
          for (const fabric::TrafficEntry& entry : rank) {
            if (entry.tag == "store") stores[i] += entry.bytes;
          }
        }
      }
      EXPECT_EQ(stores[0] > 0, mesh.degrees.head_groups() > 1);
      EXPECT_EQ(stores[1], 0);
      if (HasFatalFailure()) return;
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
    const SequenceAttention a = attention_of(shape, topology.ranks(), DType::f32);
    for (SpMode mode : {SpMode::torus, SpMode::usp, SpMode::tas}) {
      for (const SequenceMesh& mesh : sequence_meshes(mode, topology, shape.heads)) {
        SCOPED_TRACE(fmt::format("{} {} on {}", to_string(mode), to_string(mesh.degrees), text));
        expect_exact(a, run_world(a, mesh, {}), 1);
        if (HasFatalFailure()) return;
      }
    }
  }
}

}  // namespace
}  // namespace braid::testing_sp
