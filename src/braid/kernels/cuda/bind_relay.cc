// Joins the layers of a decode step of one token, and the head, in a single launch: norm_linear,
// rope_append, attention and linear, or with divided layers all_reduce_add_rms_norm and linear, if
// each op takes the output of the op before. A step with a single micro-batch never moves its
// operands, so their addresses are read once.
#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/bind_gemm.h"
#include "braid/kernels/cuda/register.h"
#include "braid/kernels/cuda/relay/device/relay_launch.h"
#include "braid/ops/attention.h"
#include "braid/ops/fused_comm.h"
#include "braid/ops/linear.h"
#include "braid/ops/rope_append.h"

namespace braid::cuda {
namespace {

RelayDevice relay_device(const DeviceInfo& device) {
  return {.compute_capability = device.compute_capability,
          .num_sms = device.num_sms,
          .smem_per_cta = device.shared_memory_per_cta};
}

bool is_aligned(const TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0;
}

// A token's row.
bool is_row(const TensorView& view, DType dtype = DType::bf16) {
  return view.dtype == dtype && view.shape.rank() == 2 && view.shape[0] == 1 && is_aligned(view);
}

class RelayBuilder {
 public:
  // `comm` for ranks with divided layers, otherwise null.
  RelayBuilder(const DeviceInfo& device, DeviceComm* comm)
      : device_(relay_device(device)), comm_(comm) {}

  // Whether the relay goes on with this launch; it is whole behind a linear or an attention.
  bool add(const LaunchArgs& args) {
    const OpDef* def = args.call.op->def;
    if (!args.whole_batch) return false;
    if (def == &ops::kNormLinear || def == &ops::kLinear || def == &ops::kGatedLinear) {
      return add_linear(args);
    }
    if (def == &ops::kAllReduceAddRmsNorm) return keep_sum(args);
    if (def == &ops::kRopeAppend) return keep_rope(args);
    return def == &ops::kAttention && add_attention(args);
  }
  bool whole() const { return rope_ == nullptr && sum_ == nullptr; }

  std::optional<RelayConfig> config() const {
    return choose_relay(linear_shapes_, attention_shapes_, device_);
  }
  size_t steps() const { return steps_.size(); }
  // Of the first `steps`.
  std::shared_ptr<Relay> build(size_t steps, const RelayConfig& config,
                               const LaunchArgs& first) const {
    return std::make_shared<Relay>(
        std::vector<RelayStep>(steps_.begin(), steps_.begin() + static_cast<int64_t>(steps)),
        caches_, tables_, config, first.live(BatchAxis::token), first.device.id, comm_);
  }

 private:
  bool add_linear(const LaunchArgs& args) {
    const LinearOperands op(args.call);
    RelayLinear s{.k = static_cast<int32_t>(op.x().cols()),
                  .gated = op.gated(),
                  .gelu = op.activation() == ops::Activation::gelu_tanh,
                  .normed = op.normed() || sum_ != nullptr,
                  .f32 = op.weights() == 1 && op.y(0).dtype == DType::f32,
                  .summed = sum_ != nullptr};
    if (rope_ != nullptr || op.weights() > kRelayWeights || op.x().shape[0] != 1) return false;
    if (!take_input(args, op, s)) return false;
    for (size_t i = 0; i < op.weights(); ++i) {
      const TensorView &w = op.weight(i), &y = op.y(i);
      const TensorView bias = op.bias(i);
      if (!relay_takes(w.dtype) || !w.contiguous() || !is_aligned(w) ||
          !is_row(y, s.f32 ? DType::f32 : DType::bf16)) {
        return false;
      }
      if (bias.data != nullptr && !is_float(bias.dtype)) return false;
      s.w[i] = reinterpret_cast<const uint8_t*>(w.data);
      s.dtype[i] = w.dtype;
      if (is_quantized(w.dtype) != s.tiled()) return false;
      s.n[i] = static_cast<int32_t>(w.shape[0]);
      s.y[i] = y.data;
      if (s.n[i] % 2 != 0) return false;
      if (!s.gated || i == 0) s.units += s.n[i];
    }
    RelayLinearShape shape{
        .k = s.k, .units = s.units, .gated = s.gated, .normed = s.normed, .summed = s.summed};
    std::ranges::copy(s.dtype, shape.weights.begin());
    if (!s.f32 && !relay_takes(shape, device_)) return false;
    if (s.normed) s.norm_w = as_f32(args, (sum_ != nullptr ? sum_ : &args)->call.in[2]);
    for (size_t i = 0; i < op.weights(); ++i) s.bias[i] = as_f32(args, op.bias(i));
    if (s.normed) residual_ = reinterpret_cast<const std::byte*>(s.sum != nullptr ? s.sum : s.a);
    sum_ = nullptr;
    made_.clear();
    if (s.f32) return add_long(s, shape);
    for (size_t i = 0; i < (s.gated ? 1 : op.weights()); ++i) made_.push_back(op.y(i).data);
    add_step(s, shape);
    return true;
  }

