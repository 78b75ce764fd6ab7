#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace braid {

// Element types. The block formats (q*) are GGUF's: a row is a whole number of blocks, and a block
// of `block_elems` consecutive elements takes `block_bytes` bytes (layouts in tensor/quant.h).
enum class DType : uint8_t { f32, f16, bf16, i32, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k };
constexpr int kNumDTypes = 12;

struct DTypeInfo {
  std::string_view name;
  int block_elems;  // 1 for plain types
  int block_bytes;
};

const DTypeInfo& info(DType dtype);
std::optional<DType> parse_dtype(std::string_view name);

inline std::string_view name(DType dtype) {
  return info(dtype).name;
}
inline bool is_quantized(DType dtype) {
  return info(dtype).block_elems > 1;
}
inline bool is_float(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

// Bytes of `elems` consecutive elements; `elems` is a multiple of block_elems.
int64_t bytes_of(DType dtype, int64_t elems);

}  // namespace braid
