#pragma once

#include <cstdint>
#include <string_view>

namespace braid {

// FNV-1a, for comparing two sides' data. Another `seed` gives another, independent hash.
class Fnv {
 public:
  explicit Fnv(uint64_t seed = 0) : value_(0xcbf29ce484222325u ^ seed) {}
  void add(int64_t value) {
    for (int i = 0; i < 8; ++i) byte(static_cast<uint8_t>(value >> (8 * i)));
  }
  void add(std::string_view text) {
    add(static_cast<int64_t>(text.size()));
    for (char c : text) byte(static_cast<uint8_t>(c));
  }
  uint64_t value() const { return value_; }

 private:
  void byte(uint8_t b) { value_ = (value_ ^ b) * 0x100000001b3u; }
  uint64_t value_;
};

}  // namespace braid
