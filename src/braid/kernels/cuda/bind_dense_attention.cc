// Binds attention without a cache: to segment attention, to products of matrices, or to the plain
// kernel.
#include <array>

#include "braid/base/math.h"
#include "braid/kernels/cuda/attention/device/launch.h"
#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/bind_gemm.h"
#include "braid/kernels/cuda/dense_attention/device/plain.h"

namespace braid::cuda {
namespace {

using ops::DenseAttentionAttrs;

DenseDesc desc_of(const DenseAttentionAttrs& attrs, TypeList in) {
  DenseDesc desc = dense_desc(attrs, in);
  desc.gemm = gemm_available();
  return desc;
}

DenseDesc desc_of(const OpCall& call) {
  std::vector<ValueType> in;
  for (const TensorView& view : call.in) in.push_back({view.dtype, view.shape});
  return desc_of(call.attrs<DenseAttentionAttrs>(), in);
}

// The same call as segment attention; its spans point into this object.
struct SegmentCall {
  AttentionDesc desc;
  std::vector<QTensor> q;
  std::vector<KvTensor> kv;
  AttentionParams params() const { return {q, kv}; }
};

// Of a part [B * L, heads * D].
Strides strides_of_part(const TensorView& part, const DenseAttentionAttrs& a) {
  return {.batch = part.shape[0] / a.batch * part.cols(), .token = part.cols(), .head = a.head_dim};
}

SegmentCall make_segments(const OpCall& call) {
  const auto& a = call.attrs<DenseAttentionAttrs>();
  const TensorView& first_k = call.in[a.first_key()];
  SegmentCall out;
  AttentionDesc& d = out.desc;
  d.dtype = call.in[0].dtype;
  d.batch = static_cast<int>(a.batch);
  d.num_q_heads = static_cast<int>(call.in[0].cols() / a.head_dim);
  d.num_kv_heads = static_cast<int>(first_k.cols() / a.head_dim);
  d.head_dim_qk = d.head_dim_v = static_cast<int>(a.head_dim);
  d.scale = a.scale;
  d.window_right = a.causal ? 0 : kUnlimited;
  const auto rows = [&](const TensorView& part) {
    return static_cast<int32_t>(part.shape[0] / a.batch);
  };
  int32_t position = 0;
  for (size_t i = 0; i < a.first_key(); ++i) {
    QTensor q;
    q.q = call.in[i].data;
    q.o = call.out[i].data;
    q.q_stride = q.o_stride = strides_of_part(call.in[i], a);
    q.length = rows(call.in[i]);
    q.offset = position;
    q.kv_end = a.kv_parts;
    position += q.length;
    out.q.push_back(q);
  }
  position = 0;
  for (size_t i = 0; i < static_cast<size_t>(a.kv_parts); ++i) {
    const TensorView &k = call.in[a.first_key() + i], &v = call.in[a.first_value() + i];
    KvTensor kv;
    kv.k = k.data;
    kv.v = v.data;
    kv.k_stride = kv.v_stride = strides_of_part(k, a);
    kv.length = rows(k);
    kv.offset = position;
    position += kv.length;
    out.kv.push_back(kv);
  }
  return out;
}

BoundKernel bind_segments(const LaunchArgs& args, Scratch& scratch) {
  std::byte* counters = scratch.get(args, kAttentionWorkspaceBytes);
  const SegmentCall made = make_segments(args.call);
  const AttentionConfig config = choose(made.desc, made.params(), attention_device(args.device));
  return [&call = args.call, counters, config,
          num_sms = args.device.num_sms](const LaunchContext& context) {
    const SegmentCall made = make_segments(call);
    attention(made.desc, made.params(), config, counters, context.stream, num_sms);
  };
}

// Scores and weights for some queries at a time, in a single head.
class DenseRows {
 public:
  DenseRows(const LaunchArgs& args, const DenseDesc& desc, const DenseConfig& config,
            GemmStore& store)
      : call_(args.call),
        desc_(desc),
        rows_(config.rows),
        stride_(round_up(desc.keys, 8)),
        scratch_(desc, config),
        workspace_(args.workspace) {
    for (size_t i = 0; i < 2; ++i) {
      const int64_t rows = i == 0 ? rows_ : desc_.queries % rows_;
      if (rows == 0) continue;
      const TensorView &q = call_.in[0], &o = call_.out[0];
      scores_[i] = store.get({.m = rows,
                              .n = desc_.keys,
                              .k = desc_.head_dim,
                              .y_dtype = DType::f32,
                              .y_stride = stride_},
                             score_pointers(q.data, call_.in[1].data));
      sums_[i] = store.get({.m = rows, .n = desc_.head_dim, .k = stride_}, sum_pointers(o.data));
    }
  }

