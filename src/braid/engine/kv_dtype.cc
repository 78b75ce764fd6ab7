#include "braid/engine/kv_dtype.h"

#include "braid/base/error.h"

namespace braid {

DType choose_kv_dtype(std::optional<DType> asked, DType of_model, bool cuda, bool copies_keys) {
  const DType dtype = asked.value_or(cuda ? DType::bf16 : of_model);
  if (!is_float(dtype)) {
    fail(ErrorCode::kInvalidArgument, "a KV cache in {}, allowed are f16, bf16 and f32",
         name(dtype));
  }
  if (cuda && copies_keys && dtype != DType::bf16) {
    fail(ErrorCode::kUnsupported,
         "a KV cache in {}: where GPUs divide sequences or leave out keys it is bf16, as "
         "activations are",
         name(dtype));
  }
  return dtype;
}

}  // namespace braid
