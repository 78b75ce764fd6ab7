#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace braid {

// A fast hash of short byte strings, equal on all machines with the same byte order.
inline uint64_t hash_bytes(std::string_view text) {
  const auto load = [](const char* p, size_t n) {
    uint64_t value = 0;
    std::memcpy(&value, p, n);
    return value;
  };
  const auto mix = [](uint64_t a, uint64_t b) {
    const auto product = static_cast<unsigned __int128>(a) * b;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  };
  constexpr uint64_t kA = 0x9e3779b97f4a7c15, kB = 0xd6e8feb86659fd93;
  const char* p = text.data();
  size_t n = text.size();
  uint64_t hash = n * kA;
  for (; n > 8; n -= 8, p += 8) hash = mix(hash ^ load(p, 8), kB);
  uint64_t tail = 0;
  if (n >= 4) {
    tail = load(p, 4) | load(p + n - 4, 4) << 32;
  } else if (n > 0) {
    tail = static_cast<uint8_t>(p[0]) | static_cast<uint64_t>(static_cast<uint8_t>(p[n / 2])) << 8 |
           static_cast<uint64_t>(static_cast<uint8_t>(p[n - 1])) << 16;
  }
  return mix(hash ^ tail ^ kB, kA);
}

// Piece -> id, in a flat table (linear probing, at most half full) over strings that stay in place.
// For equal pieces the first id is found. Entries with an empty piece are left out.
class Vocabulary {
 public:
  // `pieces` must outlive the vocabulary. Fails with kMalformed where the pieces are made to
  // collide.
  explicit Vocabulary(std::span<const std::string_view> pieces);

  int32_t find(std::string_view piece) const;  // -1: there is none

 private:
  struct Slot {
    uint32_t tag = 0;  // high half of the hash
    int32_t id = -1;
  };
  std::span<const std::string_view> pieces_;
  std::vector<Slot> slots_;
  uint64_t mask_ = 0;
};

}  // namespace braid
