// What the engine's thread of a server does for a step in which every request gets a token, without
// any kernel: the next step, its batch, the tokens of the step that ended. Thread CPU time. `cold`:
// each step pushes everything else out of the caches, as reading a model's weights does. `writer`:
// tokens are also handed to the thread that makes their text.
#include <benchmark/benchmark.h>
#include <time.h>

#include <deque>
#include <memory>

#include "braid/base/clock.h"
#include "braid/engine/requests/answer_outputs.h"
#include "braid/engine/requests/request_steps.h"
#include "report.h"

namespace braid {
namespace {

constexpr int64_t kPrompt = 128, kAnswer = 4000;  // tokens

double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// A device that samples, two steps deep, and computes nothing.
class Device : public StepQueue {
 public:
  Device(int64_t slots, bool cold) : slots_(slots), caches_(cold ? 96 << 20 : 0) {}

  int depth() const override { return 2; }
  int64_t slots() const override { return slots_; }
  bool join(int32_t, const SlotSequence&) override { return true; }
  void leave(int32_t) override {}
  void allow(int32_t, std::span<const uint32_t>) override {}
  void put(const Batch&, std::span<const int32_t> row_slots) override {
    steps_.emplace_back(row_slots.begin(), row_slots.end());
  }
  bool usable() const override { return true; }
  EndedStep take() override {
    const double begin = thread_seconds();
    for (size_t i = 0; i < caches_.size(); i += 64) ++caches_[i];
    tokens_.clear();
    for (const int32_t slot : steps_.front()) {
      if (slot >= 0) tokens_.push_back({.token = {.id = 1}});
    }
    steps_.pop_front();
    seconds += thread_seconds() - begin;
    return {.tokens = tokens_};
  }
  TensorView logits() override { return {}; }
  TensorView device_logits() override { return {}; }

  double seconds = 0;  // of the steps

 private:
  const int64_t slots_;
  std::vector<char> caches_;
  std::deque<std::vector<int32_t>> steps_;
  std::vector<SlotToken> tokens_;
};

struct Nobody : AnswerSink {
  bool on_piece(const AnswerPiece&) override { return true; }
  void on_end(const AnswerEnd&) override {}
};

void step(benchmark::State& state, bool cold, bool writer) {
  const int64_t n = state.range(0);
  const SchedulerConfig config{.pages = n * (kPrompt + kAnswer) / 64 + n,
                               .max_context = kPrompt + kAnswer,
                               .max_running = n,
                               .max_step_tokens = 8192,
                               .max_waiting = n,
                               .max_rows = 2 * n};
  Scheduler scheduler(config);
  auto owned = std::make_unique<Device>(n, cold);
  Device& device = *owned;
  const std::vector<int32_t> ends = {0};
  RequestSteps steps(std::move(owned), scheduler, config.page_size, ends, [] {});
  TokenizerSpec spec;
  spec.pieces = {"a", "b"};
  spec.scores = {0, 0};
  const Tokenizer tokenizer(spec);
  ActiveRequests active;
  for (int64_t i = 0; i < n; ++i) {
    const auto id = static_cast<RequestId>(i + 1);
    AnswerRequest request{.prompt = std::vector<int32_t>(kPrompt, 1), .max_tokens = kAnswer};
    request.prompt[0] = static_cast<int32_t>(i);
    scheduler.submit({.id = id, .ids = request.prompt, .max_tokens = kAnswer});
    active.add(id, std::make_shared<ActiveRequest>(id, std::move(request), tokenizer, ends,
                                                   DType::f32, std::make_shared<Nobody>()));
  }
  AnswerOutputs outputs([](const ActiveRequest&, bool) {});
  int64_t rows = 0;
  const auto hand_out = [&](const std::shared_ptr<ActiveRequest>& request,
                            const SampledToken& token) {
    ++request->facts.answer_tokens;
    request->facts.times.last_token = steady_seconds();
    if (writer) outputs.token(*request, token, false);
  };
  const auto turn = [&] {
    const Step next = scheduler.next(0);
    rows = next.tokens == std::ssize(next.rows) ? std::ssize(next.rows) : 0;
    if (!next.empty()) steps.put(next, active);
    if (!steps.full()) return;
    const EndedRequests ended = steps.take(active, hand_out);
    if (writer) outputs.wake();
    for (const StepRow& row : ended.step.rows) {
      if (row.sample) steps.prepare(active.at(row.id));
    }
    benchmark::DoNotOptimize(scheduler.counts());
  };
  while (rows < n) turn();
  for (auto _ : state) {
    const double begin = thread_seconds() - device.seconds;
    turn();
    state.SetIterationTime(thread_seconds() - device.seconds - begin);
    if (rows < n) state.SkipWithError("an answer ended");
  }
}
template <int kTurns>
void rows(benchmark::internal::Benchmark* bench) {
  bench->Arg(32)->Arg(256)->Iterations(kTurns)->UseManualTime()->Unit(benchmark::kMicrosecond);
}
BENCHMARK_CAPTURE(step, warm, false, false)->Apply(rows<1000>);
BENCHMARK_CAPTURE(step, warm_writer, false, true)->Apply(rows<1000>);
BENCHMARK_CAPTURE(step, cold, true, false)->Apply(rows<300>);
BENCHMARK_CAPTURE(step, cold_writer, true, true)->Apply(rows<300>);

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  return braid::run_benchmarks(argc, argv);
}
