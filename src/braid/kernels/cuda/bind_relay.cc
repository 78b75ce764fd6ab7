// Joins launches as planned (relay/relay_run.h): the layers of a decode step of one token, and the
// head. A step with a single micro-batch never moves its operands, so their addresses are read
// once.
#include <algorithm>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/bind_gemm.h"
#include "braid/kernels/cuda/register.h"
#include "braid/kernels/cuda/relay/device/relay_launch.h"
#include "braid/kernels/cuda/relay/relay_run.h"
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

[[noreturn]] void refuse(const LaunchArgs& args, std::string_view why) {
  fail(ErrorCode::kUnsupported, "a relay as planned: {} at '{}': {}", args.call.op->def->kind,
       args.call.op->scope, why);
}

bool is_aligned(const TensorView& view) {
  return reinterpret_cast<uintptr_t>(view.data) % 16 == 0;
}

// Kernels copy 16 bytes at a time.
void require_aligned(const LaunchArgs& args, const TensorView& view, std::string_view what) {
  if (!is_aligned(view) || !view.contiguous()) {
    refuse(args, fmt::format("{} at {}: wanted are contiguous rows at a multiple of 16 bytes", what,
                             static_cast<const void*>(view.data)));
  }
}

// Steps of a relay from the launches that relay_run() has planned.
class RelayBuilder {
 public:
  // `comm` for ranks with divided layers, otherwise null.
  RelayBuilder(const DeviceInfo& device, DeviceComm* comm)
      : device_(relay_device(device)), comm_(comm) {}

  void add(const LaunchArgs& args) {
    const OpDef* def = args.call.op->def;
    if (!args.whole_batch) refuse(args, "a part of the batch");
    if (def == &ops::kAllReduceAddRmsNorm) return keep_sum(args);
    if (def == &ops::kRopeAppend) {
      rope_ = &args;
    } else if (def == &ops::kAttention) {
      add_attention(args);
    } else {
      add_linear(args);
    }
  }

  // Fails unless the operands give the planned config.
  std::shared_ptr<Relay> build(const LaunchGroup& group, const LaunchArgs& first) const {
    const auto config = choose_relay(linear_shapes_, attention_shapes_, device_);
    const std::string kernel = config ? to_string(*config) : "none";
    if (kernel != group.kernel) {
      refuse(first,
             fmt::format("the plan has '{}', and these operands make '{}'", group.kernel, kernel));
    }
    if (!Relay::fits(*config, first.device)) {
      refuse(first, fmt::format("'{}' does not run on all of the GPU's SMs at once", kernel));
    }
    return std::make_shared<Relay>(steps_, caches_, tables_, *config, first.live(BatchAxis::token),
                                   first.device.id, comm_);
  }

 private:
  void add_linear(const LaunchArgs& args) {
    const LinearOperands op(args.call);
    RelayLinear s{.k = static_cast<int32_t>(op.x().cols()),
                  .gated = op.gated(),
                  .gelu = op.activation() == ops::Activation::gelu_tanh,
                  .normed = op.normed() || sum_ != nullptr,
                  .f32 = op.weights() == 1 && op.y(0).dtype == DType::f32,
                  .summed = sum_ != nullptr};
    require_aligned(args, op.x(), "its input");
    take_input(args, op, s);
    for (size_t i = 0; i < op.weights(); ++i) {
      const TensorView &w = op.weight(i), &y = op.y(i);
      require_aligned(args, w, "a weight");
      require_aligned(args, y, "an output");
      s.w[i] = reinterpret_cast<const uint8_t*>(w.data);
      s.dtype[i] = w.dtype;
      s.n[i] = static_cast<int32_t>(w.shape[0]);
      s.y[i] = y.data;
      if (!s.gated || i == 0) s.units += s.n[i];
    }
    RelayLinearShape shape{
        .k = s.k, .units = s.units, .gated = s.gated, .normed = s.normed, .summed = s.summed};
    std::ranges::copy(s.dtype, shape.weights.begin());
    if (s.normed) s.norm_w = as_f32(args, (sum_ != nullptr ? sum_ : &args)->call.in[2]);
    for (size_t i = 0; i < op.weights(); ++i) s.bias[i] = as_f32(args, op.bias(i));
    sum_ = nullptr;
    if (s.f32) return add_long(s, shape);
    add_step(s, shape);
  }

