// Binds dense attention to the kernel of segment attention.
#include <algorithm>

#include "braid/kernels/cpu/attention/segments.h"
#include "braid/kernels/cpu/bind.h"
#include "braid/ops/dense_attention.h"

namespace braid::cpu {
namespace {

// Queries of a block: as many as keep its state in a core's own cache, since the keys are converted
// once for each block.
int64_t block_rows(int64_t head_dim) {
  return std::clamp<int64_t>(16384 / padded_head(head_dim), 32, 128);
}

int64_t scratch_bytes(int64_t head_dim) {
  const int64_t floats = segment_scratch_floats(head_dim, block_rows(head_dim));
  return round_up(floats * static_cast<int64_t>(sizeof(float)), 64);
}

// A call's work: (sequence, block of queries, head), a thread each.
class DenseAttention {
 public:
  DenseAttention(const LaunchArgs& args, Isa isa)
      : call_(args.call),
        a_(args.call.attrs<ops::DenseAttentionAttrs>()),
        heads_(call_.in[0].cols() / a_.head_dim),
        group_(heads_ / (call_.in[a_.first_key()].cols() / a_.head_dim)),
        workspace_(args.workspace),
        block_(pick_isa(isa, BRAID_EACH_ISA(segment_attention_block))),
        keys_(args.threads) {
    for (auto& keys : keys_) keys.resize(a_.kv_parts);
    queries_ = length(call_.in.first(a_.first_key()));
    key_rows_ = length(call_.in.subspan(a_.first_key(), a_.kv_parts));
  }

  void run(const Team& team) {
    const int64_t step = block_rows(a_.head_dim);
    int64_t unit = 0;
    for (int64_t b = 0; b < a_.batch; ++b) {
      int64_t position = 0;
      for (size_t part = 0; part < a_.first_key(); ++part) {
        const int64_t rows = call_.in[part].shape[0] / a_.batch;
        for (int64_t row = 0; row < rows; row += step) {
          for (int64_t h = 0; h < heads_; ++h) {
            if (unit++ % team.count != team.index) continue;
            run_block({b, part, row, std::min(step, rows - row), position + row, h}, team.index);
          }
        }
        position += rows;
      }
    }
  }

 private:
  struct Block {
    int64_t b;
    size_t part;
    int64_t row;  // row in the part, within its sequence
    int64_t rows;
    int64_t position;  // of the first row in the sequence
    int64_t head;
  };

  int64_t length(std::span<const TensorView> parts) const {
    int64_t rows = 0;
    for (const TensorView& part : parts) rows += part.shape[0] / a_.batch;
    return rows;
  }

  // At a row of a sequence and a head.
  float* at(const TensorView& view, int64_t b, int64_t row, int64_t head) const {
    const int64_t rows = view.shape[0] / a_.batch;
    return view.row_as<float>((b * rows) + row) + (head * a_.head_dim);
  }

  std::span<const SegmentKeys> keys_of(const Block& block, int thread) {
    auto& keys = keys_[thread];
    const TensorView &bias = call_.in[a_.bias()], &key_len = call_.in[a_.key_len()];
    const int64_t live = key_len.data ? key_len.as<const int32_t>()[block.b] : key_rows_;
    int64_t position = 0;
    for (size_t i = 0; i < keys.size(); ++i) {
      const TensorView& k = call_.in[a_.first_key() + i];
      const int64_t rows = k.shape[0] / a_.batch;
      keys[i] = {.k = at(k, block.b, 0, block.head / group_),
                 .v = at(call_.in[a_.first_value() + i], block.b, 0, block.head / group_),
                 .stride = k.cols(),
                 .rows = std::clamp<int64_t>(live - position, 0, rows),
                 .position = position};
      if (bias.data != nullptr) {
        keys[i].bias = bias.as<const float>() +
                       (((block.head * queries_) + block.position) * key_rows_) + position;
        keys[i].bias_stride = key_rows_;
      }
      position += rows;
    }
    return keys;
  }

  void run_block(const Block& block, int thread) {
    const TensorView &q = call_.in[block.part], &out = call_.out[block.part];
    block_({.q = at(q, block.b, block.row, block.head),
            .q_stride = q.cols(),
            .rows = block.rows,
            .position = block.position,
            .head_dim = a_.head_dim,
            .scale = a_.scale,
            .window_right = a_.causal ? 0 : -1,
            .keys = keys_of(block, thread),
            .out = at(out, block.b, block.row, block.head),
            .out_stride = out.cols(),
            .room = block_rows(a_.head_dim),
            .scratch = reinterpret_cast<float*>(workspace_ + thread * scratch_bytes(a_.head_dim))});
  }

  const OpCall& call_;
  const ops::DenseAttentionAttrs& a_;
  const int64_t heads_;
  const int64_t group_;  // query heads of a KV head
  std::byte* const workspace_;
  void (*const block_)(const SegmentBlock&);
  std::vector<std::vector<SegmentKeys>> keys_;  // [threads, parts of the keys]
  int64_t queries_ = 0;
  int64_t key_rows_ = 0;
};

}  // namespace

Kernel dense_attention_kernel(Isa isa) {
  return {.info =
              [isa](const Op& op, TypeList in, TypeList, int threads) {
                if (in[0].dtype != DType::f32) {
                  fail(ErrorCode::kUnsupported, "dense_attention: {} values on the CPU, wanted f32",
                       name(in[0].dtype));
                }
                const int64_t D = op.attrs.as<ops::DenseAttentionAttrs>().head_dim;
                return KernelInfo{fmt::format("dense_attention.{}", name(isa)),
                                  threads * scratch_bytes(D)};
              },
          .bind =
              [isa](const LaunchArgs& args) {
                const auto bound = std::make_shared<DenseAttention>(args, isa);
                return [bound](const Team& team) { bound->run(team); };
              }};
}

}  // namespace braid::cpu
