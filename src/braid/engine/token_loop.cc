#include "braid/engine/token_loop.h"

namespace braid {

Error not_numbers(std::string_view place, int64_t tokens, DType kv_dtype) {
  const std::string overflow =
      kv_dtype != DType::f16
          ? ""
          : ", or keys and values beyond 65504, the most that the KV cache holds "
            "in f16 (--kv-dtype bf16 or f32 hold them)";
  return {ErrorCode::kMalformed,
          fmt::format("{}, after {} tokens: the model's logits are not numbers; likely cause: "
                      "weights that are not numbers or too large{}",
                      place, tokens, overflow)};
}

TokenLoop::TokenLoop(LoopRequest request)
    : request_(std::move(request)),
      slots_(request_.sequences.begin(), request_.sequences.end()),
      tokens_(request_.sequences.size()) {}

Error TokenLoop::not_numbers(const LoopSlot& slot) const {
  return braid::not_numbers(fmt::format("step {}", slot.generated.size() + 1), slot.tokens(),
                            request_.kv_dtype);
}

std::span<const SampledToken> TokenLoop::hand_out() {
  for (size_t s = 0; s < slots_.size(); ++s) slots_[s].generated.push_back(tokens_[s].id);
  return tokens_;
}

}  // namespace braid
