#include "braid/model/config.h"

namespace braid {
namespace {

constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxWidth = int64_t{1} << 24;
constexpr int64_t kMaxHeadDim = 256;

void check(const std::string& origin, std::string_view field, int64_t value, int64_t limit) {
  if (value < 1 || value > limit) {
    fail(ErrorCode::kMalformed, "{}: {} is {}, allowed are 1 to {}", origin, field, value, limit);
  }
}

}  // namespace

void check_config(const ModelConfig& c, const std::string& origin) {
  check(origin, "the number of layers", c.layers, kMaxLayers);
  check(origin, "the model width", c.C, kMaxWidth);
  check(origin, "the feed-forward width", c.F, kMaxWidth);
  check(origin, "the vocabulary size", c.V, kMaxWidth);
  check(origin, "the number of query heads", c.Hq, kMaxWidth);
  check(origin, "the number of KV heads", c.Hkv, c.Hq);
  check(origin, "the head dimension", c.D, kMaxHeadDim);
  check(origin, "the context length", c.context, INT32_MAX);
  check(origin, "the rotary dimension", c.rope.rotary_dim, c.D);
  if (c.Hq % c.Hkv != 0) {
    fail(ErrorCode::kMalformed, "{}: {} query heads are no multiple of {} KV heads", origin, c.Hq,
         c.Hkv);
  }
  if (c.D % 8 != 0) {
    fail(ErrorCode::kUnsupported, "{}: the head dimension is {}, no multiple of 8", origin, c.D);
  }
  if (!(c.eps > 0 && c.eps < 1)) {
    fail(ErrorCode::kMalformed, "{}: the norm's epsilon is {}, wanted between 0 and 1", origin,
         c.eps);
  }
  if (!(c.rope.theta > 0) || !(c.rope.factor > 0)) {
    fail(ErrorCode::kMalformed, "{}: RoPE with base {} and factor {}, both must be positive",
         origin, c.rope.theta, c.rope.factor);
  }
}

}  // namespace braid
