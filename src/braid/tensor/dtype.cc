#include "braid/tensor/dtype.h"

#include <array>

#include "braid/base/error.h"

namespace braid {
namespace {

constexpr std::array<DTypeInfo, kNumDTypes> kInfo = {{
    {"f32", 1, 4},
    {"f16", 1, 2},
    {"bf16", 1, 2},
    {"i32", 1, 4},
    {"q4_0", 32, 18},
    {"q4_1", 32, 20},
    {"q5_0", 32, 22},
    {"q5_1", 32, 24},
    {"q8_0", 32, 34},
    {"q4_k", 256, 144},
    {"q5_k", 256, 176},
    {"q6_k", 256, 210},
}};

}  // namespace

const DTypeInfo& info(DType dtype) {
  return kInfo[static_cast<size_t>(dtype)];
}

std::optional<DType> parse_dtype(std::string_view name) {
  for (int i = 0; i < kNumDTypes; ++i) {
    if (kInfo[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

int64_t bytes_of(DType dtype, int64_t elems) {
  const DTypeInfo& type = info(dtype);
  BRAID_CHECK(elems % type.block_elems == 0, "{} elements are no whole {} blocks", elems,
              type.name);
  return elems / type.block_elems * type.block_bytes;
}

}  // namespace braid
