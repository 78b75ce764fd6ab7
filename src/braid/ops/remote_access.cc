#include "braid/ops/remote_access.h"

#include <numeric>

#include "braid/ops/expert_tiles.h"
#include "braid/ops/one_sided.h"
#include "braid/ops/segment_attention.h"

namespace braid::ops {
namespace {

constexpr size_t kFirstResult = SegmentAttentionAttrs::kFirstResult;

void add(std::vector<BlockAccess>& all, const BlockAccess& access) {
  if (access.rows > 0 && access.heads > 0) all.push_back(access);
}

// The exchange that an op takes part in, or null.
const ExchangeAttrs* exchange_of(const Op& op) {
  if (op.def == &kDispatchGated) return &op.attrs.as<DispatchGatedAttrs>().exchange;
  if (op.def == &kLinearReturn) return &op.attrs.as<LinearReturnAttrs>().exchange;
  const bool plain = op.def == &kTell || op.def == &kDispatch || op.def == &kReturnRows;
  return plain ? &op.attrs.as<ExchangeAttrs>() : nullptr;
}

// The destination for all four.
constexpr size_t kPushed = 3;

// This rank's slots for each rank's rows or sums, or its line for each rank's announcement.
void add_exchange(std::vector<BlockAccess>& all, const Op& op, const ExchangeAttrs& a) {
  int64_t row = a.rank, rows = 1;  // of tell
  if (op.def == &kDispatch || op.def == &kDispatchGated) row = a.rank * a.room, rows = a.room;
  if (op.def == &kReturnRows || op.def == &kLinearReturn) {
    const Range sums = a.of_round(a.slots);
    row = a.rank * a.slots + sums.begin, rows = sums.size();
  }
  for (int q = 0; q < a.ranks(); ++q) {
    add(all, {.rank = q == a.rank ? BlockAccess::kSelf : q,
              .input = kPushed,
              .writes = true,
              .row = row,
              .rows = rows,
              .heads = 1});
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
  if (const ExchangeAttrs* a = exchange_of(op)) add_exchange(all, op, *a);
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
  const ExchangeAttrs* a = exchange_of(op);
  return a != nullptr ? a->rank : op.attrs.as<MoveAttrs>().rank;
}

std::vector<int> told_ranks(const Op& op) {
  const ExchangeAttrs* a = exchange_of(op);
  if (a == nullptr) return op.attrs.as<MoveAttrs>().peers();
  std::vector<int> all(a->experts.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

bool accessed_by_blocks(const Op& op, size_t input) {
  if (op.def == &kPull || op.def == &kPush) return true;
  if (exchange_of(op) != nullptr) return input == 0 || input == kPushed;
  return op.def == &kSegmentAttention && input >= kFirstResult &&
         input < SegmentAttentionAttrs::kFirstQ;
}

}  // namespace braid::ops