  void add_step(const RelayLinear& s, const RelayLinearShape& shape) {
    linear_shapes_.push_back(shape);
    steps_.emplace_back().linear = s;
  }

  // A linear with perhaps many outputs, which nobody takes from here: a step for some at a time.
  bool add_long(RelayLinear s, RelayLinearShape shape) {
    // If the outputs share the sum's memory, nobody reads the sum: CTAs that have finished the step
    // do not wait for the CTA that writes the sum.
    const auto* y = static_cast<const float*>(s.y[0]);
    const bool meet = s.sum != nullptr && s.sum < y + s.units && y < s.sum + s.k;
    if (meet) s.sum = nullptr;
    for (const int32_t rows : relay_parts(s.units)) {
      s.n[0] = s.units = rows;
      shape.units = rows;
      add_step(s, shape);
      s.w[0] += rows * bytes_of(s.dtype[0], s.k);
      s.y[0] = static_cast<float*>(s.y[0]) + rows;
      if (s.bias[0] != nullptr) s.bias[0] += rows;
      s.again = true;
      s.a = nullptr, s.sum = nullptr, s.x = nullptr;
      s.summed = shape.summed = false;
    }
    return true;
  }

  // A small weight in the kernel's form, by pairs; null without a weight.
  const float* as_f32(const LaunchArgs& args, const TensorView& row) {
    const bool as_it_is = row.dtype == DType::f32 && is_aligned(row);
    if (row.data == nullptr || as_it_is) return row.as<const float>();
    tables_.push_back(row_as(args, row, DType::f32));
    return reinterpret_cast<const float*>(tables_.back()->data());
  }

  bool take_input(const LaunchArgs& args, const LinearOperands& op, RelayLinear& s) const {
    if (sum_ == nullptr) return op.normed() ? take_norm(args, s) : is_made(op.x(), 0, 1);
    const OpCall& sum = sum_->call;
    if (op.normed() || op.x().data != sum.out[1].data) return false;
    s.eps = sum.attrs<ops::ReduceNormAttrs>().eps;
    s.sum = sum.out[0].as<float>();
    s.x = sum.out[1].data;
    return true;
  }

  // The first norm reads a row in memory; each later norm adds the previous step's output to the
  // previous norm's sum.
  bool take_norm(const LaunchArgs& args, RelayLinear& s) const {
    const TensorView &a = args.call.in[0], &b = args.call.in[1], &w = args.call.in[2];
    if (a.dtype != DType::f32 || !is_aligned(a) || !is_float(w.dtype)) return false;
    s.eps = args.call.attrs<ops::NormLinearAttrs>().norm.eps;
    if (steps_.empty()) {
      s.a = a.as<const float>();
      return b.data == nullptr;
    }
    if (b.data == nullptr || a.data != residual_ || !is_made(b, 0, 1)) return false;
    s.sum = args.call.out[0].as<float>();
    return true;
  }

  // Whether the row is output `i` of `n` from the step before.
  bool is_made(const TensorView& row, size_t i, size_t n) const {
    return is_row(row) && made_.size() == n && row.data == made_[i];
  }

  // Only where all ranks do the same.
  bool keep_sum(const LaunchArgs& args) {
    const OpCall& call = args.call;
    if (!whole() || comm_ == nullptr || comm_->limits().across_machines || !args.ranks_alike ||
        !is_made(call.in[0], 0, 1) || steps_.back().attends || call.in[1].data != residual_ ||
        !is_float(call.in[2].dtype) || !is_row(call.out[1])) {
      return false;
    }
    sum_ = &args;
    return true;
  }

  bool keep_rope(const LaunchArgs& args) {
    const OpCall& call = args.call;
    if (!whole() || !is_row(call.out[0])) return false;
    for (size_t i : {6u, 7u}) {
      if (call.in[i].dtype != DType::bf16 || !is_aligned(call.in[i])) return false;
    }
    for (size_t i = 0; i < 3; ++i) {
      if (!is_made(call.in[i], i, 3)) return false;
    }
    for (size_t i : {8u, 9u}) {
      const TensorView& norm = call.in[i];
      if (norm.data != nullptr && !is_float(norm.dtype)) return false;
    }
    rope_ = &args;
    return true;
  }

