#pragma once

#include <optional>

#include "braid/tensor/dtype.h"

namespace braid {

// Chooses the dtype of a KV cache: `asked`, or a default. A CPU's default is the model's
// (Model::default_kv_dtype). A GPU's default is bf16, the dtype of activations; on GPUs f16 and f32
// run through slower kernels, and are refused with `copies_keys`: where GPUs divide sequences, or
// prompts leave out keys. Fails with kInvalidArgument on a dtype other than f16, bf16 or f32, with
// kUnsupported on a refused dtype.
DType choose_kv_dtype(std::optional<DType> asked, DType of_model, bool cuda, bool copies_keys);

}  // namespace braid
