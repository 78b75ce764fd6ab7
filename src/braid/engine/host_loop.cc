#include "braid/engine/host_loop.h"

namespace braid {

SampledToken HostLoop::next() {
  if (!generated_.empty()) {
    const auto cached = std::ssize(request_.prompt) + std::ssize(generated_) - 1;
    batch_.clear();
    batch_.add({&generated_.back(), 1}, cached, request_.hold(cached + 1), 1);
    logits_ = runner_.run(batch_);
  }
  const std::span row(logits_.as<float>(), static_cast<size_t>(logits_.cols()));
  SampledToken token = sampler_.sample(row, request_.prompt, generated_);
  generated_.push_back(token.id);
  return token;
}

}  // namespace braid
