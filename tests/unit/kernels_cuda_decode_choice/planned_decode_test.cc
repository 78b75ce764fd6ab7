// Decode steps of an absent GPU: the parts of launches add up to the form's price.
#include "braid/kernels/cuda/decode_choice/planned_decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/backend/null/null_backend.h"
#include "braid/base/error.h"
#include "braid/model/model_shape.h"
#include "braid/ops/attention_block.h"
#include "braid/parallel/lowering.h"
#include "braid/parallel/tensor_parallel.h"
#include "braid/schedule/plan_schedules.h"
#include "braid/schedule/strategies/registry.h"
#include "unit/kernels_cuda_relay/relay_step.h"
#include "unit/parallel/decoder_program.h"

namespace braid::cuda {
namespace {

constexpr int64_t kKeys = 3000;

class PlannedDecodeTest : public testing::Test {
 protected:
  // Before rewrite(), of a token or as many sequences as tokens.
  static Program decoder_of(int64_t tokens) {
    const Program program =
        testing_decoder::decoder(tokens, 3, DType::bf16, tokens == 1 ? 2 : tokens);
    return fuse(fuse(program, fusions()), few_token_fusions());
  }
  // Of a launch; the profile would price an attention's keys.
  double seconds(const Program& program, const Op& op, const OwnPrice& price) const {
    if (op.def != &ops::kAttention) return price.fixed + price.memory.value();
    EXPECT_FALSE(price.memory);
    const ValueType& k = program.value(op.inputs[1]).type;
    const int64_t keys = program.capacity.token * kKeys;
    return price.fixed +
           static_cast<double>(2 * keys * bytes_of({k.dtype, {k.shape[2], k.shape[3]}})) /
               rates_.stream;
  }
  double sum(const PlannedDecode& planned, const Program& program) const {
    double all = 0;
    for (const Op& op : program.ops) {
      all += seconds(program, op, planned.price(program, op, false).value());
    }
    return all;
  }

