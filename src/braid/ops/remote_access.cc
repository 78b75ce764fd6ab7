#include "braid/ops/remote_access.h"

#include <numeric>

#include "braid/ops/expert_exchange.h"
#include "braid/ops/one_sided.h"
#include "braid/ops/segment_attention.h"

namespace braid::ops {
namespace {

constexpr size_t kFirstResult = 3;  // o, send, joint

void add(std::vector<BlockAccess>& all, const BlockAccess& access) {
  if (access.rows > 0 && access.heads > 0) all.push_back(access);
}

bool exchanges(const Op& op) {
  return op.def == &kDispatch || op.def == &kReturnRows;
}

// This rank's slots of each rank's rows, and its line of what each rank is told.
void add_exchange(std::vector<BlockAccess>& all, const Op& op) {
  const auto& a = op.attrs.as<ExchangeAttrs>();
  const bool back = op.def == &kReturnRows;
  for (int q = 0; q < a.ranks(); ++q) {
    BlockAccess slots = {.rank = q == a.rank ? BlockAccess::kSelf : q,
                         .input = back ? 3u : 4u,
                         .writes = true,
                         .row = a.rank * a.slots,
                         .rows = a.slots,
                         .heads = 1};
    add(all, slots);
    if (back) continue;
    slots.input = 5, slots.row = a.rank, slots.rows = 1;
    add(all, slots);
  }
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
  if (exchanges(op)) add_exchange(all, op);
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

int rank_of(const Op& op) {
  return exchanges(op) ? op.attrs.as<ExchangeAttrs>().rank : op.attrs.as<MoveAttrs>().rank;
}

std::vector<int> told_ranks(const Op& op) {
  if (!exchanges(op)) return op.attrs.as<MoveAttrs>().peers();
  std::vector<int> all(op.attrs.as<ExchangeAttrs>().experts.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

bool accessed_by_blocks(const Op& op, size_t input) {
  if (op.def == &kPull || op.def == &kPush) return true;
  if (op.def == &kDispatch) return input == 0 || input >= 4;
  if (op.def == &kReturnRows) return input == 0 || input == 3;
  return op.def == &kSegmentAttention && input >= kFirstResult &&
         input < SegmentAttentionAttrs::kFirstQ;
}

}  // namespace braid::ops
