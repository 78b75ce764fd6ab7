// What a strategy may say, and how each misuse is refused.
#include "braid/schedule/schedule_context.h"

#include <stdexcept>

#include "unit/schedule/planned_decoder.h"

namespace braid::testing_schedule {
namespace {

constexpr PlanConfig kTwo = {.ranks = 1, .micro_batches = 2};

void refused(const TestStrategy& strategy, const PlanConfig& config,
             std::vector<std::string> parts) {
  parts.emplace_back("schedule 'test'");
  expect_refused([&] { planned(strategy, config); }, parts);
}

// Executes whatever is ready until all is done.
void rest(ScheduleContext& ctx) {
  while (!ctx.done()) {
    for (int mb = 0; mb < ctx.micro_batches(); ++mb) {
      for (const Task& task : ctx.ready(mb)) ctx.execute({task});
    }
  }
}

TEST(BadStrategy, DropsAnOp) {
  refused(strategy([](ScheduleContext& ctx) { ctx.execute(ctx.ready(0)); }), kTwo,
          {"embedding at ''", "micro-batch 1", "every op runs once", "never executed"});
  refused(strategy([](ScheduleContext&) {}), kTwo, {"micro-batch 0", "never executed"});
  refused(strategy(
              [](ScheduleContext& ctx) {
                for (int mb : {0, 1}) {
                  while (!ctx.ready(mb).empty() && !(mb == 1 && ctx.ready(mb)[0].is("attention"))) {
                    ctx.execute({ctx.ready(mb)[0]});
                  }
                }
              },
              {{"attention"}}),
          kTwo, {"attention at 'layers.0.attn'", "micro-batch 1", "never executed"});
}

TEST(BadStrategy, ExecutesAnOpTwice) {
  refused(strategy(
              [](ScheduleContext& ctx) {
                ctx.execute(ctx.ready(0));
                const Task task = ctx.ready(0)[0];
                ctx.execute({task});
                ctx.execute({task});
              },
              {{"attention"}}),
          kTwo,
          {"attention at 'layers.0.attn'", "micro-batch 0", "every op runs once", "ran before"});
  refused(strategy([](ScheduleContext& ctx) {
            const Task task = ctx.ready(1)[0];
            ctx.execute({task, task});
          }),
          {.ranks = 1, .micro_batches = 2, .continues = false},
          {"embedding", "micro-batch 1", "ran before"});
}

TEST(BadStrategy, ReadsEarly) {
  const auto early = [](ScheduleContext& ctx) {
    ctx.execute(ctx.ready(0));
    ctx.execute({ctx.twin(ctx.ready(0)[0], 1)});
  };
  refused(
      strategy(early, {{"attention"}}), kTwo,
      {"attention at 'layers.0.attn'", "micro-batch 1", "inputs are made before they are read"});
  // In one breath with its maker is early too, in the wrong order.
  refused(strategy(
              [](ScheduleContext& ctx) {
                const Task first = ctx.ready(0)[0];
                ctx.execute({first});
                const Task second = ctx.ready(0)[0];
                const Task a = ctx.twin(second, 1), b = ctx.twin(first, 1);
                ctx.execute({a, b});
              },
              {{"attention"}}),
          kTwo, {"attention", "micro-batch 1", "inputs are made"});
}

TEST(BadStrategy, AttentionOfTheLaterPartBeforeTheEarlierOnesKeys) {
  // The later part has its own keys and asks for nothing of the earlier one but what it must.
  refused(strategy(
              [](ScheduleContext& ctx) {
                ctx.execute({ctx.ready(1)[0]});
                const Task late = ctx.twin(ctx.ready(0)[0], 1);
                ctx.execute({{late.partition + 1, late.index + 1, 1}});
              },
              {{"attention"}}),
          kTwo, {"attention at 'layers.0.attn'", "micro-batch 1", "inputs are made"});
}

TEST(BadStrategy, Throws) {
  refused(strategy([](ScheduleContext&) { throw std::runtime_error("out of ideas"); }), kTwo,
          {"the strategy threw: out of ideas"});
  refused(strategy([](ScheduleContext&) { throw 42; }), kTwo, {"threw"});
  TestStrategy rules = strategy(rest);
  rules.rules = [](PartitionRules&) { throw std::logic_error("no rules"); };
  refused(rules, kTwo, {"the strategy threw: no rules"});
}

TEST(BadStrategy, MakesNoProgress) {
  const std::vector<std::function<void(ScheduleContext&)>> endless = {
      [](ScheduleContext& ctx) { ctx.done(); },
      [](ScheduleContext& ctx) { ctx.ready(0); },
      [](ScheduleContext& ctx) { ctx.execute({}); },
  };
  for (const auto& call : endless) {
    refused(strategy([&](ScheduleContext& ctx) {
              for (;;) call(ctx);
            }),
            kTwo, {"embedding", "micro-batch 0", "calls in a row executed nothing", "not done"});
    refused(strategy([&](ScheduleContext& ctx) {
              ctx.execute(ctx.ready(0));
              for (;;) call(ctx);
            }),
            kTwo, {"embedding", "micro-batch 1", "calls in a row executed nothing"});
    refused(strategy([&](ScheduleContext& ctx) {
              rest(ctx);
              for (;;) call(ctx);
            }),
            kTwo, {"calls after every op was executed"});
  }
}

TEST(BadStrategy, SlowProgressIsProgress) {
  const TestStrategy slow = strategy(
      [](ScheduleContext& ctx) {
        while (!ctx.done()) {
          for (int i = 0; i < 20; ++i) ctx.ready(i % ctx.micro_batches());
          for (int mb = 0; mb < ctx.micro_batches(); ++mb) {
            if (!ctx.ready(mb).empty()) ctx.execute({ctx.ready(mb)[0]});
          }
        }
      },
      {{"linear"}});
  EXPECT_NO_THROW(planned(slow, kTwo));
}

TEST(BadStrategy, ReplacementsThatDoNotFit) {
  const PlanConfig ranks = {.ranks = 2, .micro_batches = 2};
  const auto with = [](std::string_view name, int micro_batch,
                       const std::vector<std::string>& kinds) {
    return strategy(
        [=](ScheduleContext& ctx) {
          while (!ctx.done()) {
            for (int mb = 0; mb < ctx.micro_batches(); ++mb) {
              for (const Task& task : ctx.ready(mb)) {
                const bool here = !task.partition->rule.empty() && mb == micro_batch;
                ctx.execute({task}, {.replace = here ? name : ""});
              }
            }
          }
        },
        {kinds});
  };
  EXPECT_NO_THROW(planned(with("linear_all_reduce", 1, {"linear", "all_reduce"}), ranks));
  refused(with("no_such_op", 1, {"linear", "all_reduce"}), ranks,
          {"linear at 'layers.0.attn'", "micro-batch 1", "'no_such_op' is no replacement"});
  refused(with("linear_all_reduce", 1, {"gated_linear"}), ranks,
          {"gated_linear at 'layers.0.mlp'", "micro-batch 1", "'linear_all_reduce' does not fit"});
  refused(with("all_reduce_add_rms_norm", 0, {"linear", "all_reduce"}), ranks,
          {"linear at 'layers.0.attn'", "micro-batch 0", "does not fit"});
  // The right kinds, of which the second does not read the first.
  refused(with("linear_all_reduce", 0, {"linear"}), ranks, {"linear", "does not fit"});
}

TEST(BadStrategy, ReplacesOpsThatAreNoNeighbours) {
  const PlanConfig ranks = {.ranks = 2, .micro_batches = 3, .continues = false};
  // Up to the first product whose sum is reduced, then both as one; `by` partitions lie between.
  const auto fused = [](const std::vector<int>& micro_batches, int by) {
    return strategy(
        [=](ScheduleContext& ctx) {
          for (int mb = 0; mb < ctx.micro_batches(); ++mb) {
            for (int i = 0; i < 3; ++i) ctx.execute({ctx.ready(mb)[0]});
          }
          std::vector<Task> products, sums;
          for (int mb : micro_batches) {
            const Task product = ctx.ready(mb)[0];
            products.push_back(product);
            sums.push_back({product.partition + by, product.index + by, mb});
          }
          products.insert(products.end(), sums.begin(), sums.end());
          ctx.execute(products, {.replace = "linear_all_reduce"});
          rest(ctx);
        },
        {{"linear"}, {"all_reduce"}});
  };
  EXPECT_NO_THROW(planned(fused({1}, 1), ranks));
  EXPECT_NO_THROW(planned(fused({0, 1, 2}, 1), ranks)) << "three as one";
  refused(fused({0, 2}, 1), ranks,
          {"micro-batch 2", "'linear_all_reduce' replaces ops that follow"});
  refused(fused({1}, 2), ranks, {"micro-batch 1", "'linear_all_reduce' replaces ops that follow"});
}

TEST(BadStrategy, TasksOfNobody) {
  std::vector<Partition> other(1);
  for (const Task& task : {Task{}, Task{other.data(), 0, 0}, Task{nullptr, 0, 1}}) {
    refused(strategy([&](ScheduleContext& ctx) { ctx.execute({task}); }), kTwo,
            {"a task that is not from ready()"});
  }
  const auto changed = [](auto&& change) {
    return strategy([change](ScheduleContext& ctx) {
      Task task = ctx.ready(0)[0];
      change(task);
      ctx.execute({task});
    });
  };
  refused(changed([](Task& t) { t.micro_batch = 2; }), kTwo, {"not from ready()"});
  refused(changed([](Task& t) { t.micro_batch = -1; }), kTwo, {"not from ready()"});
  refused(changed([](Task& t) { t.index = 1; }), kTwo, {"not from ready()"});
  refused(changed([](Task& t) { t.index = -1; }), kTwo, {"not from ready()"});
  refused(strategy([](ScheduleContext& ctx) { ctx.twin(ctx.ready(0)[0], 2); }), kTwo,
          {"twin(2): there are 2 micro-batches"});
  refused(strategy([](ScheduleContext& ctx) { ctx.capacity(7); }), kTwo,
          {"capacity(7): there are 2 micro-batches"});
  refused(strategy([](ScheduleContext& ctx) {
            ctx.execute({ctx.ready(0)[0]}, {.stream = static_cast<Stream>(9)});
          }),
          kTwo, {"on stream 9: there are 3"});
  refused(strategy([](ScheduleContext& ctx) { ctx.estimate(Task{}); }), kTwo, {"not from ready()"});
  // Kept from the planning before.
  std::vector<Task> kept;
  const TestStrategy keeps = strategy([&](ScheduleContext& ctx) {
    kept = ctx.ready(0);
    rest(ctx);
  });
  planned(keeps, kTwo);
  const Program program = decoder({8, 2, 2});
  const std::vector<Partition> partitions = PartitionRules().apply(program);
  ScheduleContext ctx(program, {{program.capacity}}, partitions, {}, "test", {});
  expect_refused([&] { ctx.execute(kept); }, {"schedule 'test'", "not from ready()"});
}

TEST(BadStrategy, AsksForAMicroBatchThatIsNotThere) {
  for (int mb : {-1, 2}) {
    refused(strategy([mb](ScheduleContext& ctx) { ctx.ready(mb); }), kTwo,
            {fmt::format("ready({})", mb), "there are 2 micro-batches"});
  }
}

TEST(BadStrategy, IsRefusedAlsoWhenItSwallowsTheErrors) {
  const TestStrategy deaf = strategy(
      [](ScheduleContext& ctx) {
        for (int i = 0; i < 1000; ++i) {
          try {
            const auto tasks = ctx.ready(0);
            if (tasks.empty()) break;
            ctx.execute({tasks[0], ctx.twin(tasks[0], 1)}, {.replace = "linear_all_reduce"});
            ctx.execute({tasks[0]});
          } catch (...) {
          }
        }
      },
      {{"linear"}, {"attention"}});
  EXPECT_THROW(planned(deaf, kTwo), Error);
}

// Nothing is looked up, planned or bound for a strategy that is refused while it speaks.
TEST(BadStrategy, LeavesNoTrace) {
  struct Counting : KernelCatalog {
    mutable int asked = 0;
    KernelInfo find(const Program&, const Op& op, Stream, const Extents&) const override {
      ++asked;
      return {std::string(op.def->kind), 0};
    }
  } catalog;
  const Program program = decoder({8, 2, 2});
  const auto plan = [&](const OpScheduler& by) {
    return schedule_of(program, by, catalog, {{program.capacity}});
  };
  EXPECT_THROW(plan(strategy([](ScheduleContext&) {})), Error);
  EXPECT_EQ(catalog.asked, 0);
  plan(strategy(rest));
  EXPECT_EQ(catalog.asked, static_cast<int>(program.ops.size()));
}

TEST(ScheduleContext, ReadyIsWhatHasItsInputs) {
  // Against the definition, op by op: inputs made, keys of the same and of continued parts written.
  for (bool continues : {false, true}) {
    const TestStrategy checks = strategy(
        [&](ScheduleContext& ctx) {
          const Program program = fuse(decoder({36, 24, 12}), fusions());
          const int M = ctx.micro_batches();
          std::vector<std::vector<bool>> ran(static_cast<size_t>(M),
                                             std::vector<bool>(program.ops.size()));
          uint64_t choice = 1;
          while (!ctx.done()) {
            std::vector<Task> all;
            for (int mb = 0; mb < M; ++mb) {
              std::vector<int> expected;
              for (size_t i = 0; i < program.ops.size(); ++i) {
                if (ran[static_cast<size_t>(mb)][i]) continue;
                bool ready = true;
                for (size_t j = 0; j < i; ++j) {
                  const Op &a = program.ops[j], &b = program.ops[i];
                  bool value = false, state = false;
                  for (ValueId id : a.outputs) value |= std::ranges::count(b.inputs, id) > 0;
                  for (int k : a.def->mutated_inputs) {
                    state |= std::ranges::count(b.inputs, a.inputs[static_cast<size_t>(k)]) > 0;
                  }
                  for (int from = 0; from <= mb; ++from) {
                    if (from < mb && !(state && continues)) continue;
                    if ((value && from == mb) || state)
                      ready = ready && ran[static_cast<size_t>(from)][j];
                  }
                }
                if (ready) expected.push_back(static_cast<int>(i));
              }
              std::vector<int> got;
              for (const Task& task : ctx.ready(mb)) {
                got.push_back(task.index);
                all.push_back(task);
              }
              ASSERT_EQ(got, expected) << "micro-batch " << mb;
            }
            const Task& task = all[(choice = choice * 31 + 7) % all.size()];
            ctx.execute({task});
            ran[static_cast<size_t>(task.micro_batch)][static_cast<size_t>(task.index)] = true;
          }
        },
        {{"embedding"},
         {"rms_norm"},
         {"linear"},
         {"rope_append"},
         {"attention"},
         {"add_rms_norm"},
         {"gated_linear"},
         {"add"},
         {"gather_rows"}});
    planned(checks, {.ranks = 1, .micro_batches = 3, .continues = continues});
  }
}

TEST(ScheduleContext, AdjacentMicroBatchesNamedTogetherAreOneLaunch) {
  const auto launches = [](const std::vector<int>& order) {
    const Planned plan = planned(strategy([order](ScheduleContext& ctx) {
                                   std::vector<Task> tasks;
                                   for (int mb : order)
                                     tasks.push_back(ctx.twin(ctx.ready(0)[0], mb));
                                   ctx.execute(tasks);
                                 }),
                                 {.ranks = 1, .micro_batches = 3, .continues = false});
    return plan.schedules[0].launches.size() / plan.programs[0].ops.size();
  };
  EXPECT_EQ(launches({0, 1, 2}), 1u);
  EXPECT_EQ(launches({1, 2, 0}), 2u);
  EXPECT_EQ(launches({0, 2, 1}), 3u) << "0 and 2 are not adjacent";
  EXPECT_EQ(launches({2, 1, 0}), 3u);
}

TEST(ScheduleContext, EstimateAddsUpThePricesOfOps) {
  const Program program = decoder({8, 2, 2});
  const std::vector<Partition> partitions = PartitionRules().apply(program);
  const auto price = [](const Op&, int micro_batch) { return 1.5 + micro_batch; };
  const std::vector<MicroBatch> two = {{{4, 1, 1}}, {{4, 1, 1}}};
  ScheduleContext ctx(program, two, partitions, {.devices = 3}, "test", price);
  const auto n = static_cast<double>(program.ops.size());
  EXPECT_EQ(ctx.estimate(ctx.ready(0)[0]), 1.5 * n);
  EXPECT_EQ(ctx.estimate(ctx.twin(ctx.ready(0)[0], 1)), 2.5 * n);
  EXPECT_EQ(ctx.topology().ranks(), 3);
  EXPECT_EQ(ctx.capacity(1).token, 4);
  ScheduleContext unpriced(program, two, partitions, {}, "test", {});
  EXPECT_EQ(unpriced.estimate(unpriced.ready(0)[0]), 0);
}

}  // namespace
}  // namespace braid::testing_schedule
