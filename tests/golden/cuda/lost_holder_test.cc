// A GPU that holds a part of the keys is late while tokens are made: others wait for it up to the
// deadline, then every answer ends, and nothing hangs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/engine/loaded_model.h"
#include "golden/cuda/busy_gpu.h"
#include "golden/support/answers.h"
#include "golden/support/forward.h"
#include "golden/support/random_model.h"
#include "golden/support/sequences.h"
#include "golden/support/texts.h"

namespace braid::golden {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kTokens = 60;
constexpr int kLateAt = 20;  // token at which a GPU is taken
constexpr milliseconds kLate{150}, kStopped{2500};

// GPUs that keep their own keys alone, and wait for half a second.
RunnerConfig two_gpus() {
  RunnerConfig config = cuda_runner(2);
  config.sp = SequenceParallel{.mode = SpMode::ring, .degrees = {}, .apart = true};
  config.cache.pages_per_sequence = kSequencePages;
  config.deadline_ms = 500;
  return config;
}

// GPUs that divide weights.
RunnerConfig with_divided_weights() {
  RunnerConfig config = cuda_runner(2);
  config.deadline_ms = 500;
  return config;
}

// A lone answer of a loop whose tokens stay on the devices, of which one is `late`.
std::vector<int32_t> loop_with(const Model& model, const RunnerConfig& config, size_t rank,
                               milliseconds late) {
  Runner runner(model, config);
  BusyGpu gpu(config.device.ids[rank]);
  const std::vector<int32_t> prompt = ids(40, 3), pages = {4, 1, 7, 2, 9, 3, 8};
  Batch batch(kPageSize);
  batch.add(prompt, 0, pages, 1);
  runner.step(batch);
  const auto loop = runner.loop(
      {.sequences = {{.prompt = prompt,
                      .hold = [&](int64_t) { return std::span<const int32_t>(pages); }}},
       .limit = kTokens});
  std::vector<int32_t> text;
  for (int64_t i = 0; i < kTokens; ++i) {
    if (i == kLateAt && late.count() > 0) gpu.begin(late);
    text.push_back(loop->next()[0].id);
  }
  if (loop->stats().steps == 0) fail(ErrorCode::kUnsupported, "the host sampled");
  return text;
}

class LateSink : public Collector {
 public:
  explicit LateSink(std::function<void()> late = {}) : late_(std::move(late)) {}
  bool on_piece(const AnswerPiece& piece) override {
    if (++pieces_ == kLateAt && late_) late_();
    return Collector::on_piece(piece);
  }

 private:
  const std::function<void()> late_;
  int pieces_ = 0;
};

// A divided answer beside another of a rank's own keys; prints how both end.
void requests_with(const LoadedModel& loaded, milliseconds late) {
  const RunnerConfig config = two_gpus();
  const SchedulerConfig c{.pages = kPages,
                          .page_size = kPageSize,
                          .max_context = kSequencePages * kPageSize,
                          .max_running = 4,
                          .max_step_tokens = 256,
                          .prompts_alone = true,
                          .groups = 2,
                          .own_prompt = 20};
  Runner runner(loaded.model, config);
  BusyGpu second(config.device.ids[1]);
  RequestLoop loop(runner, loaded.tokenizer, loaded.model.config().V, DType::bf16, c,
                   StepQueueOptions{});
  std::vector<std::shared_ptr<Collector>> sinks{
      std::make_shared<LateSink>(), std::make_shared<LateSink>([&] { second.begin(late); })};
  for (size_t s = 0; s < sinks.size(); ++s) {
    loop.submit({.prompt = ids(s == 0 ? 5 : 61, 3), .max_tokens = 300, .ignore_eos = true},
                sinks[s]);
  }
  for (const auto& sink : sinks) {
    const AnswerEnd& end = sink->wait();
    std::fprintf(stderr, "%s\n", end.error ? end.error->what() : "complete");
  }
}

template <class Run>
[[noreturn]] void exit_as_the_program(const char* name, Run&& run) {
  int status = 0;
  try {
    const Folder folder(fmt::format("late_gpu_{}", name));
    write_hf_folder(load_random_model("smollm2"), folder.path());
    const LoadedModel loaded(folder.path().string());
    run(loaded);
  } catch (const Error& e) {
    std::fprintf(stderr, "braid: error: %s\n", e.what());
    status = 1;
  }
  std::exit(status);
}

// The first error is that of the rank that waits for `rank`.
std::string waited_for(size_t rank) {
  return fmt::format(
      "rank {0}: waited 0\\.5[0-9]* s on the device for '[a-z0-9_./]+' from rank {1}: expected "
      "[0-9]+, seen [0-9]+(; a transfer of [0-9]+ bytes from cuda:[01], [a-z]+ at '[a-z0-9_./]+' "
      "with rank {1}, has not ended: [a-z0-9 ,]+)*\n",
      1 - rank, rank);
}

class LateGpu : public testing::Test {
 protected:
  void SetUp() override {
    // The child is a process of its own: CUDA does not survive a fork.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    if (usable_gpus() < 2) GTEST_SKIP() << "ranks that share a GPU are late together";
  }
};

TEST_F(LateGpu, IsWaitedForInALoop) {
  const auto both = [](const LoadedModel& loaded) {
    const std::vector<int32_t> want = loop_with(loaded.model, two_gpus(), 1, milliseconds(0));
    const auto begin = std::chrono::steady_clock::now();
    const bool same = loop_with(loaded.model, two_gpus(), 1, kLate) == want;
    const bool waited = std::chrono::steady_clock::now() - begin > kLate;
    std::fprintf(stderr, "%s, %s\n", same ? "same" : "other", waited ? "waited" : "at once");
  };
  EXPECT_EXIT(exit_as_the_program("loop", both), testing::ExitedWithCode(0), "^same, waited\n$");
}

TEST_F(LateGpu, EndsALoopWithTheDeadline) {
  for (const RunnerConfig& config : {two_gpus(), with_divided_weights()}) {
    for (const size_t rank : {1, 0}) {
      SCOPED_TRACE(fmt::format("rank {}, {}", rank, config.sp ? "keys apart" : "weights divided"));
      const auto stopped = [&](const LoadedModel& loaded) {
        loop_with(loaded.model, config, rank, kStopped);
      };
      EXPECT_EXIT(exit_as_the_program("stopped_loop", stopped), testing::ExitedWithCode(1),
                  "^braid: error: " + waited_for(rank) + "$");
    }
  }
}

TEST_F(LateGpu, IsWaitedForByRequests) {
  const auto late = [](const LoadedModel& loaded) { requests_with(loaded, kLate); };
  EXPECT_EXIT(exit_as_the_program("requests", late), testing::ExitedWithCode(0),
              "^complete\ncomplete\n$");
}

// Ranks of a process end together: a GPU that has waited in vain has no more steps.
TEST_F(LateGpu, EndsEveryRequestWithTheDeadline) {
  const auto stopped = [](const LoadedModel& loaded) { requests_with(loaded, kStopped); };
  EXPECT_EXIT(exit_as_the_program("stopped_requests", stopped), testing::ExitedWithCode(0),
              "^" + waited_for(1) + waited_for(1) + "$");
}

}  // namespace
}  // namespace braid::golden
