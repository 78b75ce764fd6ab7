#pragma once

#include <span>
#include <string_view>

namespace braid {

// The files of profiles/, compiled in.
struct BuiltinProfile {
  std::string_view name;
  std::string_view json;
};
std::span<const BuiltinProfile> builtin_profiles();
// Those of profiles/decode: constants of decode steps.
std::span<const BuiltinProfile> builtin_decode_rates();

}  // namespace braid
