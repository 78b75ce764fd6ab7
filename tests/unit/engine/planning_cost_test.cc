// What the plan of a prompt's new length costs, in calls of the parts that take its time.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "any_phases.h"
#include "braid/backend/null/null_backend.h"
#include "braid/engine/prompt_choice.h"
#include "braid/model/model_shape.h"
#include "braid/ops/linear.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

constexpr int kRanks = 4;

// Calls since the last reset.
struct Calls {
  int models = 0;    // Programs written by the model
  int finds = 0;     // choices of a kernel
  int rewrites = 0;  // Programs handed to the backend
  int shapes = 0;    // runs of a linear's shape rule
};
Calls calls;

std::vector<ValueType> counted_shape(const Attrs& attrs, TypeList in) {
  ++calls.shapes;
  return ops::kLinear.infer(attrs, in);
}

class CountedKernels : public KernelCatalog {
 public:
  KernelInfo find(const Program& program, const Op& op, Stream stream,
                  const Extents& capacity) const override {
    ++calls.finds;
    return backend_.catalog().find(program, op, stream, capacity);
  }
  Program rewrite(Program program) const override {
    ++calls.rewrites;
    return program;
  }

 private:
  NullBackend backend_{&any_phases};
};

class PlanningCost : public ::testing::Test {
 protected:
  PlanningCost() {
    shape_ = read_model_shape(fmt::format("{}/../configs/llama-3-8b.json", BRAID_TEST_DATA));
    linear_ = ops::kLinear;
    linear_.infer = counted_shape;
  }

  std::unique_ptr<const ForwardPlanner> planner(SpMode mode, const Topology& topology) {
    const CacheShape cache{.pages = 256,
                           .page_size = 64,
                           .pages_per_sequence = 256,
                           .kv_dtype = DType::bf16,
                           .activations = DType::bf16};
    const auto model = [this](const ForwardShape& shape) {
      ++calls.models;
      Program program = shape_.forward(shape);
      linears_ = 0;
      for (Op& op : program.ops) {
        if (op.def != &ops::kLinear) continue;
        op.def = &linear_;
        ++linears_;
      }
      return program;
    };
    return std::make_unique<const ForwardPlanner>(
        model, cache, std::vector<const KernelCatalog*>(topology.ranks(), &kernels_), topology,
        sequence_mesh(mode, topology, shape_.config.Hq, {}));
  }

  void set_layers(int64_t layers) {
    shape_.config.layers = layers;
    shape_.config.windows.resize(layers);
  }

  PlannedForward plan(const ForwardPlanner& planner, int64_t tokens) {
    const SequenceLayout q = even_zigzag_layout(tokens, planner.ranks());
    return planner.plan_tokens(*strategy_, q, q, key_for_tokens(q, q, 1).micro_batches[0]);
  }

  ModelShape shape_;
  OpDef linear_;
  int linears_ = 0;
  CountedKernels kernels_;
  const std::shared_ptr<const OpScheduler> strategy_ = find_strategy("sequence_parallel");
};

// Twice as many layers cost twice the calls, and no rank costs more than another.
TEST_F(PlanningCost, GrowsWithLaunchesAlone) {
  for (int64_t layers : {2, 4, 8}) {
    set_layers(layers);
    const auto ring = planner(SpMode::ring, {.devices = kRanks});
    calls = {};
    const PlannedForward planned = plan(*ring, 1001);
    EXPECT_EQ(calls.models, 1);
    EXPECT_EQ(calls.rewrites, kRanks);
    // Of a launch, and of an attention before, which asks whether its kernel waits inside.
    EXPECT_EQ(calls.finds, kRanks * (planned.schedules[0].num_launches() + layers)) << layers;
    // Lowered Programs are verified, and once more after fusions, which take each layer's gate.
    EXPECT_EQ(calls.shapes, kRanks * (2 * linears_ - layers)) << layers;
  }
}

// A length between known powers of two simulates nothing: `--sp auto` plans the mode that it chose.
TEST_F(PlanningCost, AutoSimulatesAPowerOfTwoOnce) {
  set_layers(2);
  const Topology all{.devices = kRanks};
  PromptChoice::Planners planners;
  planners.push_back(planner(SpMode::ring, Topology{}));
  for (SpMode mode : {SpMode::ulysses, SpMode::ring}) planners.push_back(planner(mode, all));
  constexpr int kWays = 5;  // three planners, and two forms of divided weights
  PromptChoice choice(planners, strategy_, load_profile("h100"), 16384);
  const auto choose = [&](int64_t tokens) {
    calls = {};
    choice.choose(tokens, 0, [](int) { return true; });
    return calls.models;
  };
  const int first = choose(5000);
  EXPECT_GE(first, 2 * kWays + 1);
  EXPECT_LT(first, 3 * kWays) << "halfway a rank alone is too slow to count";
  for (int64_t tokens : {5001, 8000, 4097, 4096, 8192}) EXPECT_EQ(choose(tokens), 0) << tokens;
  EXPECT_LT(choose(9000), 2 * kWays) << "8192 is known";
}

}  // namespace
}  // namespace braid
