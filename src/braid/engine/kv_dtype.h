#pragma once

#include <optional>

#include "braid/tensor/dtype.h"

namespace braid {

// What a KV cache is kept in, of what was asked for and what the model is made for
// (Model::default_kv_dtype). On a CPU f32, f16 and bf16 may be asked for, and the model's is taken
// else. On a GPU it is bf16, as activations are there; f16 and f32 run through slower kernels, and
// not where ranks divide sequences. Fails with kInvalidArgument on a dtype that is none of these,
// kUnsupported on what the device does not take.
DType choose_kv_dtype(std::optional<DType> asked, DType of_model, bool cuda,
                      bool divides_sequences);

}  // namespace braid