  const NullBackend backend_;
  const DecodeRates rates_ = absent_decode_rates("h100", 1);
};

TEST_F(PlannedDecodeTest, LaunchesApart) {
  for (const int64_t tokens : {1, 2}) {
    const PlannedDecode planned(backend_.catalog(), {}, rates_, kKeys);
    const Program program = planned.rewrite(decoder_of(tokens));
    ASSERT_TRUE(planned.form());
    EXPECT_EQ(planned.form()->kind, DecodeKind::apart);
    const auto step = describe_step(program, kKeys);
    ASSERT_TRUE(step);
    double price = -1;
    for (const DecodePrice& p : decode_prices(*step, {.clusters = rates_.clusters}, rates_)) {
      if (p.form.kind == DecodeKind::apart) price = p.seconds();
    }
    // The embedding, and rows on the way to the head, are launches beside those of layers.
    const double seam = step->norms_apart ? rates_.panel_seam : rates_.launch_seam;
    EXPECT_NEAR(sum(planned, program), price + 3 * seam, 1e-9) << tokens;
    EXPECT_THAT(planned.explain()[0], testing::HasSubstr("priced with 3000 keys"));
  }
}

// A relay is a group of the Schedule, and members have its price; other forms have no group.
TEST_F(PlannedDecodeTest, RelaysAreGroups) {
  const testing_relay::StepShape shape;
  for (const DecodeKind kind : {DecodeKind::automatic, DecodeKind::relay, DecodeKind::apart}) {
    const PlannedDecode planned(backend_.catalog(), {.kind = kind}, rates_, kKeys);
    Plan plan{{planned.rewrite(testing_relay::fused_decoder(shape))}, {}};
    plan_schedules(plan, *find_strategy("sequential"),
                   {.catalogs = {&planned},
                    .micro_batches = {{plan.programs[0].capacity}},
                    .topology = {},
                    .price = {}});
    const Schedule& schedule = plan.schedules[0];
    const Program& program = plan.programs[0];
    if (kind == DecodeKind::apart) {
      EXPECT_TRUE(schedule.groups.empty());
      continue;
    }
    ASSERT_EQ(schedule.groups.size(), 1);
    const LaunchGroup& group = schedule.groups[0];
    EXPECT_EQ(group.first, 1);
    EXPECT_EQ(group.count, 6 * shape.layers + 1);
    EXPECT_EQ(group.form, &kRelay);
    EXPECT_THAT(group.kernel, testing::StartsWith("relay 132 x "));
    EXPECT_EQ(schedule.num_launches(), 2);  // the embedding
    const auto step = describe_step(program, kKeys);
    ASSERT_TRUE(step);
    double price = -1, all = 0;
    for (const DecodePrice& p : decode_prices(*step, {.clusters = rates_.clusters}, rates_)) {
      if (p.form.kind == DecodeKind::relay) price = p.seconds();
    }
    for (int i = group.first; i < group.end(); ++i) {
      const OwnPrice own = planned.price(program, program.ops[i], true).value();
      const OwnPrice apart = planned.price(program, program.ops[i], false).value();
      EXPECT_LE(own.fixed, apart.fixed);
      EXPECT_EQ(own.memory, apart.memory);
      all += seconds(program, program.ops[i], own);
    }
    EXPECT_NEAR(all, price, 1e-9);
  }
}

// Each capacity keeps its form, whichever was planned last.
TEST_F(PlannedDecodeTest, CapacitiesHaveTheirForms) {
  const PlannedDecode planned(backend_.catalog(), {}, rates_, kKeys);
  const Program one = planned.rewrite(testing_relay::fused_decoder({}));
  std::vector<const Op*> ops;
  for (size_t i = 1; i < one.ops.size(); ++i) ops.push_back(&one.ops[i]);  // behind the embedding
  const auto run = [&] {
    return planned.join(one, {.ops = ops, .stream = Stream::compute, .ranks_alike = true}).count;
  };
  const int joined = run();
  EXPECT_GT(joined, 0);
  planned.rewrite(decoder_of(2));
  EXPECT_EQ(run(), joined);
  EXPECT_EQ(planned.form()->kind, DecodeKind::relay);
  EXPECT_EQ(
      std::ranges::count_if(planned.explain(),
                            [](const std::string& line) { return line.starts_with("decode"); }),
      2);
}

// A form's price has no experts in it: the profile says how long these are read.
TEST_F(PlannedDecodeTest, ExpertsAreReadAsTheProfileSays) {
  const ModelShape shape =
      read_model_shape(std::string(BRAID_TEST_DATA) + "/../configs/qwen3-30b-a3b.json");
  const PlannedDecode planned(backend_.catalog(), {}, rates_, kKeys);
  const Program program = planned.rewrite(
      fuse(fuse(shape.forward(
                    {.capacity = {1, 1, 1}, .pages = 8, .page_size = 64, .pages_per_sequence = 8}),
                fusions()),
           few_token_fusions()));
  int64_t experts = 0;
  for (const Op& op : program.ops) {
    const OwnPrice price = planned.price(program, op, false).value();
    experts += price.memory ? 0 : 1;
    EXPECT_EQ(!price.memory, op.def->kind.starts_with("expert_") || op.def == &ops::kAttention)
        << op.def->kind;
  }
  EXPECT_GE(experts, shape.config.layers);
}

// Ranks whose layers are divided evenly share a relay; on several machines, or where ranks differ,
// relays end at sums.
TEST_F(PlannedDecodeTest, RelaysOverRanks) {
  const testing_relay::StepShape shape = {.F = 1408, .layers = 3};
  const Program logical = testing_relay::decoder(shape);
  for (const bool across : {false, true}) {
    for (const bool alike : {false, true}) {
      const PlannedDecode planned(backend_.catalog(), {.kind = DecodeKind::relay}, rates_, kKeys,
                                  across);
      Plan plan;
      for (const RankProgram& rank : lower(logical, tensor_parallel(logical, 2))) {
        plan.programs.push_back(
            planned.rewrite(fuse(fuse(rank.program, fusions()), few_token_fusions())));
      }
      plan_schedules(plan, *find_strategy("sequential"),
                     {.catalogs = {&planned},
                      .micro_batches = {{logical.capacity}},
                      .topology = {.devices = 2},
                      .price = {},
                      .ranks_alike = alike});
      for (const Schedule& schedule : plan.schedules) {
        if (!alike || across) {
          EXPECT_TRUE(schedule.groups.empty());  // too few steps up to the first sum
          continue;
        }
        ASSERT_EQ(schedule.groups.size(), 1) << to_string(schedule, plan.programs[0]);
        EXPECT_EQ(schedule.groups[0].count, 8 * shape.layers + 1);
        EXPECT_THAT(schedule.groups[0].kernel, testing::EndsWith(", over ranks"));
      }
    }
  }
}

// Prompts, and more than a decode step, have no form.
TEST_F(PlannedDecodeTest, OfPromptsIsThatOfTheProfile) {
  const PlannedDecode planned(backend_.catalog(), {.kind = DecodeKind::relay}, rates_, kKeys);
  const Program program =
      planned.rewrite(fuse(testing_decoder::decoder(64, 2, DType::bf16), fusions()));
  EXPECT_FALSE(planned.form());
  EXPECT_FALSE(planned.price(program, program.ops[0], false));
  EXPECT_TRUE(planned.explain().empty());
}

TEST_F(PlannedDecodeTest, ForcedFormsSayWhyNot) {
  const PlannedDecode planned(backend_.catalog(), {.kind = DecodeKind::fused}, rates_, kKeys);
  try {
    planned.rewrite(decoder_of(1));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(e.what(), testing::HasSubstr("head dim 16: 64 or 128"));
  }
}

}  // namespace
}  // namespace braid::cuda
