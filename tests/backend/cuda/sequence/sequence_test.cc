// Sequence-parallel attention on GPUs gives what one rank would, in f64 over the same bf16 inputs:
// every mode, within a machine and between emulated ones, eagerly and as replayed graphs.
#include <gtest/gtest.h>

#include "backend/cuda/sequence/sequence_world.h"
#include "braid/parallel/attention/traffic.h"
#include "dist/sequence_shapes.h"

namespace braid::testing_sp_gpu {
namespace {

using testing_sp::attention_of;
using testing_sp::Shape;

const Shape kShapes[] = {
    {.name = "24 heads", .L = 301, .D = 128},
    {.name = "uneven lengths and heads",
     .L = 245,
     .heads = 9,
     .kv_heads = 9,
     .D = 64,
     .layout = Shape::lopsided},
    {.name = "cut groups",
     .L = 131,
     .heads = 9,
     .kv_heads = 3,
     .D = 64,
     .joint_q = 7,
     .joint_kv = 7},
    {.name = "gqa causal zigzag",
     .L = 253,
     .heads = 10,
     .kv_heads = 2,
     .D = 128,
     .right = 0,
     .layout = Shape::zigzag},
    {.name = "mqa window, two sequences",
     .L = 161,
     .heads = 9,
     .kv_heads = 1,
     .D = 64,
     .B = 2,
     .left = 51,
     .right = 3},
    {.name = "micro-batches",
     .L = 97,
     .heads = 4,
     .kv_heads = 2,
     .D = 64,
     .B = 3,
     .micro_batches = 2},
    {.name = "joint causal",
     .L = 135,
     .heads = 5,
     .kv_heads = 5,
     .D = 256,
     .right = 0,
     .joint_q = 5,
     .joint_kv = 5,
     .layout = Shape::zigzag},
    {.name = "cross",
     .L = 129,
     .kv_L = 67,
     .heads = 9,
     .kv_heads = 3,
     .D = 96,
     .joint_kv = 3,
     .layout = Shape::lopsided},
    {.name = "fewer rows than ranks", .L = 1, .heads = 8, .kv_heads = 8, .D = 64},
    {.name = "a rank without rows", .L = 3, .heads = 8, .kv_heads = 8, .D = 64},
    {.name = "a head dim of the plain kernel",
     .L = 83,
     .heads = 9,
     .kv_heads = 3,
     .D = 20,
     .B = 2,
     .left = 31,
     .right = 2,
     .joint_q = 3,
     .joint_kv = 3,
     .layout = Shape::zigzag},
    {.name = "many tiles",
     .L = 1201,
     .heads = 24,
     .kv_heads = 8,
     .D = 64,
     .joint_q = 9,
     .joint_kv = 9},
};

class SequenceOnGpus : public testing::TestWithParam<std::tuple<SpMode, const char*>> {};

// The first step is eager, the later ones replay a graph; steps 0, 2 and 3 have one seed.
TEST_P(SequenceOnGpus, EqualsOneRankAndRepeats) {
  const auto [mode, text] = GetParam();
  const Topology topology = parse_topology(text);
  if (!has_gpus(topology)) GTEST_SKIP() << gpus() << " GPUs";
  fabric::PeerFabric fabric(fabric_config(topology));
  size_t turn = 0;
  for (const Shape& shape : kShapes) {
    const SequenceAttention a = attention_of(shape, topology.ranks(), DType::bf16);
    const auto meshes = sequence_meshes(mode, topology, shape.heads);
    const SequenceMesh& mesh = meshes[turn++ % meshes.size()];
    SCOPED_TRACE(
        fmt::format("{}: {} {} on {}", shape.name, to_string(mode), to_string(mesh.degrees), text));
    const RunConfig config{.seeds = {1, 2, 1, 1},
                           .strategy = turn % 4 == 3 ? "sequential" : "sequence_parallel",
                           .micro_batches = shape.micro_batches,
                           .by_stages = turn % 3 == 0};
    const auto got = run(fabric, a, mesh, config);
    expect_exact(a, got[1], 2);
    if (HasFatalFailure()) return;
    expect_exact(a, got[3], 1);
    if (HasFatalFailure()) return;
    for (size_t i : {2u, 3u}) {
      EXPECT_TRUE(same_bits(got[i].o, got[0].o)) << "step " << i;
      EXPECT_TRUE(same_bits(got[i].joint_o, got[0].joint_o)) << "step " << i;
    }
    const auto traffic = attention_traffic(a, mesh);
    for (size_t r = 0; r < traffic.size(); ++r) {
      EXPECT_EQ(got[0].bytes[r], traffic[r][1] + traffic[r][2]) << "rank " << r;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SequenceOnGpus,
                         testing::Combine(testing::Values(SpMode::ring, SpMode::ulysses,
                                                          SpMode::usp, SpMode::tas, SpMode::torus),
                                          testing::Values("1x2", "2x1", "1x4", "2x2", "4x1")),
                         [](const auto& info) {
                           return fmt::format("{}_{}", to_string(std::get<0>(info.param)),
                                              std::get<1>(info.param));
                         });

class SequenceFaultsOnGpus : public testing::TestWithParam<const char*> {};

TEST_P(SequenceFaultsOnGpus, ALateRankChangesNothing) {
  const Topology topology = parse_topology(GetParam());
  if (!has_gpus(topology)) GTEST_SKIP() << gpus() << " GPUs";
  fabric::PeerFabric fabric(fabric_config(topology));
  const SequenceAttention a = attention_of(kShapes[1], topology.ranks(), DType::bf16);
  for (SpMode mode : {SpMode::ring, SpMode::ulysses, SpMode::torus}) {
    SCOPED_TRACE(to_string(mode));
    const SequenceMesh mesh = sequence_meshes(mode, topology, a.q_heads).back();
    const RunConfig config{.seeds = {3, 3, 3}, .late = std::chrono::milliseconds(30)};
    const auto got = run(fabric, a, mesh, config);
    expect_exact(a, got[2], 3);
    EXPECT_TRUE(same_bits(got[2].o, got[0].o));
  }
}

TEST_P(SequenceFaultsOnGpus, ARankThatDoesNotComeEndsTheJob) {
  const Topology topology = parse_topology(GetParam());
  if (!has_gpus(topology)) GTEST_SKIP() << gpus() << " GPUs";
  for (SpMode mode : {SpMode::ring, SpMode::ulysses, SpMode::torus}) {
    SCOPED_TRACE(to_string(mode));
    fabric::PeerFabric fabric(fabric_config(topology, std::chrono::milliseconds(500)));
    const SequenceAttention a = attention_of(kShapes[1], topology.ranks(), DType::bf16);
    const SequenceMesh mesh = sequence_meshes(mode, topology, a.q_heads).back();
    try {
      run(fabric, a, mesh, {.absent = true});
      FAIL() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDeadline) << error.what();
      EXPECT_NE(std::string(error.what()).find("sync"), std::string::npos) << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SequenceFaultsOnGpus, testing::Values("1x2", "2x1", "2x2"));

}  // namespace
}  // namespace braid::testing_sp_gpu
