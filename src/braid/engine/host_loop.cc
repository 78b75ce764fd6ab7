#include "braid/engine/host_loop.h"

#include <algorithm>

#include "braid/backend/cpu/pool_of_at_most.h"

namespace braid {

std::unique_ptr<cpu::ThreadPool> HostLoop::make_pool() {
  constexpr int kMostThreads = 8;
  return cpu::pool_of_at_most(std::clamp(cpu::usable_cores() / 2, 1, kMostThreads));
}

HostLoop::HostLoop(Runner& runner, LoopRequest request, const TensorView& logits,
                   cpu::ThreadPool* pool)
    : TokenLoop(std::move(request)),
      runner_(runner),
      pool_(pool),
      batch_(request_.page_size),
      logits_(logits) {
  for (const LoopSlot& slot : slots_) samplers_.emplace_back(slot.sequence.sampling);
}

std::span<const SampledToken> HostLoop::next() {
  if (!first_) {
    batch_.clear();
    for (const LoopSlot& slot : slots_) {
      const int64_t tokens = slot.tokens();
      batch_.add({&slot.generated.back(), 1}, tokens - 1, slot.sequence.hold(tokens), 1,
                 slot.sequence.group);
    }
    logits_ = runner_.run(batch_);
  }
  first_ = false;
  const auto sample_each = [&](size_t first, size_t step) {
    for (size_t s = first; s < slots_.size(); s += step) {
      if (!tokens_[s].error) tokens_[s] = sample(s);
    }
  };
  if (pool_) {
    pool_->run([&](const cpu::Team& team) { sample_each(team.index, pool_->threads()); });
  } else {
    sample_each(0, 1);
  }
  return hand_out();
}

SampledToken HostLoop::sample(size_t s) {
  const auto& [sequence, generated] = slots_[s];
  const std::span row(logits_.row_as<float>(static_cast<int64_t>(s)), logits_.cols());
  if (!usable(row)) return {.error = not_numbers(slots_[s])};
  try {
    std::span<const uint32_t> allowed;
    if (sequence.mask) allowed = sequence.mask(generated);
    return samplers_[s].sample(row, sequence.prompt, generated, allowed);
  } catch (const Error& error) {
    return {.error = error};
  }
}

}  // namespace braid
