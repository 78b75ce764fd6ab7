#include "braid/kernels/cuda/bind_latent_plain.h"

#include "braid/backend/cuda/memory.h"
#include "braid/kernels/cuda/attention/device/launch.h"
#include "braid/kernels/cuda/decode/device/query_spans.h"
#include "braid/kernels/cuda/experts/device/expert_product.h"
#include "braid/kernels/cuda/latent/device/plain.h"
#include "braid/kernels/cuda/latent/latent_config.h"
#include "braid/kernels/cuda/linear/device/dequantize.h"

namespace braid::cuda {
namespace {

enum Input : size_t { kQ, kPositions, kKb, kVb, kCache, kStart, kLength, kPages };

template <class Operand>
LatentPlainShape shape_of(const ops::LatentSizes& n, std::span<const Operand> in) {
  return {.tokens = in[kQ].shape[0],
          .sequences = in[kPages].shape[0],
          .keys = in[kPages].shape[1] * in[kCache].shape[1],
          .heads = n.H,
          .nope = n.Dn,
          .rope = n.Dr,
          .value = n.Dv,
          .latent = n.R};
}

// The call of segment attention; params() points into the object.
struct Segments {
  AttentionDesc desc;
  QTensor q;
  KvTensor kv;
  AttentionParams params() const { return {{&q, 1}, {&kv, 1}}; }
};

class BoundPlain {
 public:
  BoundPlain(const LaunchArgs& args, std::shared_ptr<DeviceMemory> weight, std::byte* counters)
      : call_(args.call),
        a_(call_.attrs<ops::LatentAttentionAttrs>()),
        n_(a_, call_.in),
        shape_(shape_of(n_, call_.in)),
        at_(shape_),
        workspace_(args.workspace),
        counters_(counters),
        tokens_(args.live(call_.axis)),
        sequences_(args.live(BatchAxis::sequence)),
        num_sms_(args.device.num_sms),
        turns_(turns_table(args, a_.rope, {})),
        weight_(std::move(weight)) {
    prepare_expert_products();
    product_config_ = choose_experts_form(
        expert_shape(product()),
        {.compute_capability = args.device.compute_capability, .num_sms = num_sms_});
    const Segments made = segments();
    attention_config_ = choose(made.desc, made.params(), attention_device(args.device));
  }

  void operator()(LaunchContext context) const {
    auto* const spans = at<int32_t>(at_.spans);
    query_spans(call_.in[kStart].as<const int32_t>(), call_.in[kLength].as<const int32_t>(),
                sequences_, 1, spans, nullptr, context);
    context.pdl = true;
    latent_rows({.cache = call_.in[kCache].data,
                 .page_table = call_.in[kPages].as<const int32_t>(),
                 .kv_len = call_.in[kLength].as<const int32_t>(),
                 .sequences = sequences_,
                 .out = workspace_,
                 .begin = at<int32_t>(at_.begin),
                 .cache_dtype = call_.in[kCache].dtype,
                 .page_size = static_cast<int>(call_.in[kCache].shape[1]),
                 .width = static_cast<int>(n_.R + n_.Dr),
                 .keys = static_cast<int>(shape_.keys)},
                context);
    turn_queries({.q = call_.in[kQ].data,
                  .positions = call_.in[kPositions].as<const int32_t>(),
                  .turns = reinterpret_cast<const uint64_t*>(turns_->data()),
                  .out = workspace_ + at_.queries,
                  .rows = tokens_,
                  .q_stride = call_.in[kQ].row_bytes / 2,
                  .tokens = static_cast<int>(shape_.tokens),
                  .heads = static_cast<int>(n_.H),
                  .nope = static_cast<int>(n_.Dn),
                  .rope = static_cast<int>(n_.Dr),
                  .factor = a_.rope.attention_factor,
                  .interleaved = a_.rope.pairing == ops::RopePairing::interleaved},
                 context);
    expert_product(product(), product_config_, context);
    const Segments made = segments();
    attention(made.desc, made.params(), attention_config_, counters_, context.stream, num_sms_);
  }

 private:
  template <class T>
  T* at(int64_t offset) const {
    return reinterpret_cast<T*>(workspace_ + offset);
  }
  int64_t head_width() const { return n_.Dn + n_.Dr + n_.Dv; }

  // Keys and values of all heads from the latents' rows: a single expert with the keys as rows.
  ExpertProduct product() const {
    ExpertProduct p{.x = workspace_,
                    .x_stride = n_.R + n_.Dr,
                    .y = workspace_ + at_.keys,
                    .y_stride = n_.H * head_width(),
                    .begin = at<int32_t>(at_.begin),
                    .experts = 1,
                    .n = static_cast<int>(n_.H * head_width()),
                    .k = static_cast<int>(n_.R + n_.Dr),
                    .rows = shape_.keys,
                    .rows_of_one = shape_.keys};
    p.w[0] = {.data = weight_->data(),
              .dtype = DType::bf16,
              .row_bytes = bytes_of(DType::bf16, n_.R + n_.Dr)};
    return p;
  }

