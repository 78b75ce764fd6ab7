#include "braid/engine/cuda/cuda_step_queue.h"

#include <algorithm>

#include "braid/base/clock.h"
#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/engine/cuda/loop_rank.h"
#include "braid/ops/input_names.h"

namespace braid::cuda {

CudaStepQueue::CudaStepQueue(std::vector<QueueRank> ranks, const StepQueueOptions& options,
                             StepPlanner& planner)
    : ranks_(std::move(ranks)),
      planner_(planner),
      slots_(options.sequences),
      masked_(options.sequences) {
  const double begin = steady_seconds();
  make_plans(options);
  const Executor& executor = *plans_[0].bound->executors[0];
  logits_ = ranks_[0].backend->allocate_staging(options.rows * executor.output(0).cols() * 4);
  try_plans();
  made_ = preparations();
  if (!options.say) return;
  int64_t bytes = 0;
  for (const Planned& p : plans_) bytes += p.bound->device_bytes();
  options.say(fmt::format("steps planned and captured: {}; {:.1f} MiB of graphs on a GPU, {:.1f} s",
                          describe(sizes_), static_cast<double>(bytes) / (1 << 20),
                          steady_seconds() - begin));
}

CudaStepQueue::~CudaStepQueue() {
  // Dropped steps may still run, in pages that other sequences get after this call.
  for (const Planned& p : plans_) {
    for (const auto& executor : p.bound->executors) {
      try {
        replay_of(*executor).finish();
      } catch (const std::exception&) {
        // Whoever steps next meets the error.
      }
    }
  }
}

// Largest size first: all plans share the memory of the largest step.
void CudaStepQueue::make_plans(const StepQueueOptions& options) {
  constexpr size_t kAtLeast = 2;  // the largest of both kinds hold every step
  int64_t bytes = 0;
  for (const StepSize& size : step_sizes({.sequences = options.sequences,
                              .tokens = options.step_tokens,
                              .rows = options.rows,
                              .ranks = static_cast<int>(ranks_.size())})) {
    Planned made = planned(planner_.plan_size(size, options.context));
    for (size_t r = 0; r < ranks_.size(); ++r) {
      Executor& executor = *made.bound->executors[r];
      Extents one{.token = 1, .sequence = 1, .row = 1, .shard = 1};
      executor.set_counts({&one, 1});
      replay_of(executor).prepare_put(made.hooks[r]);
    }
    bytes += made.bound->device_bytes();
    if (plans_.size() >= kAtLeast && bytes > options.graph_bytes) break;
    sizes_.push_back(size);
    plans_.push_back(std::move(made));
  }
}

// A token each, with keys in a page that no sequence has yet.
void CudaStepQueue::try_plans() {
  Batch batch(1);
  const int32_t id = 0, page = 0, slot = -1;
  batch.add({&id, 1}, 0, {&page, 1}, 1);
  for (size_t i = 0; i < plans_.size(); ++i) {
    put(plans_[i], batch, {&slot, 1});
    for (size_t r = 0; r < ranks_.size(); ++r) {
      replay_of(*plans_[i].bound->executors[r]).finish();
    }
    under_way_.clear();
    took_ = put_;
  }
}

CudaStepQueue::Planned CudaStepQueue::planned(std::shared_ptr<BoundForward> bound) const {
  Planned planned{.bound = std::move(bound), .hooks = {}};
  for (size_t r = 0; r < ranks_.size(); ++r) {
    const Executor& executor = *planned.bound->executors[r];
    const SlotSampler* const sampler = ranks_[r].sampler.get();
    const DeviceScope scope(ranks_[r].backend->device().id);
    sampler->prepare(executor.output(0).rows());
    planned.hooks.push_back(
        {.before = [sampler, ids = executor.device_input(inputs::kTokenIds)](
                       const LaunchContext& context) { sampler->begin(ids, context); },
         .after = [sampler, logits = executor.output(0)](
                      const LaunchContext& context) { sampler->sample(logits, context); }});
  }
  return planned;
}

int64_t CudaStepQueue::preparations() const {
  int64_t n = 0;
  for (const QueueRank& rank : ranks_) n += rank.backend->preparations();
  return n;
}

bool CudaStepQueue::join(int32_t slot, const SlotSequence& sequence) {
  bool joined = true;
  for (const QueueRank& rank : ranks_) joined &= rank.sampler->join(slot, sequence);
  if (!joined) leave(slot);
  return joined;
}

void CudaStepQueue::leave(int32_t slot) {
  for (const QueueRank& rank : ranks_) rank.sampler->leave(slot);
}

void CudaStepQueue::allow(int32_t slot, std::span<const uint32_t> mask) {
  for (const QueueRank& rank : ranks_) rank.sampler->allow(slot, mask);
  masked_[slot] = true;
}

void CudaStepQueue::put(const Batch& batch, std::span<const int32_t> row_slots) {
  left_out_.reset();
  planning_ = false;
  if (const auto size = planner_.size_for(sizes_, batch)) {
    return put(plans_[*size], batch, row_slots);
  }
  const double begin = steady_seconds();
  // A new plan's kernels are tried in the memory that a step under way works in.
  for (const UnderWay& step : under_way_) {
    for (const auto& executor : step.bound->executors) replay_of(*executor).finish();
  }
  waited_ += steady_seconds() - begin;
  planning_ = true;
  const PlannedStep step = planner_.prepare(batch);
  planning_ = false;
  put(planned(step.bound), step, row_slots, begin);
  planner_.record();
  left_out_ = planner_.last_approximation();
}

void CudaStepQueue::put(const Planned& plan, const Batch& batch,
                        std::span<const int32_t> row_slots) {
  cut_.assign(batch, {{0, batch.extents().token}}, "step queue");
  put(plan, {plan.bound, &cut_, cut_.works()}, row_slots, steady_seconds());
}

void CudaStepQueue::put(const Planned& plan, const PlannedStep& step,
                        std::span<const int32_t> row_slots, double begin) {
  const double wait = steady_seconds();
  for (const QueueRank& rank : ranks_) rank.sampler->wait_taken(put_);
  waited_ += steady_seconds() - wait;
  const auto ranks = static_cast<int>(ranks_.size());
  for (int r = 0; r < ranks; ++r) {
    const size_t i = r;
    const DeviceScope scope(ranks_[i].backend->device().id);
    Executor& executor = *plan.bound->executors[i];
    step.inputs->write(executor, r);
    const auto counts = step.counts_of(r);
    executor.set_counts({counts.begin(), counts.size()});
    int64_t tokens = 0;
    for (const Extents& n : counts) tokens += n.token;
    ranks_[i].sampler->write_step(tokens, row_slots);
  }
  // No rank may load a kernel while another rank waits for it.
  for (size_t r = 0; ranks > 1 && r < ranks_.size(); ++r) {
    replay_of(*plan.bound->executors[r]).prepare_put(plan.hooks[r]);
  }
  for (size_t r = 0; r < ranks_.size(); ++r) {
    replay_of(*plan.bound->executors[r]).put(plan.hooks[r]);
  }
  const bool masked = std::ranges::find(masked_, true) != masked_.end();
  masked_.assign(masked_.size(), false);
  under_way_.push_back({{row_slots.begin(), row_slots.end()}, plan.bound, begin, masked});
  ++put_;
}

EndedStep CudaStepQueue::take() {
  BRAID_CHECK(!under_way_.empty(), "no step is under way");
  const double begin = steady_seconds();
  taken_ = std::move(under_way_.front());
  under_way_.pop_front();
  const bool any = std::ranges::any_of(taken_.row_slots, [](int32_t slot) { return slot >= 0; });
  ranks_[0].sampler->wait(took_, taken_.row_slots, tokens_);
  // The host may change a mask once no rank reads it any more.
  for (size_t r = 1; taken_.masked && r < ranks_.size(); ++r) {
    ranks_[r].sampler->wait(took_, taken_.row_slots, others_);
  }
  // Without a token the host cannot see a step's end.
  if (!any) {
    if (under_way_.empty()) {
      replay_of(*taken_.bound->executors[0]).finish();
    } else {
      ranks_[0].sampler->wait_taken(put_);
    }
  }
  ++took_;
  const double end = steady_seconds();
  const double from = std::max(taken_.begin, ended_);
  ended_ = end;
  return {.tokens = tokens_,
          .seconds = end - from,
          .waited = end - begin + std::exchange(waited_, 0.0)};
}

TensorView CudaStepQueue::device_logits() {
  BRAID_CHECK(under_way_.empty(), "logits of a step behind which another one runs");
  const Executor& executor = *taken_.bound->executors[0];
  return slice_rows(executor.output(0), 0, std::ssize(taken_.row_slots));
}

TensorView CudaStepQueue::logits() {
  TensorView view = device_logits();
  ranks_[0].backend->read(logits_->data(), view.data, view.bytes());
  view.data = logits_->data();
  return view;
}

}  // namespace braid::cuda
