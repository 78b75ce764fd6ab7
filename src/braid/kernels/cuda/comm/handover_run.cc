#include "braid/kernels/cuda/comm/handover_run.h"

#include <algorithm>

#include "braid/base/math.h"
#include "braid/kernels/cuda/comm/push_config.h"
#include "braid/ops/attention_state.h"
#include "braid/ops/one_sided.h"
#include "braid/ops/sequence.h"

namespace braid::cuda {
namespace {

constexpr const OpDef* kOps[] = {&ops::kPush, &ops::kSync, &ops::kMergeStates, &ops::kKvWrite};
constexpr int64_t kCtaBytes = 16 << 10;  // that a CTA has under way at once
constexpr int kWarps = kHandoverThreads / 32;

constexpr int kTensors = 3;  // q, k and v; a piece of each goes to each rank, and to own rows

// Rows whole in words of 16 bytes.
bool in_words(const ValueType& rows) {
  return bytes_of(rows.dtype, rows.shape[2] * rows.shape[3]) % 16 == 0;
}

bool whole_rows(const Program& program, const Op& push) {
  return std::ranges::all_of(push.attrs.as<ops::MoveAttrs>().moves, [&](const ops::Move& move) {
    const ValueType& src = program.value(push.inputs[move.src]).type;
    const ValueType& dst = program.value(push.inputs[move.dst]).type;
    return src.shape[0] == 1 && move.heads == src.shape[2] && move.heads == dst.shape[2];
  });
}

}  // namespace

constinit const JoinForm kHandover = {.name = "handover", .ops = kOps};

HandoverConfig choose_handover(int pieces, int64_t piece_bytes, int64_t rows, int sms) {
  const int64_t stores = pieces * ceil_div(piece_bytes, kCtaBytes);
  HandoverConfig config;
  config.ctas = static_cast<int>(
      std::clamp<int64_t>(std::max(stores, ceil_div(rows, int64_t{kWarps})), 1, sms));
  config.pushers = static_cast<int>(std::min<int64_t>(stores, config.ctas));
  return config;
}

int handover_ranks(const Program& program, const LaunchRun& run) {
  if (run.ops.size() < 3 || run.ops[0]->def != &ops::kPush || run.ops[1]->def != &ops::kSync) {
    return 0;
  }
  const Op &push = *run.ops[0], &sync = *run.ops[1], &last = *run.ops[2];
  const bool merges = last.def == &ops::kMergeStates;
  if (!merges && last.def != &ops::kKvWrite) return 0;
  const auto& waits = sync.attrs.as<ops::SyncAttrs>();
  const auto ranks = static_cast<int>(waits.arrivals.size());
  if (waits.ranks() > 1 || !waits.opens.empty() ||
      sync.inputs[ops::kSyncArrivals] != push.inputs[0] || !whole_rows(program, push) ||
      !push.attrs.as<ops::MoveAttrs>().told.empty() || kTensors * (ranks + 1) > kMaxPushPieces) {
    return 0;
  }
  // Results may lie where the push's sources were: a rank's own arrival says that all were read.
  // Results of own states do not wait, and must be made of the sources.
  if (merges && last.inputs.size() > 1 && std::ranges::count(push.inputs, last.inputs[1]) == 0) {
    return 0;
  }
  if (!merges &&
      program.value(last.inputs[0]).type.dtype != program.value(last.inputs[3]).type.dtype) {
    return 0;
  }
  int64_t bytes = 0;
  for (size_t i = ops::kSyncFirstClosed; i < ops::kSyncFirstClosed + ops::kSyncMaxClosed; ++i) {
    if (sync.inputs[i] == kNoValue) continue;
    const ValueType& rows = program.value(sync.inputs[i]).type;
    if (rows.shape.rank() != 4 || !in_words(rows)) return 0;
    bytes += bytes_of(rows);
  }
  return bytes <= kMaxHandoverBytes ? ranks : 0;
}

}  // namespace braid::cuda