  Segments segments() const {
    Segments made;
    AttentionDesc& d = made.desc;
    d.num_q_heads = d.num_kv_heads = static_cast<int>(n_.H);
    d.head_dim_qk = static_cast<int>(n_.Dn + n_.Dr);
    d.head_dim_v = static_cast<int>(n_.Dv);
    d.scale = a_.scale;
    d.window_right = 0;
    // Rows as the metadata count them: from the batch's first token.
    const int64_t first = call_.part->begin.token, D = n_.Dn + n_.Dr;
    const auto* spans = at<int32_t>(at_.spans);
    QTensor& q = made.q;
    q.q = workspace_ + at_.queries - first * n_.H * D * 2;
    q.o = call_.out[0].data - first * call_.out[0].row_bytes;
    q.q_stride = {0, n_.H * D, D};
    q.o_stride = {0, call_.out[0].row_bytes / 2, n_.Dv};
    q.starts = spans;
    q.offsets = spans + 2;
    q.rows = shape_.tokens + first;
    q.length = static_cast<int32_t>(shape_.tokens + first);
    q.kv_end = 1;
    KvTensor& kv = made.kv;
    kv.k = workspace_ + at_.keys;
    kv.v = workspace_ + at_.keys + D * 2;
    kv.k_stride = kv.v_stride = {0, n_.H * head_width(), head_width()};
    kv.lengths = spans + 3;
    kv.length = static_cast<int32_t>(shape_.keys);
    return made;
  }

  const OpCall& call_;
  const ops::LatentAttentionAttrs& a_;
  const ops::LatentSizes n_;
  const LatentPlainShape shape_;
  const LatentPlainScratch at_;
  std::byte* const workspace_;
  std::byte* const counters_;
  const int64_t *tokens_, *sequences_;
  const int num_sms_;
  std::shared_ptr<DeviceMemory> turns_, weight_;
  ExpertConfig product_config_;
  AttentionConfig attention_config_;
};

}  // namespace

bool LatentPlain::takes(const ops::LatentAttentionAttrs& attrs, TypeList in) {
  return takes_latent_plain(shape_of(ops::LatentSizes(attrs, in), in));
}

int64_t LatentPlain::workspace_bytes(const ops::LatentAttentionAttrs& attrs, TypeList in) {
  return LatentPlainScratch(shape_of(ops::LatentSizes(attrs, in), in)).total;
}

std::shared_ptr<DeviceMemory> LatentPlain::weight(const LaunchArgs& args, const ops::LatentSizes& n,
                                                  bool transposed) {
  const OpCall& call = args.call;
  auto& held = weights_[{args.device.id, call.in[kKb].data}];
  if (held) return held;
  const auto plain = [&](const TensorView& w) {
    auto memory =
        std::make_unique<CudaMemory>(args.device.id, bytes_of(DType::bf16, w.shape.elems()));
    dequantize({.w = w.data,
                .dtype = w.dtype,
                .row_bytes = w.row_bytes,
                .out = memory->data(),
                .out_stride = w.cols(),
                .n = w.shape.elems() / w.cols(),
                .k = w.cols()},
               {});
    return memory;
  };
  const auto k_b = plain(call.in[kKb]), v_b = plain(call.in[kVb]);
  held = std::make_shared<CudaMemory>(
      args.device.id, bytes_of(DType::bf16, n.H * (n.Dn + n.Dr + n.Dv) * (n.R + n.Dr)));
  plain_weight({.k_b = k_b->data(),
                .v_b = v_b->data(),
                .out = held->data(),
                .transposed = transposed,
                .heads = static_cast<int>(n.H),
                .nope = static_cast<int>(n.Dn),
                .rope = static_cast<int>(n.Dr),
                .value = static_cast<int>(n.Dv),
                .latent = static_cast<int>(n.R)},
               nullptr);
  check_cuda(cudaStreamSynchronize(nullptr), "a weight");
  return held;
}

BoundKernel LatentPlain::bind(const LaunchArgs& args) {
  const auto& attrs = args.call.attrs<ops::LatentAttentionAttrs>();
  const auto bound = std::make_shared<BoundPlain>(
      args, weight(args, ops::LatentSizes(attrs, args.call.in), attrs.transposed),
      counters_.get(args, kAttentionWorkspaceBytes));
  return [bound](const LaunchContext& context) { (*bound)(context); };
}

}  // namespace braid::cuda
