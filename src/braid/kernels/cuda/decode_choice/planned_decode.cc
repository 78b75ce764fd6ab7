#include "braid/kernels/cuda/decode_choice/planned_decode.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/kernels/cuda/relay/relay_run.h"
#include "braid/ops/attention_block.h"
#include "braid/ops/experts.h"

namespace braid::cuda {
namespace {

// Bytes of the keys and values that a relay's token reads.
int64_t key_bytes(const Program& program, const Op& op, int64_t context) {
  const ValueType& k = program.value(op.inputs[1]).type;  // cache [pages, page_size, Hkv, D]
  return 2 * context * bytes_of({k.dtype, {k.shape[2], k.shape[3]}});
}

}  // namespace

FusedConfig PlannedDecode::config(const Program& program, const Op& op) const {
  const FusedShape shape = fused_shape(op, program.input_types(op));
  const DecodeForm& form = choices_.at(program.capacity.token).form;
  return fused_config(shape, form.scope, form.path, form.cluster, {.clusters = rates_.clusters},
                      form.split, form.parts);
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
  const auto known = choices_.find(program.capacity.token);
  const bool first = known == choices_.end();
  // Refuses where another rank's part differs.
  const DecodeForm form = choose_decode(first ? asked_ : known->second.form, *step, device, rates_);
  if (first) {
    choices_[program.capacity.token] = {form, step->norms_apart,
                                        explain_decode(form, *step, device, rates_)};
  }
  if (form.kind != DecodeKind::fused) return program;
  return fuse(program, ops::attention_block_fusions(form.scope == FusedScope::projected));
}

std::vector<std::string> PlannedDecode::explain() const {
  std::vector<std::string> lines;
  for (const auto& [tokens, choice] : choices_) {
    lines.insert(lines.end(), choice.lines.begin(), choice.lines.end());
  }
  return lines;
}

std::optional<DecodeForm> PlannedDecode::form() const {
  if (choices_.empty()) return {};
  return choices_.begin()->second.form;
}

LaunchGroup PlannedDecode::join(const Program& program, const LaunchRun& run) const {
  const auto choice = choices_.find(program.capacity.token);
  if (choice == choices_.end() || choice->second.form.kind != DecodeKind::relay) return {};
  return relay_group(relay_run(program, run.ops, {}, run.ranks_alike && !across_machines_));
}

std::optional<OwnPrice> PlannedDecode::price(const Program& program, const Op& op,
                                             bool grouped) const {
  const auto choice = choices_.find(program.capacity.token);
  if (choice == choices_.end()) return {};
  const bool norms_apart = choice->second.norms_apart;
  if (op.def == &ops::kAttentionBlock) {
    const BlockPrice block = block_price(fused_shape(op, program.input_types(op)),
                                         config(program, op), context_, rates_);
    return OwnPrice{.fixed = block.exchange_seconds, .memory = block.bytes_seconds};
  }
  const bool attends = op.def == &ops::kAttention;
  const int64_t bytes = attends ? key_bytes(program, op, context_) : product_bytes(program, op);
  OwnPrice price{.memory = static_cast<double>(bytes) / rates_.stream};
  if (attends || ops::reads_experts(op)) price.memory.reset();
  if (std::ranges::count(program.outputs, op.outputs.empty() ? kNoValue : op.outputs.back()) > 0) {
    return price;
  }
  if (grouped) {
    price.fixed = bytes > 0 ? relay_seam(bytes, rates_) : 0;
  } else {
    const int launches = op.def == &ops::kNormLinear && norms_apart ? 2 : 1;
    price.fixed = launches * (norms_apart ? rates_.panel_seam : rates_.launch_seam);
  }
  return price;
}

}  // namespace braid::cuda
