#pragma once

#include <cstdint>

#include "braid/tensor/dtype.h"

namespace braid::cpu {

// A layer's paged KV cache. A slot is a token's place: slot = page * page_size + offset.
struct KvCache {
  void* k = nullptr;         // [NB, BS, Hkv, D] of dtype
  void* v = nullptr;         // [NB, BS, Hkv, D] of dtype
  DType dtype = DType::f32;  // f32, f16 or bf16
  int64_t page_size = 0;     // BS
  int64_t kv_heads = 0;      // Hkv
  int64_t head_dim = 0;      // D
};

}  // namespace braid::cpu
