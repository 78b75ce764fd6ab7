#include "braid/kernels/cuda/relay/relay_run.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "braid/ops/attention.h"
#include "braid/ops/fused_comm.h"
#include "braid/ops/linear.h"
#include "braid/ops/norm_linear.h"
#include "braid/ops/rope_append.h"

namespace braid::cuda {
namespace {

class RelayPlanner {
 public:
  RelayPlanner(const Program& program, const RelayDevice& device, bool summed)
      : program_(program), device_(device), summed_(summed) {}

  // Whether the relay goes on with this op; it is whole behind a linear or an attention.
  bool add(const Op& op) {
    if (op.def == &ops::kNormLinear || op.def == &ops::kLinear || op.def == &ops::kGatedLinear) {
      return add_linear(op);
    }
    if (op.def == &ops::kAllReduceAddRmsNorm) return keep_sum(op);
    if (op.def == &ops::kRopeAppend) return keep_rope(op);
    return op.def == &ops::kAttention && add_attention(op);
  }
  bool whole() const { return rope_ == nullptr && sum_ == nullptr; }
  std::optional<RelayConfig> config() const { return choose_relay(linears_, attention_, device_); }

 private:
  // Of an absent value: no rows.
  ValueType type(ValueId id) const {
    return id == kNoValue ? ValueType{} : program_.value(id).type;
  }
  // A token's row.
  bool is_row(ValueId id, DType dtype = DType::bf16) const {
    const ValueType row = type(id);
    return id != kNoValue && row.dtype == dtype && row.shape.rank() == 2 && row.shape[0] == 1;
  }
  bool is_small_weight(ValueId id) const { return id != kNoValue && is_float(type(id).dtype); }

  // Whether the row is output `i` of `n` from the step before.
  bool is_made(ValueId id, size_t i, size_t n) const {
    return is_row(id) && made_.size() == n && id == made_[i];
  }

  bool add_linear(const Op& op) {
    const bool normed = op.def == &ops::kNormLinear;
    const bool gated =
        op.def == &ops::kGatedLinear || (normed && op.attrs.as<ops::NormLinearAttrs>().gated);
    const size_t first = normed ? 3 : 1;  // of the weights
    const size_t out = normed && op.inputs[1] != kNoValue ? 1 : 0;
    const size_t weights = (op.inputs.size() - first) / 2;
    const auto y = [&](size_t i) { return op.outputs[out + (gated ? 0 : i)]; };
    const ValueType x = type(op.inputs[0]);
    const bool f32 = weights == 1 && type(y(0)).dtype == DType::f32;
    if (rope_ != nullptr || weights > kRelayWeights || x.shape.rank() != 2 || x.shape[0] != 1) {
      return false;
    }
    if (!takes_input(op, normed)) return false;
    RelayLinearShape shape{.k = x.shape[1],
                           .gated = gated,
                           .normed = normed || sum_ != nullptr,
                           .summed = sum_ != nullptr};
    for (size_t i = 0; i < weights; ++i) {
      const ValueType w = type(op.inputs[first + i]);
      const ValueId bias = op.inputs[first + weights + i];
      const int64_t rows = w.shape[0];
      if (!relay_takes(w.dtype) || !is_row(y(i), f32 ? DType::f32 : DType::bf16)) return false;
      if (bias != kNoValue && !is_small_weight(bias)) return false;
      shape.weights[i] = w.dtype;
      if (is_quantized(w.dtype) != is_quantized(shape.weights[0]) || rows % 2 != 0) return false;
      if (!gated || i == 0) shape.units += rows;
    }
    if (!f32 && !relay_takes(shape, device_)) return false;
    if (sum_ != nullptr) {
      residual_ = sum_->outputs[0];
    } else if (normed) {
      residual_ = out == 1 ? op.outputs[0] : op.inputs[0];
    }
    sum_ = nullptr;
    made_.clear();
    attends_ = false;
    begun_ = true;
    if (f32) {
      add_long(shape);
      return true;
    }
    for (size_t i = 0; i < (gated ? 1 : weights); ++i) made_.push_back(y(i));
    linears_.push_back(shape);
    return true;
  }

  // A linear with perhaps many outputs, which nobody takes from here: a step for some at a time.
  void add_long(RelayLinearShape shape) {
    for (const int32_t rows : relay_parts(static_cast<int32_t>(shape.units))) {
      shape.units = rows;
      linears_.push_back(shape);
      shape.summed = false;
    }
  }