  void add_step(const RelayLinear& s, const RelayLinearShape& shape) {
    linear_shapes_.push_back(shape);
    steps_.emplace_back().linear = s;
  }

  // A linear with perhaps many outputs, which nobody takes from here: a step for some at a time.
  void add_long(RelayLinear s, RelayLinearShape shape) {
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
  }

  // A small weight in the kernel's form, by pairs; null without a weight.
  const float* as_f32(const LaunchArgs& args, const TensorView& row) {
    const bool as_it_is = row.dtype == DType::f32 && is_aligned(row);
    if (row.data == nullptr || as_it_is) return row.as<const float>();
    tables_.push_back(row_as(args, row, DType::f32));
    return reinterpret_cast<const float*>(tables_.back()->data());
  }

  // The first norm reads a row in memory; each later norm adds the previous step's output to the
  // previous norm's sum.
  void take_input(const LaunchArgs& args, const LinearOperands& op, RelayLinear& s) const {
    if (sum_ != nullptr) {
      const OpCall& sum = sum_->call;
      s.eps = sum.attrs<ops::ReduceNormAttrs>().eps;
      s.sum = sum.out[0].as<float>();
      s.x = sum.out[1].data;
    } else if (op.normed()) {
      s.eps = args.call.attrs<ops::NormLinearAttrs>().norm.eps;
      if (steps_.empty()) {
        s.a = op.x().as<const float>();
      } else {
        s.sum = args.call.out[0].as<float>();
      }
    }
  }

  void keep_sum(const LaunchArgs& args) {
    if (comm_ == nullptr) refuse(args, "there are no other ranks");
    require_aligned(args, args.call.out[1], "an output");
    sum_ = &args;
  }

  void add_attention(const LaunchArgs& args) {
    enum Input : size_t { kQ, kCacheK, kCacheV, kQStart, kKvLen, kPageTable };
    const OpCall& call = args.call;
    const auto& a = call.attrs<ops::AttentionAttrs>();
    if (rope_ == nullptr) refuse(args, "no queries turned before it");
    const OpCall& rope = rope_->call;
    const auto& turns = rope.attrs<ops::RopeAppendAttrs>();
    const TensorView &k = call.in[kCacheK], &v = call.in[kCacheV], &pages = call.in[kPageTable];
    require_aligned(args, k, "the cache");
    require_aligned(args, v, "the cache");
    require_aligned(args, call.in[kQ], "its input");
    require_aligned(args, call.out[0], "an output");
    const RelayAttentionShape shape{.head_dim = static_cast<int>(a.head_dim),
                                    .group = static_cast<int>(a.group),
                                    .kv_heads = k.shape[2],
                                    .page_size = k.shape[1]};
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
    rope_ = nullptr;
  }

  const RelayDevice device_;
  DeviceComm* const comm_;
  std::vector<RelayStep> steps_;
  std::vector<Relay::Cache> caches_;
  std::vector<std::shared_ptr<DeviceMemory>> tables_;
  std::vector<RelayLinearShape> linear_shapes_;
  std::vector<RelayAttentionShape> attention_shapes_;
  const LaunchArgs* rope_ = nullptr;  // whose attention is to come
  const LaunchArgs* sum_ = nullptr;   // whose linear is to come
};

}  // namespace

void add_relays(KernelTable& table, const StreamComms& comms) {
  // The table keeps a reference to itself: it must stay where it is.
  table.set_join({.form = &kRelay,
                  .plan =
                      [&table, comms](const Program& program, const LaunchRun& run) {
                        DeviceComm* const comm = comms[run.stream];
                        const bool summed =
                            comm != nullptr && !comm->limits().across_machines && run.ranks_alike;
                        const RelayRun relay =
                            relay_run(program, run.ops, relay_device(table.device()), summed);
                        const bool fits =
                            relay.launches > 0 && Relay::fits(relay.config, table.device());
                        return fits ? relay_group(relay) : LaunchGroup{};
                      },
                  .bind = [comms](const LaunchGroup& group,
                                  std::span<const LaunchArgs> launches) -> BoundKernel {
                    RelayBuilder builder(launches[0].device, comms[launches[0].stream]);
                    for (const LaunchArgs& launch : launches) builder.add(launch);
                    return [relay = builder.build(group, launches[0])](
                               const LaunchContext& context) { relay->launch(context); };
                  }});
}

}  // namespace braid::cuda
