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

}  // namespace braid
