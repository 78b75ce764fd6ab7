// Binds segment attention to its kernel.
#include <algorithm>
#include <optional>

#include "braid/kernels/cpu/attention/segments.h"
#include "braid/kernels/cpu/bind.h"
#include "braid/kernels/cpu/sequence_views.h"
#include "braid/ops/segment_attention.h"

namespace braid::cpu {
namespace {

constexpr size_t kQ = ops::SegmentAttentionAttrs::kFirstQ;

// A thread's scratch; its end is 64-byte aligned too.
int64_t scratch_bytes(int64_t head_dim) {
  return round_up(segment_scratch_floats(head_dim) * static_cast<int64_t>(sizeof(float)), 64);
}

// A call's work: (sequence, block of a Q segment, head), a thread each.
class SegmentAttention {
 public:
  SegmentAttention(const LaunchArgs& args, Isa isa)
      : call_(args.call),
        a_(args.call.attrs<ops::SegmentAttentionAttrs>()),
        workspace_(args.workspace),
        block_(pick_isa(isa, BRAID_EACH_ISA(segment_attention_block))),
        keys_(args.threads) {
    for (auto& keys : keys_) keys.resize(a_.kv.size());
    if (a_.dual) frequencies_ = ops::rope_frequencies(a_.dual->rope, nullptr);
    const auto stores = [&](const ops::QSegment& s) { return a_.stored(s, 1, 1) > 0; };
    if (std::ranges::any_of(a_.q, stores)) owners_.emplace(args);
  }

  void run(const Team& team) {
    if (owners_ && team.index == 0) count_stores();
    int64_t unit = 0;
    for (int64_t b = 0; b < call_.extents().sequence; ++b) {
      for (const ops::QSegment& s : a_.q) {
        for (int64_t row = 0; row < s.rows; row += kSegmentRows) {
          for (int64_t h = 0; h < a_.heads; ++h) {
            if (unit++ % team.count == team.index) run_block(b, s, row, h, team.index);
          }
        }
      }
    }
  }

 private:
  void run_block(int64_t b, const ops::QSegment& s, int64_t row, int64_t h, int thread) {
    const TensorView& q = call_.in[kQ + static_cast<size_t>(s.q)];
    const TensorView& state = call_.in[0];
    const Strides q_at(q), state_at(state);
    const int64_t D = state.shape[3], heads = state.shape[2];
    const int64_t stat = (b * state.shape[1] + s.state_row + row) * heads + h;
    auto& keys = keys_[thread];
    for (int i = s.kv_begin; i < s.kv_end; ++i) keys[i] = keys_of(b, i, h);
    SegmentBlock block{.q = q.as<const float>() + q_at.at(b, s.row + row, s.head + h),
                       .q_stride = q_at.row,
                       .rows = std::min(kSegmentRows, s.rows - row),
                       .position = s.position + row,
                       .head_dim = D,
                       .scale = a_.scale,
                       .window_left = a_.window_left,
                       .window_right = a_.window_right,
                       .keys = std::span(keys).subspan(s.kv_begin, s.kv_end - s.kv_begin),
                       .dual = a_.dual ? &*a_.dual : nullptr,
                       .frequencies = frequencies_,
                       .state_o = state.as<float>() + state_at.at(b, s.state_row + row, h),
                       .state_stride = state_at.row,
                       .state_l = call_.in[1].as<float>() + stat,
                       .state_m = call_.in[2].as<float>() + stat,
                       .stat_stride = heads,
                       .load_state = a_.load_state,
                       .scratch = reinterpret_cast<float*>(workspace_ + thread * scratch_bytes(D))};
    if (a_.finalize) {
      const TensorView& out = call_.in[a_.kFirstResult + static_cast<size_t>(s.out)];
      const Strides out_at(out);
      std::byte* begin = out.data;
      if (s.owner >= 0) begin = owners_->memory.on_peer(begin, s.owner);
      block.out = reinterpret_cast<float*>(begin) + out_at.at(b, s.out_row + row, s.out_head + h);
      block.out_stride = out_at.row;
    }
    block_(block);
  }

  void count_stores() const {
    fabric::Endpoint& e = owners_->memory.endpoint();
    for (const ops::QSegment& s : a_.q) {
      const int64_t floats = a_.stored(s, call_.extents().sequence, call_.in[0].shape[3]);
      if (floats == 0) continue;
      e.traffic().add(owners_->tag, fabric::Verb::put, e.link(e.rank(), s.owner),
                      bytes_of(DType::f32, floats));
    }
  }

  SegmentKeys keys_of(int64_t b, int segment, int64_t h) const {
    const ops::KvSegment& s = a_.kv[segment];
    const size_t pair = kQ + static_cast<size_t>(a_.num_q + 2 * s.kv);
    const Strides at(call_.in[pair]);
    const int64_t offset = at.at(b, s.row, s.head + (h + a_.head_offset) / a_.group);
    return {.k = call_.in[pair].as<const float>() + offset,
            .v = call_.in[pair + 1].as<const float>() + offset,
            .stride = at.row,
            .rows = s.rows,
            .position = s.position};
  }

  const OpCall& call_;
  const ops::SegmentAttentionAttrs& a_;
  std::byte* const workspace_;
  void (*const block_)(const SegmentBlock&);
  std::vector<std::vector<SegmentKeys>> keys_;  // [threads, KV segments]
  std::vector<double> frequencies_;             // of dual chunks
  struct Owners {
    explicit Owners(const LaunchArgs& args)
        : memory(symmetric(args)), tag(memory.endpoint().tag("store")) {}
    fabric::SymmetricMemory& memory;
    fabric::Tag tag;
  };
  std::optional<Owners> owners_;  // for segments with other ranks' rows
};

Kernel segment_attention_kernel(Isa isa) {
  return {.info =
              [isa](const Op&, TypeList in, TypeList, int threads) {
                for (size_t i = kQ; i < in.size(); ++i) {
                  if (in[i].dtype == DType::f32) continue;
                  fail(ErrorCode::kUnsupported,
                       "segment_attention: {} values on the CPU, wanted f32", name(in[i].dtype));
                }
                return KernelInfo{fmt::format("segment_attention.{}", name(isa)),
                                  threads * scratch_bytes(in[0].shape[3])};
              },
          .bind =
              [isa](const LaunchArgs& args) {
                const auto bound = std::make_shared<SegmentAttention>(args, isa);
                return [bound](const Team& team) { bound->run(team); };
              }};
}

}  // namespace

void add_segment_attention_kernels(KernelTable& table, Isa cap) {
  table.add(ops::kSegmentAttention.kind, segment_attention_kernel(cap));
  add_reference_kernel(table, ops::kBuffers);
}

}  // namespace braid::cpu
