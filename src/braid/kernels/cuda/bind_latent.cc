// Binds latent_append and latent_attention. The absorbed form is a product per head, attention of
// all heads over a single KV head of latents, and again a product per head. A prompt alone takes
// the plain form (bind_latent_plain.h).
#include <map>

#include "braid/backend/cuda/memory.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/bind_latent_plain.h"
#include "braid/kernels/cuda/experts/device/expert_product.h"
#include "braid/kernels/cuda/latent/device/latent.h"
#include "braid/kernels/cuda/linear/device/dequantize.h"

namespace braid::cuda {
namespace {

enum Input : size_t { kQ, kPositions, kKb, kVb, kCache, kStart, kLength, kPages };

LatentDevice latent_device(const DeviceInfo& device) {
  return {.num_sms = device.num_sms, .shared_bytes = device.shared_memory_per_cta};
}

BoundKernel bind_append(const LaunchArgs& args) {
  const OpCall& call = args.call;
  const auto& attrs = call.attrs<ops::LatentAppendAttrs>();
  const auto turns = turns_table(args, attrs.rope, {});
  return [&call, &attrs, turns, rows = args.live(call.axis)](const LaunchContext& context) {
    latent_append({.kv = call.in[0],
                   .norm = call.in[1],
                   .positions = call.in[2].as<const int32_t>(),
                   .slots = call.in[3].as<const int32_t>(),
                   .cache = call.in[4],
                   .turns = reinterpret_cast<const uint64_t*>(turns->data()),
                   .attrs = attrs,
                   .rows = rows},
                  context);
  };
}

// k_b in the absorbed form's layout, bf16 [H, R, Dn], from weights [H, Dn, R]: made once for all
// launches that read the result.
class TransposedWeights {
 public:
  std::shared_ptr<DeviceMemory> get(const LaunchArgs& args, const TensorView& w) {
    auto& held = held_[{args.device.id, w.data}];
    if (held) return held;
    const int64_t H = w.shape[0], rows = w.shape[1], cols = w.shape[2];
    const int64_t bytes = bytes_of(DType::bf16, w.shape.elems());
    CudaMemory plain(args.device.id, bytes);
    held = std::make_shared<CudaMemory>(args.device.id, bytes);
    dequantize({.w = w.data,
                .dtype = w.dtype,
                .row_bytes = w.row_bytes,
                .out = plain.data(),
                .out_stride = cols,
                .n = H * rows,
                .k = cols},
               {});
    transpose_heads(plain.data(), held->data(), static_cast<int>(H), static_cast<int>(rows),
                    static_cast<int>(cols), nullptr);
    check_cuda(cudaStreamSynchronize(nullptr), "a weight");
    return held;
  }

 private:
  std::map<std::pair<int, const std::byte*>, std::shared_ptr<DeviceMemory>> held_;
};

// Sizes of a call in the absorbed form, and places of its scratch.
struct Latent : ops::LatentSizes {
  int64_t T;
  LatentShape shape;

  template <class Operand>
  Latent(const ops::LatentAttentionAttrs& a, std::span<const Operand> in)
      : LatentSizes(a, in),
        T(in[kQ].shape[0]),
        shape{.tokens = T, .sequences = in[kPages].shape[0], .heads = H, .latent = R, .rope = Dr} {}

  // Absorbed queries, replaced by their results, then the shares' partial results.
  int64_t partial() const { return round_up(bytes_of(DType::bf16, T * H * R), 256); }
};

KernelInfo latent_info(const Op& op, TypeList in, TypeList, const DeviceInfo& device) {
  if (in[kQ].dtype != DType::bf16) {
    fail(ErrorCode::kUnsupported, "latent_attention: q is {}, CUDA kernels take bf16",
         name(in[kQ].dtype));
  }
  const auto& attrs = op.attrs.as<ops::LatentAttentionAttrs>();
  if (LatentPlain::takes(attrs, in)) {
    return {"latent_attention.plain", LatentPlain::workspace_bytes(attrs, in)};
  }
  const Latent n(attrs, in);
  const LatentConfig config = choose_latent(n.shape, latent_device(device));
  return {"latent_attention.cuda", n.partial() + latent_workspace_bytes(n.shape, config)};
}

class BoundLatent {
 public:
  BoundLatent(const LaunchArgs& args, TransposedWeights& transposed)
      : call_(args.call),
        a_(call_.attrs<ops::LatentAttentionAttrs>()),
        n_(a_, call_.in),
        config_(choose_latent(n_.shape, latent_device(args.device))),
        workspace_(args.workspace),
        tokens_(args.live(call_.axis)),
        sequences_(args.live(BatchAxis::sequence)),
        turns_(turns_table(args, a_.rope, {})) {
    if (!a_.transposed) k_b_ = transposed.get(args, call_.in[kKb]);
    prepare_latent_attention(latent_device(args.device));
    prepare_expert_products();
    const ExpertDevice device = {.compute_capability = args.device.compute_capability,
                                 .num_sms = args.device.num_sms};
    absorb_config_ = choose_experts_form(expert_shape(absorb()), device);
    expand_config_ = choose_experts_form(expert_shape(expand()), device);
  }

