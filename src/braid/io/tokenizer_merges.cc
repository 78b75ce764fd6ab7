#include "braid/io/tokenizer_merges.h"

#include <bit>
#include <string>

#include "braid/base/error.h"
#include "braid/io/quoted.h"
#include "braid/io/tokenizer_flags.h"

namespace braid {
namespace {

constexpr size_t kMaxProbes = 4096;

uint64_t slot_hash(uint64_t key) {
  key *= 0x9e3779b97f4a7c15;
  return key ^ key >> 32;
}

}  // namespace

MergeTable::MergeTable(std::span<const MergePair> merges, const Vocabulary& vocab,
                       std::span<const uint8_t> flags)
    : slots_(std::bit_ceil(merges.size() + merges.size() / 2 + 1)), mask_(slots_.size() - 1) {
  std::string whole;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right] = merges[rank];
    whole.assign(left).append(right);
    const int32_t l = vocab.find(left), r = vocab.find(right), w = vocab.find(whole);
    if (l < 0 || r < 0 || w < 0) {
      fail(ErrorCode::kMalformed, "merge {} of {} and {}: {} is not in the vocabulary", rank,
           quoted(left), quoted(right),
           quoted(l < 0   ? left
                  : r < 0 ? right
                          : whole));
    }
    if (flags[w] & kSpecialFlag) continue;
    const uint64_t key = static_cast<uint64_t>(l) << 32 | static_cast<uint32_t>(r);
    uint64_t at = slot_hash(key) & mask_;
    for (size_t probes = 0; slots_[at].key != UINT64_MAX && slots_[at].key != key; ++probes) {
      if (probes > kMaxProbes) {
        fail(ErrorCode::kMalformed, "more than {} merges collide with {} {}", kMaxProbes,
             quoted(left), quoted(right));
      }
      at = (at + 1) & mask_;
    }
    slots_[at] = {key, {static_cast<uint32_t>(rank), w}};
  }
}

Merge MergeTable::find(int32_t left, int32_t right) const {
  const uint64_t key = static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
  for (uint64_t at = slot_hash(key) & mask_;; at = (at + 1) & mask_) {
    if (slots_[at].key == key) return slots_[at].merge;
    if (slots_[at].key == UINT64_MAX) return {};
  }
}

}  // namespace braid
