#include "braid/ops/segment_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "braid/base/math.h"
#include "braid/ops/one_sided.h"
#include "braid/ops/rules.h"

namespace braid::ops {
namespace {

void require_rows(std::string_view operand, const ValueType& type, int64_t row, int64_t rows,
                  int64_t head, int64_t heads, int64_t head_dim) {
  require_rank("segment_attention", operand, type, 4);
  require_dim("segment_attention", operand, type, 3, head_dim);
  if (row >= 0 && rows >= 0 && row + rows <= type.shape[1] && head >= 0 && heads >= 0 &&
      head + heads <= type.shape[2]) {
    return;
  }
  fail(ErrorCode::kInvalidArgument,
       "segment_attention: rows {}..{} and heads {}..{} of {}, which is {}", row, row + rows, head,
       head + heads, operand, to_string(type));
}

std::vector<ValueType> infer(const Attrs& attrs, TypeList in) {
  const auto& a = attrs.as<SegmentAttentionAttrs>();
  constexpr std::string_view kOp = "segment_attention";
  BRAID_CHECK(a.num_q >= 1 && in.size() >= SegmentAttentionAttrs::kFirstQ + a.num_q &&
                  (in.size() - SegmentAttentionAttrs::kFirstQ - a.num_q) % 2 == 0,
              "{} inputs with {} q values", in.size(), a.num_q);
  const int pairs = static_cast<int>(in.size() - SegmentAttentionAttrs::kFirstQ - a.num_q) / 2;
  require_rank(kOp, "state_o", in[0], 4);
  require_dtype(kOp, "state_o", in[0], DType::f32);
  const int64_t D = in[0].shape[3];
  for (size_t i : {1u, 2u}) {
    require_rank(kOp, "state_l or state_m", in[i], 3);
    require_dtype(kOp, "state_l or state_m", in[i], DType::f32);
    require_dim(kOp, "state_l or state_m", in[i], 1, in[0].shape[1]);
    require_dim(kOp, "state_l or state_m", in[i], 2, in[0].shape[2]);
  }
  if (a.group < 1 || a.heads < 1 || (a.heads - 1 + a.head_offset) / a.group >= a.kv_heads) {
    fail(ErrorCode::kInvalidArgument, "{}: {} heads in groups of {} from {} over {} KV heads", kOp,
         a.heads, a.group, a.head_offset, a.kv_heads);
  }
  for (const QSegment& s : a.q) {
    BRAID_CHECK(0 <= s.q && s.q < a.num_q && 0 <= s.kv_begin && s.kv_begin <= s.kv_end &&
                s.kv_end <= static_cast<int>(a.kv.size()));
    require_rows("q", in[SegmentAttentionAttrs::kFirstQ + s.q], s.row, s.rows, s.head, a.heads, D);
    if (a.carries_state()) require_rows("the state", in[0], s.state_row, s.rows, 0, a.heads, D);
    if (!a.finalize) continue;
    const ValueType& out = in[SegmentAttentionAttrs::kFirstResult + static_cast<size_t>(s.out)];
    require_rows("the result", out, s.out_row, s.rows, s.out_head, a.heads, D);
  }
  int phase = 0;
  for (const KvSegment& s : a.kv) {
    BRAID_CHECK(0 <= s.kv && s.kv < pairs && s.phase >= phase, "pair {} of {}, phase {} after {}",
                s.kv, pairs, s.phase, phase);
    phase = s.phase;
    if (a.dual && s.rows > 0 && s.position + s.rows > a.dual->chunk_end(s.position)) {
      fail(ErrorCode::kInvalidArgument, "{}: keys {}..{} lie in more than a chunk of {}", kOp,
           s.position, s.position + s.rows, a.dual->chunk);
    }
    for (int i : {0, 1}) {
      const size_t index = SegmentAttentionAttrs::kFirstQ + a.num_q + 2 * s.kv + i;
      require_rows(i == 0 ? "k" : "v", in[index], s.row, s.rows, s.head, a.kv_heads, D);
    }
  }
  return {};
}

Cost cost(const Attrs& attrs, TypeList in, TypeList, const Work& work) {
  const auto& a = attrs.as<SegmentAttentionAttrs>();
  const double B = static_cast<double>(work.extents.of(in[0].axis, in[0].shape[0]));
  const auto D = static_cast<double>(in[0].shape[3]);
  const double element = static_cast<double>(bytes_of(in[SegmentAttentionAttrs::kFirstQ].dtype, 1));
  double pairs = 0, rows = 0, keys = 0;
  for (double n : a.pairs()) pairs += n;
  for (const QSegment& q : a.q) rows += static_cast<double>(q.rows);
  for (const KvSegment& kv : a.kv) keys += static_cast<double>(kv.rows);
  const double state = (a.load_state ? 1 : 0) + (a.finalize ? 0 : 1);
  const auto H = static_cast<double>(a.heads);
  return {.flops = 4 * B * H * D * pairs,
          .bytes = B * D *
                   (H * rows * (element * (a.finalize ? 2 : 1) + 4 * state) +
                    2 * static_cast<double>(a.kv_heads) * keys * element)};
}

std::vector<Transfer> stored(const Attrs& attrs, TypeList in, const Work& work) {
  const auto& a = attrs.as<SegmentAttentionAttrs>();
  const int64_t sequences = work.extents.of(in[0].axis, in[0].shape[0]);
  std::vector<Transfer> transfers;
  for (const QSegment& s : a.q) {
    const int64_t elems = a.stored(s, sequences, in[0].shape[3]);
    if (elems == 0) continue;
    const DType dtype = in[SegmentAttentionAttrs::kFirstQ].dtype;
    transfers.push_back({.peer = s.owner, .bytes = static_cast<double>(bytes_of(dtype, elems))});
  }
  return transfers;
}

int last_phase(const Attrs& attrs) {
  return attrs.as<SegmentAttentionAttrs>().last_phase();
}

int phase_of(const Attrs& attrs, size_t input) {
  return attrs.as<SegmentAttentionAttrs>().phase_of(input);
}

int parts(const Attrs& attrs) {
  return attrs.as<SegmentAttentionAttrs>().parts();
}

std::vector<double> phase_work(const Attrs& attrs, int part) {
  return attrs.as<SegmentAttentionAttrs>().pairs(part);
}

// A push takes its source rows, and rows stored at ranks that the push tells.
int part_for(const Op& op, const Op& taker) {
  using Out = QSegment::Out;
  const auto& attrs = op.attrs.as<SegmentAttentionAttrs>();
  if (taker.def != &kPush || !attrs.finalize) return kLastPart;
  const auto& push = taker.attrs.as<MoveAttrs>();
  const auto takes = [&](Out out) {
    if (out == Out::o) return false;
    const ValueId id = op.inputs[SegmentAttentionAttrs::kFirstResult + static_cast<size_t>(out)];
    return id != kNoValue && std::ranges::count(taker.inputs, id) > 0;
  };
  int latest = 0;
  for (const QSegment& s : attrs.q) {
    const bool told = s.owner >= 0 && std::ranges::count(push.told, s.owner) > 0;
    if (!told && !takes(s.out)) continue;
    if (s.part == kLastPart) return kLastPart;
    latest = std::max(latest, s.part);
  }
  return latest;
}

constexpr PhaseTraits kPhases = {.last = last_phase,
                                 .of_input = phase_of,
                                 .parts = parts,
                                 .work = phase_work,
                                 .part_for = part_for};

ShardRule no_rule(const Attrs&, TypeList in, std::span<const Placement>, int) {
  return replicate_all(in.size(), 0);
}

// An element in a [B, L, H, D] view as a row with D columns.
int64_t row_of(const TensorView& view, int64_t b, int64_t row, int64_t head) {
  return ((b * view.shape[1]) + row) * view.shape[2] + head;
}

void reference(const OpCall& call) {
  const auto& a = call.attrs<SegmentAttentionAttrs>();
  constexpr size_t kQ = SegmentAttentionAttrs::kFirstQ;
  const int64_t D = call.in[0].shape[3];
  const int64_t sequences = call.rows();
  std::vector<double> acc(D), frequencies;
  if (a.dual) frequencies = rope_frequencies(a.dual->rope, nullptr);
  for (int64_t b = 0; b < sequences; ++b) {
    for (const QSegment& s : a.q) {
      for (int64_t r = 0; r < s.rows; ++r) {
        for (int64_t h = 0; h < a.heads; ++h) {
          const auto q =
              load_row(call.in[kQ + s.q], row_of(call.in[kQ + s.q], b, s.row + r, s.head + h));
          const int64_t state = row_of(call.in[0], b, s.state_row + r, h);
          float* l_at = call.in[1].as<float>() + state;
          float* m_at = call.in[2].as<float>() + state;
          double m = -std::numeric_limits<double>::infinity(), l = 0;
          std::ranges::fill(acc, 0);
          if (a.load_state) {
            m = *m_at;
            l = *l_at;
            const auto o = load_row(call.in[0], state);
            std::ranges::copy(o, acc.begin());
          }
          for (int i = s.kv_begin; i < s.kv_end; ++i) {
            const KvSegment& kv = a.kv[i];
            const size_t pair = kQ + a.num_q + 2 * static_cast<size_t>(kv.kv);
            const int64_t kv_head = kv.head + (h + a.head_offset) / a.group;
            const Range keys = a.visible(s.position + r, kv);
            std::vector<float> met = q;
            double scale = a.scale;
            if (a.dual) {
              scale *= a.dual->growth(s.position + r);
              turn_heads(a.dual->rope, frequencies, a.dual->moves(s.position + r, kv.position), 1,
                         0, met.data());
            }
            for (int64_t j = keys.begin; j < keys.end; ++j) {
              const auto k = load_row(call.in[pair], row_of(call.in[pair], b, kv.row + j, kv_head));
              const auto v =
                  load_row(call.in[pair + 1], row_of(call.in[pair + 1], b, kv.row + j, kv_head));
              double dot = 0;
              for (int64_t d = 0; d < D; ++d) dot += double{met[d]} * k[d];
              const double score = dot * scale, top = std::max(m, score);
              const double keep = std::exp(m - top), p = std::exp(score - top);
              for (int64_t d = 0; d < D; ++d) acc[d] = acc[d] * keep + p * v[d];
              l = l * keep + p;
              m = top;
            }
          }
          std::vector<float> row(D);
          for (int64_t d = 0; d < D; ++d) {
            row[d] = static_cast<float>(!a.finalize ? acc[d] : l > 0 ? acc[d] / l : 0);
          }
          if (a.finalize) {
            BRAID_CHECK(s.owner < 0, "the reference reaches no rows of rank {}", s.owner);
            const TensorView& out = call.in[a.kFirstResult + static_cast<size_t>(s.out)];
            store_row(out, row_of(out, b, s.out_row + r, s.out_head + h), row);
          } else {
            store_row(call.in[0], state, row);
            *l_at = static_cast<float>(l);
            *m_at = static_cast<float>(m);
          }
        }
      }
    }
  }
}

std::vector<ValueType> infer_buffers(const Attrs& attrs, TypeList) {
  return attrs.as<BuffersAttrs>().types;
}

Cost no_cost(const Attrs&, TypeList, TypeList, const Work&) {
  return {};
}

ShardRule replicated_buffers(const Attrs& attrs, TypeList in, std::span<const Placement>, int) {
  return replicate_all(in.size(), attrs.as<BuffersAttrs>().types.size());
}

}  // namespace

Range SegmentAttentionAttrs::visible(int64_t position, const KvSegment& segment) const {
  Range keys{0, segment.rows};
  const int64_t at = position - segment.position;  // the query's own place among the keys
  if (window_right != kUnlimited) {
    keys.end = std::clamp<int64_t>(at + window_right + 1, 0, segment.rows);
  }
  if (window_left != kUnlimited) {
    keys.begin = std::clamp<int64_t>(at - window_left, 0, keys.end);
  }
  return keys;
}

int SegmentAttentionAttrs::last_phase() const {
  int last = 0;
  for (const QSegment& s : q) last = std::max(last, s.phase);
  for (const KvSegment& s : kv) last = std::max(last, s.phase);
  return last;
}

int SegmentAttentionAttrs::phase_of(size_t input) const {
  int phase = -1;
  const auto take = [&](bool reads, int its) {
    if (reads) phase = phase < 0 ? its : std::min(phase, its);
  };
  const size_t pairs_begin = kFirstQ + static_cast<size_t>(num_q);
  for (const QSegment& s : q) take(input == kFirstQ + static_cast<size_t>(s.q), s.phase);
  for (const KvSegment& s : kv) {
    take(input >= pairs_begin && (input - pairs_begin) / 2 == static_cast<size_t>(s.kv), s.phase);
  }
  return input < kFirstQ ? 0 : phase;
}

int SegmentAttentionAttrs::parts() const {
  int parts = 0;
  for (const QSegment& s : q) parts = std::max(parts, s.part + 1);
  return parts;
}

namespace {

// The sum of clamp(first + r, 0, most) over r in [0, rows).
int64_t clamped_sum(int64_t first, int64_t rows, int64_t most) {
  const int64_t begin = std::clamp<int64_t>(-first, 0, rows);
  const int64_t end = std::clamp<int64_t>(most - first, begin, rows);
  return (end - begin) * (2 * first + begin + end - 1) / 2 + (rows - end) * most;
}

}  // namespace

std::vector<double> SegmentAttentionAttrs::pairs(std::optional<int> part) const {
  std::vector<double> pairs(static_cast<size_t>(last_phase()) + 1);
  for (const QSegment& s : q) {
    if (part && *part != s.part) continue;
    for (int i = s.kv_begin; i < s.kv_end; ++i) {
      const KvSegment& keys = kv[i];
      double& sum = pairs[std::max(s.phase, keys.phase)];
      const int64_t at = s.position - keys.position;
      int64_t seen = s.rows * keys.rows;
      if (window_right != kUnlimited) {
        seen = clamped_sum(at + window_right + 1, s.rows, keys.rows);
      }
      if (window_left != kUnlimited) seen -= clamped_sum(at - window_left, s.rows, keys.rows);
      sum += static_cast<double>(seen);
    }
  }
  return pairs;
}

const OpDef kSegmentAttention = {
    .kind = "segment_attention",
    .infer = infer,
    .mutated_inputs = {0, 1, 2, 4, 5, 6},
    .cost = cost,
    .shard = no_rule,
    .reference = reference,
    .remote = RemoteUse::stores,
    .transfers = stored,
    .rate = {.kind = "attention", .typed_input = SegmentAttentionAttrs::kFirstQ},
    .phases = &kPhases};

const OpDef kBuffers = {.kind = "buffers",
                        .infer = infer_buffers,
                        .mutated_inputs = {},
                        .cost = no_cost,
                        .shard = replicated_buffers,
                        .reference = [](const OpCall&) {},
                        .runs = false};

}  // namespace braid::ops
