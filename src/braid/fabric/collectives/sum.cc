#include "braid/fabric/collectives/sum.h"

#include <algorithm>
#include <cstring>

namespace braid::fabric {
namespace {

const float* floats(const std::byte* bytes) {
  return reinterpret_cast<const float*>(bytes);
}

}  // namespace

void sum_in_order(float* out, std::span<const std::byte* const> in, int64_t n) {
  if (in.size() == 2) {
    const float* a = floats(in[0]);
    const float* b = floats(in[1]);
    for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
    return;
  }
  constexpr int64_t kBlock = 256;
  float sum[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t size = std::min(kBlock, n - begin);
    std::memcpy(sum, floats(in[0]) + begin, size * sizeof(float));
    for (const std::byte* bytes : in.subspan(1)) {
      const float* x = floats(bytes) + begin;
      for (int64_t i = 0; i < size; ++i) sum[i] += x[i];
    }
    std::memcpy(out + begin, sum, size * sizeof(float));
  }
}

}  // namespace braid::fabric
