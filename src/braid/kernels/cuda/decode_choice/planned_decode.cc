#include "braid/kernels/cuda/decode_choice/planned_decode.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/kernels/cuda/relay/relay_run.h"
#include "braid/ops/attention_block.h"

namespace braid::cuda {
namespace {

// Bytes of the keys and values that an attention reads.
int64_t key_bytes(const Program& program, const Op& op, int64_t context) {
  const ValueType& k = program.value(op.inputs[1]).type;  // cache [pages, page_size, Hkv, D]
  const int64_t tokens = program.value(op.inputs[0]).type.shape[0];
  return 2 * tokens * context * bytes_of({k.dtype, {k.shape[2], k.shape[3]}});
}

}  // namespace

FusedConfig PlannedDecode::config(const Program& program, const Op& op) const {
  const FusedShape shape = fused_shape(op, program.input_types(op));
  return fused_config(shape, form_->scope, form_->path, form_->cluster,
                      {.clusters = rates_.clusters}, form_->split, form_->parts);
}

KernelInfo PlannedDecode::find(const Program& program, const Op& op, Stream stream,
                               const Extents& capacity) const {
  KernelInfo info = kernels_.find(program, op, stream, capacity);
  if (op.def == &ops::kAttentionBlock) info.name = to_string(config(program, op));
  return info;
}

Program PlannedDecode::rewrite(Program program) const {
  const std::optional<DecodeStep> step = describe_step(program, context_);
  if (!step) return program;
  const FusedDevice device{.clusters = rates_.clusters};
  if (!form_) {
    form_ = choose_decode(asked_, *step, device, rates_);
    norms_apart_ = step->norms_apart;
    lines_ = explain_decode(*form_, *step, device, rates_);
  } else {
    choose_decode(*form_, *step, device, rates_);  // refuses where another rank's part differs
  }
  if (form_->kind != DecodeKind::fused) return program;
  return fuse(program, ops::attention_block_fusions(form_->scope == FusedScope::projected));
}

LaunchGroup PlannedDecode::join(const Program& program, const LaunchRun& run) const {
  if (!form_ || form_->kind != DecodeKind::relay) return {};
  return relay_group(relay_run(program, run.ops, {}, run.ranks_alike && !across_machines_));
}

std::optional<OwnPrice> PlannedDecode::price(const Program& program, const Op& op,
                                             bool grouped) const {
  if (!form_) return {};
  if (op.def == &ops::kAttentionBlock) {
    const BlockPrice block = block_price(fused_shape(op, program.input_types(op)),
                                         config(program, op), context_, rates_);
    return OwnPrice{.fixed = block.exchange_seconds, .memory = block.bytes_seconds};
  }
  int64_t bytes = product_bytes(program, op);
  if (op.def == &ops::kAttention) bytes = key_bytes(program, op, context_);
  OwnPrice price{.memory = static_cast<double>(bytes) / rates_.stream};
  if (std::ranges::count(program.outputs, op.outputs.empty() ? kNoValue : op.outputs.back()) > 0) {
    return price;
  }
  if (grouped) {
    price.fixed = bytes > 0 ? relay_seam(bytes, rates_) : 0;
  } else {
    const int launches = op.def == &ops::kNormLinear && norms_apart_ ? 2 : 1;
    price.fixed = launches * (norms_apart_ ? rates_.panel_seam : rates_.launch_seam);
  }
  return price;
}

}  // namespace braid::cuda
