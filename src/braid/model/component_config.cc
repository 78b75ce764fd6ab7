#include "braid/model/component_config.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "braid/base/error.h"
#include "braid/io/quoted.h"

namespace braid {

int64_t read_count(const JsonObject& config, std::string_view component, std::string_view key,
                   int64_t otherwise) {
  const int64_t value = config.get_or<int64_t>(key, otherwise);
  constexpr int64_t kMost = 1 << 20;
  if (value < 1 || value > kMost) {
    fail(ErrorCode::kUnsupported, "{}: {} is {}, wanted is 1 to {}", component, key, value, kMost);
  }
  return value;
}

float read_positive(const JsonObject& config, std::string_view component, std::string_view key,
                    float otherwise) {
  const auto value = config.get_or<double>(key, otherwise);
  if (!(value > 0)) {
    fail(ErrorCode::kUnsupported, "{}: {} is {}, more than 0 is wanted", component, key, value);
  }
  return static_cast<float>(value);
}

void require_text(const JsonObject& config, std::string_view component, std::string_view key,
                  std::initializer_list<std::string_view> known) {
  const auto value = config.find<std::string>(key);
  if (!value || std::ranges::count(known, *value) > 0) return;
  fail(ErrorCode::kUnsupported, "{}: {} is {}, which is not supported; known: {}", component, key,
       quoted(*value), fmt::join(known, ", "));
}

}  // namespace braid