  void operator()(LaunchContext context) const {
    expert_product(absorb(), absorb_config_, context);
    context.pdl = true;
    latent_attention(params(), config_, context);
    expert_product(expand(), expand_config_, context);
  }

 private:
  // A product of each head with all tokens.
  ExpertProduct product(int64_t columns, int64_t k) const {
    return {.live = tokens_,
            .experts = static_cast<int>(n_.H),
            .n = static_cast<int>(columns),
            .k = static_cast<int>(k),
            .rows = n_.T * n_.H,
            .rows_of_one = n_.T};
  }

  ExpertProduct absorb() const {
    ExpertProduct p = product(n_.R, n_.Dn);
    const TensorView& w = call_.in[kKb];
    p.x = call_.in[kQ].data;
    p.x_stride = call_.in[kQ].cols();
    p.x_step = n_.Dn + n_.Dr;
    p.y = workspace_;
    p.y_stride = n_.H * n_.R;
    p.y_step = n_.R;
    p.w[0] = {.data = w.data, .dtype = w.dtype, .row_bytes = w.row_bytes};
    if (k_b_) {
      p.w[0] = {
          .data = k_b_->data(), .dtype = DType::bf16, .row_bytes = bytes_of(DType::bf16, n_.Dn)};
    }
    return p;
  }

  ExpertProduct expand() const {
    ExpertProduct p = product(n_.Dv, n_.R);
    const TensorView& w = call_.in[kVb];
    p.x = workspace_;
    p.x_stride = n_.H * n_.R;
    p.x_step = n_.R;
    p.y = call_.out[0].data;
    p.y_stride = n_.H * n_.Dv;
    p.y_step = n_.Dv;
    p.w[0] = {.data = w.data, .dtype = w.dtype, .row_bytes = w.row_bytes};
    return p;
  }

  LatentParams params() const {
    return {.q = call_.in[kQ].data,
            .absorbed = workspace_,
            .positions = call_.in[kPositions].as<const int32_t>(),
            .cache = call_.in[kCache].data,
            .q_start = call_.in[kStart].as<const int32_t>(),
            .kv_len = call_.in[kLength].as<const int32_t>(),
            .page_table = call_.in[kPages].as<const int32_t>(),
            .turns = reinterpret_cast<const uint64_t*>(turns_->data()),
            .sequences = sequences_,
            .out = workspace_,
            .partial = reinterpret_cast<float*>(workspace_ + n_.partial()),
            .cache_dtype = call_.in[kCache].dtype,
            .heads = static_cast<int>(n_.H),
            .nope = static_cast<int>(n_.Dn),
            .rope = static_cast<int>(n_.Dr),
            .latent = static_cast<int>(n_.R),
            .page_size = static_cast<int>(call_.in[kCache].shape[1]),
            .table_stride = static_cast<int>(call_.in[kPages].cols()),
            .tokens = static_cast<int>(n_.T),
            .max_sequences = static_cast<int>(n_.shape.sequences),
            .first_token = static_cast<int>(call_.part->begin.token),
            .scale = a_.scale,
            .rope_factor = a_.rope.attention_factor,
            .interleaved = a_.rope.pairing == ops::RopePairing::interleaved};
  }

  const OpCall& call_;
  const ops::LatentAttentionAttrs& a_;
  const Latent n_;
  const LatentConfig config_;
  std::byte* workspace_;
  const int64_t *tokens_, *sequences_;
  std::shared_ptr<DeviceMemory> turns_;
  std::shared_ptr<DeviceMemory> k_b_;  // null: the weight itself lies so
  ExpertConfig absorb_config_, expand_config_;
};

}  // namespace

void add_latent_kernels(KernelTable& table) {
  const auto transposed = std::make_shared<TransposedWeights>();
  const auto plain = std::make_shared<LatentPlain>();
  table.add(ops::kLatentAppend.kind, simple_kernel(ops::kLatentAppend.kind, bind_append));
  table.add(
      ops::kLatentAttention.kind,
      {.info = latent_info, .bind = [transposed, plain](const LaunchArgs& args) -> BoundKernel {
         std::vector<ValueType> types;
         for (const TensorView& v : args.call.in) types.push_back({v.dtype, v.shape});
         if (LatentPlain::takes(args.call.attrs<ops::LatentAttentionAttrs>(), types)) {
           return plain->bind(args);
         }
         auto bound = std::make_shared<BoundLatent>(args, *transposed);
         return [bound](const LaunchContext& context) { (*bound)(context); };
       }});
}

}  // namespace braid::cuda