  void operator()(LaunchContext context) const {
    const float scale = call_.attrs<DenseAttentionAttrs>().scale;
    const int64_t width = bytes_of(DType::bf16, desc_.head_dim);
    for (int64_t b = 0; b < desc_.batch; ++b) {
      const std::byte* k = call_.in[1].data + b * desc_.keys * width;
      transpose({.x = call_.in[2].data + b * desc_.keys * width,
                 .y = workspace_,
                 .rows = desc_.keys,
                 .cols = desc_.head_dim,
                 .stride = stride_},
                context);
      context.pdl = true;
      for (int64_t row = 0; row < desc_.queries; row += rows_) {
        const int64_t n = std::min(rows_, desc_.queries - row);
        const size_t which = n == rows_ ? 0 : 1;
        const int64_t at = (b * desc_.queries + row) * width;
        scores_[which]->run(context, score_pointers(call_.in[0].data + at, k));
        softmax_rows({.scores = reinterpret_cast<const float*>(workspace_ + scratch_.scores),
                      .weights = workspace_ + scratch_.weights,
                      .rows = n,
                      .keys = desc_.keys,
                      .stride = stride_,
                      .scale = scale},
                     context);
        sums_[which]->run(context, sum_pointers(call_.out[0].data + at));
      }
    }
  }

 private:
  GemmPointers score_pointers(const std::byte* q, const std::byte* k) const {
    return {.x = q,
            .w = k,
            .y = workspace_ + scratch_.scores,
            .workspace = workspace_ + scratch_.library};
  }
  GemmPointers sum_pointers(std::byte* o) const {
    return {.x = workspace_ + scratch_.weights,
            .w = workspace_,
            .y = o,
            .workspace = workspace_ + scratch_.library};
  }

  const OpCall& call_;
  const DenseDesc desc_;
  const int64_t rows_;    // queries at a time
  const int64_t stride_;  // a query's keys
  const DenseScratch scratch_;
  std::byte* const workspace_;
  std::array<std::shared_ptr<Gemm>, 2> scores_, sums_;  // for whole tiles, for the last
};

BoundKernel bind_plain(const LaunchArgs& args) {
  load_plain_dense_attention(args.call.in[0].dtype,
                             args.call.attrs<DenseAttentionAttrs>().head_dim);
  return
      [&call = args.call](const LaunchContext& context) { plain_dense_attention(call, context); };
}

}  // namespace

void add_dense_attention_kernels(KernelTable& table) {
  const auto info = [](const Op& op, TypeList in, TypeList, const DeviceInfo&) -> KernelInfo {
    const DenseDesc desc = desc_of(op.attrs.as<DenseAttentionAttrs>(), in);
    const DenseConfig config = choose(desc);
    return {fmt::format("dense_attention.{}", to_string(config)), DenseScratch(desc, config).bytes};
  };
  const auto bind = [scratch = std::make_shared<Scratch>(),
                     store = std::make_shared<GemmStore>()](const LaunchArgs& args) -> BoundKernel {
    const DenseDesc desc = desc_of(args.call);
    const DenseConfig config = choose(desc);
    if (config.kernel == DenseKernel::segments) return bind_segments(args, *scratch);
    if (config.kernel == DenseKernel::plain) return bind_plain(args);
    const auto bound = std::make_shared<DenseRows>(args, desc, config, *store);
    return [bound](const LaunchContext& context) { (*bound)(context); };
  };
  table.add(ops::kDenseAttention.kind, {.info = info, .bind = bind});
}

}  // namespace braid::cuda
