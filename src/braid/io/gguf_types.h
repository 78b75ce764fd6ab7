#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "braid/tensor/dtype.h"

namespace braid {

// Types of metadata values, with the format's numbers.
enum class GgufType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};
constexpr uint32_t kNumGgufTypes = 13;

std::string_view name(GgufType type);

// Bytes of a value; for a string or an array, the least size (the empty form).
int64_t min_bytes(GgufType type);

// Types of tensor data. Every type that a file may hold has a block size, to check the extent; only
// types that Braid computes with have a `dtype`.
struct GgufTensorType {
  std::string_view name;
  int block_elems;
  int block_bytes;
  std::optional<DType> dtype;
};

// Nothing for an id outside the format.
const GgufTensorType* gguf_tensor_type(uint32_t id);

// Names of the types with a dtype, for messages: "f32, f16, q4_0, ...".
std::string readable_gguf_types();

}  // namespace braid
