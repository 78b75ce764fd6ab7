#include "braid/io/tokenizer_vocab.h"

#include <bit>

#include "braid/base/error.h"
#include "braid/io/quoted.h"

namespace braid {

namespace {
// Random strings never probe this far; a file with chosen strings must not make loading quadratic.
constexpr int kMaxProbes = 4096;
}  // namespace

Vocabulary::Vocabulary(std::span<const std::string_view> pieces)
    : pieces_(pieces), slots_(std::bit_ceil(2 * pieces.size() + 1)), mask_(slots_.size() - 1) {
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (pieces[id].empty()) continue;
    const uint64_t hash = hash_bytes(pieces[id]);
    const auto tag = static_cast<uint32_t>(hash >> 32);
    uint64_t at = hash & mask_;
    for (int probes = 0; slots_[at].id >= 0; at = (at + 1) & mask_) {
      if (slots_[at].tag == tag && pieces[slots_[at].id] == pieces[id]) break;
      if (++probes > kMaxProbes) {
        fail(ErrorCode::kMalformed, "more than {} vocabulary pieces collide with {}", kMaxProbes,
             quoted(pieces[id]));
      }
    }
    if (slots_[at].id < 0) slots_[at] = {tag, static_cast<int32_t>(id)};
  }
}

int32_t Vocabulary::find(std::string_view piece) const {
  const uint64_t hash = hash_bytes(piece);
  const auto tag = static_cast<uint32_t>(hash >> 32);
  for (uint64_t at = hash & mask_;; at = (at + 1) & mask_) {
    const Slot slot = slots_[at];
    if (slot.id < 0) return -1;
    if (slot.tag == tag && pieces_[slot.id] == piece) return slot.id;
  }
}

}  // namespace braid
