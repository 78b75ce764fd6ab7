#include "braid/ops/remote_access.h"

#include "braid/ops/one_sided.h"
#include "braid/ops/segment_attention.h"

namespace braid::ops {
namespace {

constexpr size_t kFirstResult = 3;  // o, send, joint

void add(std::vector<BlockAccess>& all, const BlockAccess& access) {
  if (access.rows > 0 && access.heads > 0) all.push_back(access);
}

}  // namespace

bool overlap(const BlockAccess& a, const BlockAccess& b) {
  return a.row < b.row + b.rows && b.row < a.row + a.rows && a.head < b.head + b.heads &&
         b.head < a.head + a.heads;
}

std::vector<BlockAccess> block_accesses(const Op& op) {
  std::vector<BlockAccess> all;
  if (op.def == &kPull || op.def == &kPush) {
    const auto& attrs = op.attrs.as<MoveAttrs>();
    const bool pulls = op.def == &kPull;
    for (const Move& m : attrs.moves) {
      const int peer = m.peer == attrs.rank ? BlockAccess::kSelf : m.peer;
      add(all, {.rank = pulls ? peer : BlockAccess::kSelf,
                .input = static_cast<size_t>(m.src),
                .row = m.src_row,
                .rows = m.rows,
                .head = m.src_head,
                .heads = m.heads});
      add(all, {.rank = pulls ? BlockAccess::kSelf : peer,
                .input = static_cast<size_t>(m.dst),
                .writes = true,
                .row = m.dst_row,
                .rows = m.rows,
                .head = m.dst_head,
                .heads = m.heads});
    }
  }
  if (op.def == &kSegmentAttention) {
    const auto& attrs = op.attrs.as<SegmentAttentionAttrs>();
    for (const QSegment& s : attrs.q) {
      if (!attrs.finalize) break;
      add(all, {.rank = s.owner >= 0 ? s.owner : BlockAccess::kSelf,
                .input = kFirstResult + static_cast<size_t>(s.out),
                .writes = true,
                .row = s.out_row,
                .rows = s.rows,
                .head = s.out_head,
                .heads = attrs.heads});
    }
  }
  return all;
}

bool accessed_by_blocks(const Op& op, size_t input) {
  if (op.def == &kPull || op.def == &kPush) return true;
  return op.def == &kSegmentAttention && input >= kFirstResult &&
         input < SegmentAttentionAttrs::kFirstQ;
}

}  // namespace braid::ops
