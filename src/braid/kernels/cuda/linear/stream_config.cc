#include "braid/kernels/cuda/linear/stream_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/base/math.h"

namespace braid::cuda {
namespace {

// Four CTAs on an SM: their registers fill the SM, and 64 KB are under way.
constexpr int64_t kMaxShared = 54 << 10;
constexpr int kCtasPerSm = 4;

int64_t rows_of_unit(const StreamShape& shape) {
  return shape.gated ? 2 : 1;
}

int64_t sums_bytes(const StreamShape& shape, int64_t rows) {
  return rows * kStreamWarps * shape.tokens * static_cast<int64_t>(sizeof(float));
}

}  // namespace

bool stream_takes(const StreamShape& shape) {
  const int64_t x = shape.tokens * stream_pitch(shape.k);
  return shape.dtype == DType::bf16 && shape.aligned && shape.tokens <= kStreamMaxTokens &&
         shape.k % 8 == 0 && x + sums_bytes(shape, 32) <= kMaxShared;
}

StreamConfig choose_stream(const StreamShape& shape, int num_sms) {
  const int64_t x = shape.tokens * stream_pitch(shape.k);
  // More rounds of CTAs only if a round's sums would not fit.
  for (int64_t rounds = 1;; ++rounds) {
    const int64_t ctas = std::min<int64_t>(rounds * kCtasPerSm * num_sms, shape.units);
    const int64_t rows = ceil_div(shape.units, ctas) * rows_of_unit(shape);
    const StreamConfig c = {.ctas = static_cast<int>(ctas),
                            .rows = static_cast<int>(rows),
                            .shared_bytes = static_cast<int>(x + sums_bytes(shape, rows)) +
                                            stream_starts_bytes(static_cast<int>(rows))};
    if (c.shared_bytes <= kMaxShared) return c;
  }
}

std::string to_string(const StreamConfig& c) {
  return fmt::format("stream {} x {} rows", c.ctas, c.rows);
}

}  // namespace braid::cuda
