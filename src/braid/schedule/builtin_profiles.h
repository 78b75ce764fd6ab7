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
// Profiles in profiles/decode: constants for decode steps.
std::span<const BuiltinProfile> builtin_decode_rates();

}  // namespace braid
