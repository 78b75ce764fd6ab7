// Which launches of a decode step a relay takes: without a GPU.
#include "braid/kernels/cuda/relay/relay_run.h"

#include <gmock/gmock.h>

#include "braid/ops/rope_append.h"
#include "unit/kernels_cuda_relay/relay_step.h"

namespace braid::cuda {
namespace {

using testing_relay::fused_decoder;
using testing_relay::StepShape;

// Behind the embedding.
std::vector<const Op*> ops_of(const Program& program) {
  std::vector<const Op*> ops;
  for (const Op& op : program.ops) ops.push_back(&op);
  ops.erase(ops.begin());
  return ops;
}

RelayRun run_of(const StepShape& s, const RelayDevice& device = {}) {
  const Program program = fused_decoder(s);
  return relay_run(program, ops_of(program), device, false);
}

TEST(RelayRun, TakesLayersAndHead) {
  for (const StepShape& s : {StepShape{},
                             {.biases = true},
                             {.Hq = 8, .Hkv = 8, .D = 128},
                             {.V = 33004},
                             {.C = 768, .F = 2304, .weights = DType::q4_k},
                             {.Hq = 8, .Hkv = 1}}) {
    const Program program = fused_decoder(s);
    const RelayRun run = relay_run(program, ops_of(program), {}, false);
    EXPECT_EQ(run.launches, 6 * s.layers + 1);
    EXPECT_EQ(run.launches, std::ssize(program.ops) - 1);
    EXPECT_EQ(run.config.head_dim, s.D);
    EXPECT_FALSE(run.config.ranked);
    const LaunchGroup group = relay_group(run);
    EXPECT_EQ(group.count, run.launches);
    EXPECT_EQ(group.form, &kRelay);
    EXPECT_EQ(group.kernel, to_string(run.config));
    for (const Op* op : ops_of(program)) EXPECT_TRUE(kRelay.takes(*op)) << op->def->kind;
  }
}

TEST(RelayRun, WhatItDoesNotTake) {
  EXPECT_EQ(run_of({.tokens = 2}).launches, 0);
  EXPECT_EQ(run_of({.weights = DType::f16}).launches, 0);
  EXPECT_EQ(run_of({.activations = DType::f32}).launches, 0);
  EXPECT_EQ(run_of({}, {.compute_capability = 80}).launches, 0);
  EXPECT_EQ(relay_group({}).count, 0);
  // Steps up to the first attention are too few.
  EXPECT_EQ(run_of({.D = 32}).launches, 0);
  EXPECT_EQ(run_of({.softcap = 30}).launches, 0);
  EXPECT_EQ(run_of({.dual =
                        ops::DualChunks{
                            .chunk = 8, .reach = 16, .rope = {.head_dim = 64, .rotary_dim = 64}}})
                .launches,
            0);
  EXPECT_EQ(run_of({.cache = DType::f16}).launches, 0);
  EXPECT_EQ(run_of({.page_size = 8}).launches, 0);
  EXPECT_EQ(run_of({.Hq = 32, .Hkv = 2}).launches, 0);
}

// A relay ends before what it does not take: behind a linear or an attention.
TEST(RelayRun, EndsWhole) {
  EXPECT_EQ(run_of({.layers = 3, .odd_layer = 1}).launches, 6);
  EXPECT_EQ(run_of({.F = 1372}).launches, 5);  // rows of down are no multiple of 8
  const Program program = fused_decoder({});
  const std::vector<const Op*> ops = ops_of(program);
  for (size_t n = 0; n <= ops.size(); ++n) {
    const auto run = relay_run(program, std::span(ops).first(n), {}, false);
    // norm and q k v, rope, attention, o, norm with gate and up, down: a rope waits for attention.
    const size_t whole = n < 5 ? 0 : n - (ops[n - 1]->def == &ops::kRopeAppend ? 1 : 0);
    EXPECT_EQ(run.launches, static_cast<int>(whole)) << n;
  }
}

// It begins with a norm of a row in memory alone.
TEST(RelayRun, BeginsWithANorm) {
  const Program program = fused_decoder({});
  const std::vector<const Op*> ops = ops_of(program);
  for (const size_t n : {1, 2, 3, 4, 5, 6}) {
    EXPECT_EQ(relay_run(program, std::span(ops).subspan(n), {}, false).launches, 0) << n;
  }
}

// As behind a prompt over several ranks, where other launches divide the layers.
TEST(RelayRun, AHeadAloneIsNoGroup) {
  const RelayRun head = run_of({.C = 4096, .V = 128256, .layers = 0});
  EXPECT_EQ(head.launches, 1);
  EXPECT_EQ(relay_group(head).count, 0);
}

// Each op takes what the op before made: a step that takes another value ends the relay before it.
TEST(RelayRun, FollowsValues) {
  const Program good = fused_decoder({.layers = 3});
  const std::vector<const Op*> ops = ops_of(good);
  for (size_t n = 6; n < ops.size(); ++n) {
    const auto index = static_cast<size_t>(ops[n] - good.ops.data());
    for (size_t i = 0; i < good.ops[index].inputs.size(); ++i) {
      const ValueId id = good.ops[index].inputs[i];
      if (id == kNoValue || good.value(id).kind != ValueKind::computed) continue;
      Program other = good;
      other.values.push_back(good.value(id));
      other.ops[index].inputs[i] = static_cast<ValueId>(other.values.size()) - 1;
      const int taken = relay_run(other, ops_of(other), {}, false).launches;
      EXPECT_LE(taken, static_cast<int>(n)) << n << ", input " << i;
      EXPECT_GE(taken, static_cast<int>(n) - 1) << n << ", input " << i;
    }
  }
}

}  // namespace
}  // namespace braid::cuda