  bool add_attention(const LaunchArgs& args) {
    enum Input : size_t { kQ, kCacheK, kCacheV, kQStart, kKvLen, kPageTable };
    const OpCall& call = args.call;
    const auto& a = call.attrs<ops::AttentionAttrs>();
    if (rope_ == nullptr) return false;
    const OpCall& rope = rope_->call;
    const auto& turns = rope.attrs<ops::RopeAppendAttrs>();
    const TensorView &k = call.in[kCacheK], &v = call.in[kCacheV], &pages = call.in[kPageTable];
    if (call.in[kQ].data != rope.out[0].data || k.data != rope.in[6].data ||
        v.data != rope.in[7].data || pages.shape[0] != 1 || !is_row(call.out[0])) {
      return false;
    }
    if (a.head_offset != 0 || a.softcap > 0 || turns.rope.head_dim != a.head_dim ||
        call.in[kQ].cols() != k.shape[2] * a.group * a.head_dim) {
      return false;
    }
    const RelayAttentionShape shape{.head_dim = static_cast<int>(a.head_dim),
                                    .group = static_cast<int>(a.group),
                                    .kv_heads = k.shape[2],
                                    .page_size = k.shape[1]};
    if (!relay_takes(shape, device_)) return false;
    if (!attention_shapes_.empty() && !(shape == attention_shapes_[0])) return false;
    tables_.push_back(turns_table(*rope_, turns.rope, rope.in[4]));
    const uint64_t* table = reinterpret_cast<const uint64_t*>(tables_.back()->data());
    RelayStep& step = steps_.emplace_back();
    step.attends = true;
    step.attention = {.position = rope.in[3].as<const int32_t>(),
                      .slot = rope.in[5].as<const int32_t>(),
                      .kv_len = call.in[kKvLen].as<const int32_t>(),
                      .page_table = pages.as<const int32_t>(),
                      .turns = table,
                      .q_norm = as_f32(*rope_, rope.in[8]),
                      .k_norm = as_f32(*rope_, rope.in[9]),
                      .cache_k = k.data,
                      .cache_v = v.data,
                      .q = rope.out[0].data,
                      .out = call.out[0].data,
                      .kv_heads = static_cast<int32_t>(k.shape[2]),
                      .group = shape.group,
                      .pairs = static_cast<int32_t>(turns.rope.rotary_dim / 2),
                      .page_size = static_cast<int32_t>(k.shape[1]),
                      .num_slots = static_cast<int32_t>(k.shape[0] * k.shape[1]),
                      .window = static_cast<int32_t>(a.window),
                      .factor = turns.rope.attention_factor,
                      .scale = a.scale,
                      .eps = turns.eps,
                      .interleaved = turns.rope.pairing == ops::RopePairing::interleaved};
    caches_.push_back({k.data, v.data, k.shape[0] * k.shape[1], k.shape[2]});
    attention_shapes_.push_back(shape);
    made_ = {call.out[0].data};
    rope_ = nullptr;
    return true;
  }

  const RelayDevice device_;
  DeviceComm* const comm_;
  std::vector<RelayStep> steps_;
  std::vector<Relay::Cache> caches_;
  std::vector<std::shared_ptr<DeviceMemory>> tables_;
  std::vector<RelayLinearShape> linear_shapes_;
  std::vector<RelayAttentionShape> attention_shapes_;
  std::vector<const std::byte*> made_;   // outputs of the newest step
  const std::byte* residual_ = nullptr;  // the newest norm's sum
  const LaunchArgs* rope_ = nullptr;     // whose attention is to come
  const LaunchArgs* sum_ = nullptr;      // whose linear is to come
};

JoinedLaunches join_relay(std::span<const LaunchArgs> launches, DeviceComm* comm) {
  RelayBuilder builder(launches[0].device, comm);
  // Left outside: a rope without a following attention, a sum without its linear, and steps without
  // room in the launch.
  size_t count = 0, steps = 0;
  std::optional<RelayConfig> config;
  for (size_t n = 0; n < launches.size() && builder.add(launches[n]);) {
    ++n;
    if (!builder.whole()) continue;
    const std::optional<RelayConfig> longer = builder.config();
    if (config && (!longer || longer->ctas < config->ctas)) break;
    if (longer) config = longer, count = n, steps = builder.steps();
  }
  if (!config || !Relay::fits(*config, launches[0].device)) return {};
  return {count, [relay = builder.build(steps, *config, launches[0])](
                     const LaunchContext& context) { relay->launch(context); }};
}

}  // namespace

void add_relays(KernelTable& table, const StreamComms& comms) {
  table.set_join([comms](std::span<const LaunchArgs> launches) {
    return join_relay(launches, comms[launches[0].stream]);
  });
}

}  // namespace braid::cuda