  bool takes_input(const Op& op, bool normed) const {
    if (sum_ != nullptr) return !normed && op.inputs[0] == sum_->outputs[1];
    return normed ? takes_norm(op) : is_made(op.inputs[0], 0, 1);
  }

  // The first norm reads a row in memory; each later norm adds the previous step's output to the
  // previous norm's sum.
  bool takes_norm(const Op& op) const {
    const ValueId a = op.inputs[0], b = op.inputs[1];
    if (type(a).dtype != DType::f32 || !is_small_weight(op.inputs[2])) return false;
    if (!begun_) return b == kNoValue;
    return b != kNoValue && a == residual_ && is_made(b, 0, 1);
  }

  // Only where all ranks do the same.
  bool keep_sum(const Op& op) {
    if (!whole() || !summed_ || !is_made(op.inputs[0], 0, 1) || attends_ ||
        op.inputs[1] != residual_ || !is_small_weight(op.inputs[2]) || !is_row(op.outputs[1])) {
      return false;
    }
    sum_ = &op;
    return true;
  }

  bool keep_rope(const Op& op) {
    if (!whole() || !is_row(op.outputs[0])) return false;
    for (const size_t i : {6u, 7u}) {
      if (type(op.inputs[i]).dtype != DType::bf16) return false;
    }
    for (size_t i = 0; i < 3; ++i) {
      if (!is_made(op.inputs[i], i, 3)) return false;
    }
    for (const size_t i : {8u, 9u}) {
      if (op.inputs[i] != kNoValue && !is_small_weight(op.inputs[i])) return false;
    }
    rope_ = &op;
    return true;
  }

  bool add_attention(const Op& op) {
    enum Input : size_t { kQ, kCacheK, kCacheV, kQStart, kKvLen, kPageTable };
    if (rope_ == nullptr) return false;
    const auto& a = op.attrs.as<ops::AttentionAttrs>();
    const auto& turns = rope_->attrs.as<ops::RopeAppendAttrs>();
    const ValueType q = type(op.inputs[kQ]), k = type(op.inputs[kCacheK]);
    if (op.inputs[kQ] != rope_->outputs[0] || op.inputs[kCacheK] != rope_->inputs[6] ||
        op.inputs[kCacheV] != rope_->inputs[7] || type(op.inputs[kPageTable]).shape[0] != 1 ||
        !is_row(op.outputs[0])) {
      return false;
    }
    if (a.head_offset != 0 || a.softcap > 0 || a.dual || turns.rope.head_dim != a.head_dim ||
        q.shape[1] != k.shape[2] * a.group * a.head_dim) {
      return false;
    }
    const RelayAttentionShape shape{.head_dim = static_cast<int>(a.head_dim),
                                    .group = static_cast<int>(a.group),
                                    .kv_heads = k.shape[2],
                                    .page_size = k.shape[1]};
    if (!relay_takes(shape, device_)) return false;
    if (!attention_.empty() && !(shape == attention_[0])) return false;
    attention_.push_back(shape);
    made_ = {op.outputs[0]};
    attends_ = true;
    rope_ = nullptr;
    return true;
  }

  const Program& program_;
  const RelayDevice device_;
  const bool summed_;
  std::vector<RelayLinearShape> linears_;
  std::vector<RelayAttentionShape> attention_;
  std::vector<ValueId> made_;             // outputs of the newest step
  ValueId residual_ = kNoValue;           // the newest norm's sum
  const Op* rope_ = nullptr;              // whose attention is to come
  const Op* sum_ = nullptr;               // whose linear is to come
  bool begun_ = false, attends_ = false;  // any step; the newest step
};

}  // namespace

RelayRun relay_run(const Program& program, std::span<const Op* const> ops,
                   const RelayDevice& device, bool summed) {
  RelayPlanner planner(program, device, summed);
  RelayRun run;
  for (size_t n = 0; n < ops.size() && planner.add(*ops[n]);) {
    ++n;
    if (!planner.whole()) continue;
    const std::optional<RelayConfig> longer = planner.config();
    const bool begun = run.launches > 0;
    if (begun && (!longer || longer->ctas < run.config.ctas)) break;
    if (longer) run = {static_cast<int>(n), *longer};
  }
  return run;
}

LaunchGroup relay_group(const RelayRun& run) {
  if (run.launches < 2) return {};
  return {.count = run.launches, .form = &kRelay, .kernel = to_string(run.config)};
}

}  // namespace braid::cuda
