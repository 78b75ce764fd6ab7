// Kernels that fault, in whole models: one line, the process ends, nothing hangs. And models whose
// ops run in several streams.
#include <gtest/gtest.h>

#include "braid/engine/loaded_model.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"

namespace braid::golden {
namespace {

constexpr int32_t kNoSuchPage = 1 << 24;  // of a cache of kPages: far beyond the device's memory

const char* const kModel = "llama2_mha";

class Fault : public testing::Test {
 protected:
  void SetUp() override {
    // The child is a process of its own: CUDA does not survive a fork.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (usable_gpus() == 0) GTEST_SKIP() << "no GPU";
  }
};

// As the program does: one line for the user, exit 1, after everything was taken down.
template <class Run>
[[noreturn]] void exit_as_the_program(const Run& run) {
  int status = 0;
  try {
    const Folder folder(std::string(kModel) + "_fault");
    write_hf_folder(load_random_model(kModel), folder.path());
    const LoadedModel loaded(folder.path().string());
    run(loaded.model);
  } catch (const Error& e) {
    std::fprintf(stderr, "braid: error: %s\n", e.what());
    status = 1;
  }
  std::exit(status);
}

const char* const kLine = "^braid: error: [^\n]*(illegal memory access|illegal address)[^\n]*\n$";

// Attention follows a page table that names memory of nobody.
void step_that_faults(const Model& model) {
  Runner runner(model, cuda_runner());
  const std::vector<int32_t> ids = {1, 2, 3}, good = {0};
  Batch batch(kPageSize);
  batch.add(ids, 0, good, 1);
  runner.run(batch);
  batch.clear();
  // The second page of three is what the new token's attention reads.
  const std::vector<int32_t> bad = {0, kNoSuchPage, 2};
  batch.add(std::span(ids).first(1), 2 * kPageSize, bad, 1);
  runner.run(batch);
}

TEST_F(Fault, InAStep) {
  EXPECT_EXIT(exit_as_the_program(step_that_faults), testing::ExitedWithCode(1), kLine);
}

// In the graph of a loop whose host only reads pinned memory.
void loop_that_faults(const Model& model) {
  Runner runner(model, cuda_runner());
  const std::vector<int32_t> ids(kPageSize + 8, 3);
  std::vector<int32_t> pages = {0, 1};
  Batch batch(kPageSize);
  batch.add(ids, 0, pages, 1);
  runner.step(batch);
  const auto loop =
      runner.loop({.sequences = {{.prompt = ids,
                                  .hold = [&](int64_t tokens) -> std::span<const int32_t> {
                                    if (tokens > 2 * kPageSize) pages = {0, 1, kNoSuchPage};
                                    return pages;
                                  }}},
                   .limit = 4 * kPageSize});
  for (int64_t i = 0; i < 4 * kPageSize; ++i) loop->next();
}

TEST_F(Fault, InTheGraphOfALoop) {
  EXPECT_EXIT(exit_as_the_program(loop_that_faults), testing::ExitedWithCode(1), kLine);
}

// Two micro-batches, each in streams of its own: attention beside the other's linears.
class TwoStreams : public OpScheduler {
 public:
  std::string name() const override { return "two_streams"; }
  void partition(PartitionRules& rules) const override { rules.split_func({"linear"}); }
  Ranges split(const BatchInfo& batch) const override {
    return {{0, batch.tokens / 2}, {batch.tokens / 2, batch.tokens}};
  }
  void schedule(ScheduleContext& ctx) const override {
    for (int turn = 0; !ctx.done(); ++turn) {
      for (int mb = 0; mb < ctx.micro_batches(); ++mb) {
        for (const Task& task : ctx.ready(mb)) {
          const Stream stream = mb == 0         ? Stream::compute
                                : turn % 2 == 0 ? Stream::side
                                                : Stream::comm;
          ctx.execute({task}, {.stream = stream});
        }
      }
    }
  }
};

TEST(CudaStreams, AScheduleOverSeveralGivesTheSequentialOnesLogits) {
  if (usable_gpus() == 0) GTEST_SKIP() << "no GPU";
  const Folder folder(std::string(kModel) + "_streams");
  write_hf_folder(load_random_model(kModel), folder.path());
  const LoadedModel loaded(folder.path().string());
  const RunnerConfig config = cuda_runner();
  const auto world = make_cuda_world(loaded.model, {}, config.device);
  const ForwardPlanner planner([&](const ForwardShape& s) { return loaded.model.forward(s); },
                               config.cache, {&world->rank(0).backend().catalog()}, {});
  std::vector<int32_t> ids, pages;
  for (int32_t i = 0; i < 48; ++i) ids.push_back(i * 7 % 100);
  for (int32_t i = 0; i < 4; ++i) pages.push_back(i);
  Batch batch(kPageSize);
  batch.add(ids, 0, pages, std::ssize(ids));
  world->rank(0).back_pages(batch.pages_end());

  std::vector<Rows> results;
  size_t streams = 0;
  for (const bool several : {false, true}) {
    const std::unique_ptr<OpScheduler> strategy =
        several ? std::make_unique<TwoStreams>() : sequential_strategy();
    BatchCut cut;
    PlannedForward planned = planner.plan(*strategy, batch, cut);
    std::array<bool, kNumStreams> used{};
    for (const Launch& launch : planned.schedules[0].launches) {
      used[static_cast<size_t>(launch.stream)] = true;
    }
    streams = static_cast<size_t>(std::ranges::count(used, true));
    const auto executor = std::move(world->bind(std::move(planned))[0]);
    cut.write(*executor);
    std::vector<Extents> counts;
    for (const Work& work : cut.works()) counts.push_back(work.extents);
    for (int run = 0; run < 20; ++run) {  // launch by launch, then from a graph
      executor->run(counts);
      Rows rows;
      append_rows(executor->host_output(0, std::ssize(ids)), rows);
      if (run == 0) results.push_back(rows);
      ASSERT_TRUE(rows == results.back()) << "run " << run;
    }
  }
  EXPECT_EQ(streams, kNumStreams);
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_LT(relative_distance(results[1][i], results[0][i]), 0.02) << "token " << i;
  }
}

}  // namespace
}  // namespace braid::golden
