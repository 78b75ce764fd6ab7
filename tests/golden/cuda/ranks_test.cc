// Models over several GPUs: ranks on emulated machines, and ranks that stop.
#include <gtest/gtest.h>

#include <thread>

#include "braid/engine/batch_cut.h"
#include "braid/engine/forward_plans.h"
#include "braid/engine/loaded_model.h"
#include "braid/engine/world.h"
#include "braid/schedule/strategies/registry.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/other_family.h"
#include "golden/support/random_model.h"
#include "golden/support/rounding.h"

namespace braid::golden {
namespace {

RunnerConfig config_of(const std::string& schedule, int machines) {
  RunnerConfig config = cuda_runner(2);
  config.schedule = schedule;
  config.links.machines = machines;
  return config;
}

void expect_near(const Rows& seen, const Rows& expected) {
  ASSERT_EQ(seen.size(), expected.size());
  for (size_t t = 0; t < seen.size(); ++t) {
    ASSERT_LT(relative_distance(seen[t], expected[t]), 0.03) << "token " << t;
  }
}

// What goes between machines through the host is added up in another order, and rounded once more
// where one machine adds a residual to a sum that was not rounded.
TEST(CudaRanks, MachinesGiveTheLogitsOfOneMachine) {
  if (const char* why = cannot_run(2)) GTEST_SKIP() << why;
  for (const std::string name : {"llama2_mha", "mistral_window"}) {
    const Folder folder(name + "_machines");
    write_hf_folder(load_random_model(name), folder.path());
    const LoadedModel loaded(folder.path().string());
    const Golden golden = load_golden(name);
    for (const std::string schedule :
         {"sequential", "overlap", "nanoflow", "gemm_collective", "tokenweave"}) {
      SCOPED_TRACE(name + " " + schedule);
      Runner one(loaded.model, config_of(schedule, 1));
      Runner two(loaded.model, config_of(schedule, 2));
      for (const Case& c : golden.cases) {
        for (const size_t chunk : {512u, 7u, 1u}) {
          const Rows expected = prompt_logits(one, c.prompt, chunk);
          expect_near(prompt_logits(two, c.prompt, chunk), expected);
        }
      }
    }
  }
}

// Heads normed together are gathered, and each GPU cuts its own out again. The family's linears
// read the residual stream itself, which is f32.
TEST(CudaRanks, NormsOverAllHeadsGiveTheLogitsOfOne) {
  if (const char* why = cannot_run(2)) GTEST_SKIP() << why;
  const Model model(other_shape(DType::bf16), 11);
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < 75; ++i) prompt.push_back((i * 17 + 5) % 271);
  const Rows scalar = rounded_logits(model, prompt);
  Runner one(model, cuda_runner(1));
  for (const size_t chunk : {512u, 7u, 1u}) {
    SCOPED_TRACE(chunk);
    const Rows expected = prompt_logits(one, prompt, chunk);
    expect_near(expected, scalar);
    for (int tp = 2; tp <= 4 && !cannot_run(tp); ++tp) {
      for (const std::string schedule :
           {"sequential", "overlap", "nanoflow", "gemm_collective", "tokenweave"}) {
        SCOPED_TRACE(fmt::format("{} on {} GPUs", schedule, tp));
        RunnerConfig config = cuda_runner(tp);
        config.schedule = schedule;
        Runner ranks(model, config);
        expect_near(prompt_logits(ranks, prompt, chunk), expected);
      }
    }
  }
}

// A model bound on two ranks of which one goes on alone after `together` steps of some tokens.
void step_alone(int together, size_t tokens) {
  const std::string name = "llama2_mha";
  const Folder folder(name + "_stopped");
  write_hf_folder(load_random_model(name), folder.path());
  const LoadedModel loaded(folder.path().string());
  const RunnerConfig config = config_of("sequential", 1);
  const auto world = make_cuda_world(loaded.model, {.ranks = 2, .deadline_ms = 500}, config.device);
  const ForwardPlanner planner([&](const ForwardShape& s) { return loaded.model.forward(s); },
                               config.cache, world->catalogs(2), {.devices = 2});
  for (int r = 0; r < 2; ++r) world->rank(r).back_pages(config.cache.pages);
  const std::vector<int32_t> ids = {1, 2, 3}, pages = {0};
  Batch batch(kPageSize);
  batch.add(std::span(ids).first(tokens), 0, pages, 1);
  BatchCut cut;
  const auto executors = world->bind(planner.plan(*sequential_strategy(), batch, cut));
  for (const auto& executor : executors) cut.write(*executor);
  std::vector<Extents> counts;
  for (const Work& work : cut.works()) counts.push_back(work.extents);
  for (int step = 0; step < together; ++step) {
    for (const auto& executor : executors) executor->prepare(counts);
    std::thread other([&] { executors[1]->run(counts); });
    executors[0]->run(counts);
    other.join();
  }
  if (together > 0) executors[0]->prepare(counts);  // else launch by launch
  executors[0]->run(counts);
  executors[0]->host_output(0, 1);
}

[[noreturn]] void exit_as_the_program(int together, size_t tokens) {
  int status = 0;
  try {
    step_alone(together, tokens);
  } catch (const Error& e) {
    std::fprintf(stderr, "braid: error: %s\n", e.what());
    status = 1;
  }
  std::exit(status);
}

// Launch by launch, and in a graph; one token's layers in one launch.
TEST(CudaRanks, AStoppedRankIsADeadlineOfTheOther) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  if (const char* why = cannot_run(2)) GTEST_SKIP() << why;
  for (const size_t tokens : {3u, 1u}) {
    for (const int together : {0, 3}) {
      EXPECT_EXIT(
          exit_as_the_program(together, tokens), testing::ExitedWithCode(1),
          "^braid: error: rank 0: waited 0\\.5[0-9]* s on the device for 'tp.compute/[a-z_]+' from "
          "rank 1: expected [0-9]+, seen [0-9]+\n$");
    }
  }
}

}  // namespace
}  // namespace braid::golden
