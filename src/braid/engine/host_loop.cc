#include "braid/engine/host_loop.h"

namespace braid {

HostLoop::HostLoop(Runner& runner, LoopRequest request, int64_t page_size, const TensorView& logits)
    : runner_(runner),
      request_(std::move(request)),
      generated_(request_.sequences.size()),
      tokens_(request_.sequences.size()),
      batch_(page_size),
      logits_(logits) {
  for (const LoopSequence& sequence : request_.sequences) samplers_.emplace_back(sequence.sampling);
}

std::span<const SampledToken> HostLoop::next() {
  const size_t n = request_.sequences.size();
  if (!generated_[0].empty()) {
    batch_.clear();
    for (size_t s = 0; s < n; ++s) {
      const LoopSequence& sequence = request_.sequences[s];
      const auto cached = std::ssize(sequence.prompt) + std::ssize(generated_[s]) - 1;
      batch_.add({&generated_[s].back(), 1}, cached, sequence.hold(cached + 1), 1);
    }
    logits_ = runner_.run(batch_);
  }
  for (size_t s = 0; s < n; ++s) {
    if (!tokens_[s].error) tokens_[s] = sample(s);
    generated_[s].push_back(tokens_[s].id);
  }
  return tokens_;
}

SampledToken HostLoop::sample(size_t s) {
  const LoopSequence& sequence = request_.sequences[s];
  const std::span row(logits_.row_as<float>(static_cast<int64_t>(s)),
                      static_cast<size_t>(logits_.cols()));
  if (!usable(row)) {
    const auto done = std::ssize(generated_[s]);
    return {.error = not_numbers(fmt::format("step {}", done + 1),
                                 std::ssize(sequence.prompt) + done, request_.kv_dtype)};
  }
  try {
    std::span<const uint32_t> allowed;
    if (sequence.mask) allowed = sequence.mask(generated_[s]);
    return samplers_[s].sample(row, sequence.prompt, generated_[s], allowed);
  } catch (const Error& error) {
    return {.error = error};
  }
}

}  // namespace braid
