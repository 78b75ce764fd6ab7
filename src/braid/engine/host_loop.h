#pragma once

#include "braid/engine/runner.h"
#include "braid/engine/token_loop.h"

namespace braid {

// Samples on the host, from logits that each step brings there.
class HostLoop : public TokenLoop {
 public:
  // `logits` [1, V] are those of the prompt's last token.
  HostLoop(Runner& runner, LoopRequest request, int64_t page_size, const TensorView& logits)
      : runner_(runner),
        request_(std::move(request)),
        sampler_(request_.sampling),
        batch_(page_size),
        logits_(logits) {}

  SampledToken next() override;

 private:
  Runner& runner_;
  const LoopRequest request_;
  Sampler sampler_;
  Batch batch_;
  TensorView logits_;
  std::vector<int32_t> generated_;
};

}  // namespace braid
