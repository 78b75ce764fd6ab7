#pragma once

#include <string>
#include <vector>

#include "braid/base/math.h"

namespace braid {

// Places of a value's elements along a mesh axis with P ranks.
struct Placement {
  enum class Kind : uint8_t {
    replicated,  // every rank holds the whole value
    shard,       // rank r holds parts[r] of dimension `dim`; parts may be uneven, empty or overlap
    partial,     // every rank holds a summand; the value is their sum
  };
  Kind kind = Kind::replicated;
  int dim = 0;
  std::vector<Range> parts;  // [P], for shard

  static Placement replicated() { return {}; }
  static Placement shard(int dim, std::vector<Range> parts) {
    return {Kind::shard, dim, std::move(parts)};
  }
  static Placement partial() { return {Kind::partial, 0, {}}; }

  bool is_replicated() const { return kind == Kind::replicated; }
  bool is_partial() const { return kind == Kind::partial; }
  bool is_shard() const { return kind == Kind::shard; }
  bool is_shard(int d) const { return kind == Kind::shard && dim == d; }
  bool operator==(const Placement&) const = default;
};

std::string to_string(const Placement& placement);  // "shard(1: 0..320 320..576)"

// Parts in units of `unit` elements become parts in elements; the reverse if divisible.
std::vector<Range> scale_parts(const std::vector<Range>& parts, int64_t unit);

}  // namespace braid
