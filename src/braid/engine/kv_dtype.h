#pragma once

#include <optional>

#include "braid/tensor/dtype.h"

namespace braid {

// Chooses the dtype of a KV cache: `asked`, or a default where the user asked for none. A CPU's
// default is the model's (Model::default_kv_dtype). A GPU's is bf16, the dtype of activations; f16
// and f32 run through slower kernels there, and are refused where GPUs divide sequences. Fails with
// kInvalidArgument on a dtype that is not f16, bf16 or f32, with kUnsupported on a refused one.
DType choose_kv_dtype(std::optional<DType> asked, DType of_model, bool cuda,
                      bool divides_sequences);

}  // namespace braid
