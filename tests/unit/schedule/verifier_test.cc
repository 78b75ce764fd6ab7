// The verifier's rules, each on a good Schedule that was damaged in just the way it is for.
#include "unit/schedule/verifier_rules.h"

namespace braid::testing_schedule {
namespace {

TEST_P(VerifierRules, GoodSchedulesPass) {
  for (bool continues : {false, true}) {
    for (bool sharded : {false, true}) {
      EXPECT_NO_THROW(good({.continues = continues, .sharded = sharded}).verify());
    }
  }
}

TEST_P(VerifierRules, EveryOpOnceADroppedOp) {
  Planned plan = good();
  const int i = plan.find("gated_linear", last());
  on_all(plan, [&](Schedule& s) { remove(s, i); });
  expect_refused([&] { plan.verify(); },
                 {"gated_linear at 'layers.0.mlp'", fmt::format("micro-batch {}", last()),
                  "every op once: no launch runs it"});
}

TEST_P(VerifierRules, EveryOpOnceAnOpThatRunsTwice) {
  for (const char* kind : {"attention", "kv_append"}) {  // the second makes no value
    Planned plan = good({.fused = false});
    const int i = plan.find(kind, last());
    on_all(plan, [&](Schedule& s) {
      s.launches.push_back(at(s, i));
      s.memory.workspace_offset.push_back(s.memory.workspace_offset[static_cast<size_t>(i)]);
    });
    expect_refused([&] { plan.verify(); },
                   {fmt::format("{} at 'layers.0.attn'", kind),
                    fmt::format("micro-batch {}", last()), "every op once: launches", "run it"});
  }
}

TEST_P(VerifierRules, EveryOpOnceALaunchOutsideTheProgram) {
  for (const auto& damage : std::vector<std::function<void(Launch&)>>{
           [](Launch& l) { l.op = 1000; }, [](Launch& l) { l.op = -1; },
           [](Launch& l) { l.num_ops = 0; }, [](Launch& l) { l.num_ops = 2; },
           [](Launch& l) { l.micro_batch = -1; }, [](Launch& l) { l.num_micro_batches = 9; },
           [](Launch& l) { l.num_micro_batches = 0; }, [](Launch& l) { l.replacement = 3; }}) {
    Planned plan = good();
    on_all(plan, [&](Schedule& s) { damage(at(s, 3)); });
    expect_refused([&] { plan.verify(); }, {"launch 3"});
  }
}

TEST_P(VerifierRules, WaitsForWhatIsNotEarlier) {
  for (int late : {0, 5, -4}) {  // itself, a later one, none
    Planned plan = good();
    const int i = plan.find("linear", last());
    on_all(plan, [&](Schedule& s) { at(s, i).waits = {{late < 0 ? late : i + late}}; });
    expect_refused([&] { plan.verify(); },
                   {"linear at 'layers.0.attn'", fmt::format("micro-batch {}", last()),
                    fmt::format("waits: launch {} waits for", i)});
  }
}

TEST_P(VerifierRules, InputsAreMade) {
  // The product after attention no longer waits for it.
  Planned plan = good();
  const int reader = plan.find("linear", last(), plan.find("attention", last()));
  ASSERT_FALSE(plan.schedules[0].launches[static_cast<size_t>(reader)].waits.empty());
  on_all(plan, [&](Schedule& s) { at(s, reader).waits.clear(); });
  expect_refused([&] { plan.verify(); },
                 {"linear at 'layers.0.attn'", fmt::format("micro-batch {}", last()),
                  "inputs are made (RAW)", "(attention at 'layers.0.attn')"});
}

TEST_P(VerifierRules, InputsAreMadeNowhere) {
  // A fused op stands in for ops whose inner value somebody else reads.
  Planned plan = good();
  const int i = plan.find("add_rms_norm", last());
  on_all(plan, [&](Schedule& s) {
    const size_t r = static_cast<size_t>(&s - plan.schedules.data());
    Op op = s.op(plan.programs[r], at(s, i));
    op.outputs.pop_back();
    s.replacements.push_back(op);
    at(s, i).replacement = static_cast<int>(s.replacements.size()) - 1;
  });
  expect_refused([&] { plan.verify(); },
                 {fmt::format("micro-batch {}", last()), "inputs are made", "is made nowhere"});
}

TEST_P(VerifierRules, EveryOpOnceAReplacementOfOtherOps) {
  // Two layers' replacements changed places.
  Planned plan = good();
  const int a = plan.find("add_rms_norm", last());
  const int b = plan.find("add_rms_norm", last(), a + 1);
  on_all(plan, [&](Schedule& s) {
    const size_t r = static_cast<size_t>(&s - plan.schedules.data());
    s.replacements = {s.op(plan.programs[r], at(s, b)), s.op(plan.programs[r], at(s, a))};
    at(s, a).replacement = 0;
    at(s, b).replacement = 1;
  });
  expect_refused([&] { plan.verify(); },
                 {"add_rms_norm at 'layers.0.mlp'", fmt::format("micro-batch {}", last()),
                  "every op once", "the ops that it replaces do not"});
}

TEST_P(VerifierRules, StatesInOrderWithinAMicroBatch) {
  // Attention keeps every wait but the one for the write of its keys.
  Planned plan = good();
  const int i = plan.find("attention", last());
  const int write = plan.find("rope_append", last());
  on_all(plan, [&](Schedule& s) {
    const size_t r = static_cast<size_t>(&s - plan.schedules.data());
    // It reads the query from before the write, as a Program without fusion would.
    Op op = s.op(plan.programs[r], at(s, i));
    op.inputs[0] = s.op(plan.programs[r], at(s, write)).inputs[0];
    plan.programs[r].ops[static_cast<size_t>(at(s, i).op)] = op;
    at(s, i).waits = {{plan.find("linear", last())}};
  });
  expect_refused([&] { plan.verify(); },
                 {"attention at 'layers.0.attn'", fmt::format("micro-batch {}", last()),
                  "states in order: rope_append"});
}

TEST_P(VerifierMicroBatches, StatesInOrderOfThoseThatContinue) {
  // A stream for each micro-batch: only keys that the others write make them wait for each other.
  Planned plan = planned(stream_each(), {.ranks = P(), .micro_batches = M()});
  const int i = plan.find("attention", last());
  ASSERT_FALSE(plan.schedules[0].launches[static_cast<size_t>(i)].waits.empty());
  on_all(plan, [&](Schedule& s) { at(s, i).waits.clear(); });
  expect_refused([&] { plan.verify(); },
                 {"attention at 'layers.0.attn'", fmt::format("micro-batch {}", last()),
                  fmt::format("states in order: rope_append of micro-batch {}", last() - 1)});
}

// As if memory had no end: no two places share a byte.
void spread_out(Planned& plan) {
  on_all(plan, [&](Schedule& s) {
    int64_t next = 0;
    for (size_t v = 0; v < plan.programs[0].values.size(); ++v) {
      for (int mb = 0; mb < static_cast<int>(s.micro_batches.size()); ++mb) {
        int64_t& place = offset(s, static_cast<ValueId>(v), mb);
        if (place < 0) continue;
        if (!s.memory.merged[v] || mb == 0) next += 1 << 16;
        place = next;
      }
    }
    for (int64_t& place : s.memory.workspace_offset) place = next += 1 << 16;
    s.memory.arena_bytes = next + (1 << 16);
  });
}

// All on one stream, micro-batches in turns.
TestStrategy in_turns(bool last_first) {
  return strategy(
      [last_first](ScheduleContext& ctx) {
        while (!ctx.done()) {
          for (int k = 0; k < ctx.micro_batches(); ++k) {
            const int mb = last_first ? ctx.micro_batches() - 1 - k : k;
            for (const Task& task : ctx.ready(mb)) ctx.execute({task});
          }
        }
      },
      {{"all_reduce"}, {"all_gather"}});
}

TEST_P(VerifierRanksAndMicroBatches, ChannelsMeetInTheSameOp) {
  const PlanConfig config = {.ranks = P(), .micro_batches = M(), .continues = false};
  Planned plan = planned(in_turns(true), config);
  Planned other = planned(in_turns(false), config);
  spread_out(plan);
  spread_out(other);
  plan.verify();
  other.verify();
  plan.schedules.back() = other.schedules.back();
  expect_refused(
      [&] { plan.verify(); },
      {"all_reduce at 'layers.0.attn'", fmt::format("micro-batch {}", last()), "channels",
       fmt::format("on rank {}", P() - 1), "overwrite the other's buffer before it is read"});
}

TEST_P(VerifierRanks, ChannelsHaveTheSameLength) {
  Planned plan = good();
  for (Launch& l : plan.schedules.back().launches) l.stream = Stream::compute;
  expect_refused([&] { plan.verify(); },
                 {"all_reduce at 'layers.0.attn', micro-batch 0", "channels", "nothing on rank 0"});
  Planned turned = good();
  for (Launch& l : turned.schedules.front().launches) l.stream = Stream::compute;
  expect_refused([&] { turned.verify(); },
                 {"all_reduce at 'layers.0.attn', micro-batch 0", "channels", "nothing on rank 1"});
}

TEST_P(VerifierRanksAndMicroBatches, NoDeadlock) {
  if (P() == 1 || M() == 1) GTEST_SKIP() << "wants two streams on two ranks";
  // Micro-batch 0 talks on the compute stream, micro-batch 1 on its own; one rank begins with the
  // other one. Each stream by itself is in order.
  const auto made = [&](int first) {
    return planned(strategy(
                       [first](ScheduleContext& ctx) {
                         const auto run = [&](int mb) {
                           while (!ctx.ready(mb).empty()) {
                             const Task t = ctx.ready(mb)[0];
                             const bool comm = t.communicates() && mb == 1;
                             ctx.execute({t}, {.stream = comm ? Stream::comm : Stream::compute});
                           }
                         };
                         run(first);
                         for (int mb = 0; mb < ctx.micro_batches(); ++mb) run(mb);
                       },
                       {{"all_reduce"}, {"all_gather"}}),
                   {.ranks = P(), .micro_batches = M(), .continues = false});
  };
  Planned plan = made(0);
  const Planned other = made(1);
  plan.schedules.back().launches = other.schedules.back().launches;
  spread_out(plan);
  expect_refused([&] { plan.verify(); },
                 {"all_reduce at 'layers.0.attn', micro-batch 0", "no deadlock: rank 0 waits there",
                  fmt::format("rank {} waits in all_reduce", P() - 1), "micro-batch 1"});
}

TEST_P(VerifierRanks, SameOffsets) {
  if (P() == 1) GTEST_SKIP() << "one rank has nobody to differ from";
  Planned plan = good();
  Schedule& s = plan.schedules.back();
  const int i = plan.find("all_reduce", last());
  const ValueId id = s.op(plan.programs.back(), at(s, i)).outputs[0];
  s.memory.arena_bytes += 1 << 20;
  offset(s, id, last()) = round_up(s.memory.arena_bytes - (1 << 20), 64);
  expect_refused([&] { plan.verify(); },
                 {"all_reduce at 'layers.0.attn'", fmt::format("micro-batch {}", last()),
                  "same offsets", fmt::format("%{} of", id), fmt::format("on rank {}", P() - 1)});
}

using testing::Combine, testing::Values;
INSTANTIATE_TEST_SUITE_P(Sizes, VerifierRules, Combine(Values(1, 2, 3), Values(1, 2, 3)), name_of);
INSTANTIATE_TEST_SUITE_P(Sizes, VerifierMicroBatches, Combine(Values(1, 2, 3), Values(2, 3)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Sizes, VerifierRanks, Combine(Values(2, 3), Values(1, 2, 3)), name_of);
INSTANTIATE_TEST_SUITE_P(Sizes, VerifierRanksAndMicroBatches, Combine(Values(2, 3), Values(2, 3)),
                         name_of);

}  // namespace
}  // namespace braid::testing_schedule
