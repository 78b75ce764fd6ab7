#include "braid/parallel/divided_prompt.h"

#include <algorithm>

#include "braid/ops/attention.h"
#include "braid/ops/dense_attention.h"
#include "braid/ops/experts.h"
#include "braid/ops/latent_attention.h"
#include "braid/parallel/tensor_parallel.h"

namespace braid {
namespace {

// The op that writes this attention's keys into its cache.
const Op& append_of(const Program& program, const Op& attention) {
  const auto it = std::ranges::find_if(program.ops, [&](const Op& op) {
    return op.def == &ops::kKvAppend && op.inputs[3] == attention.inputs[1];
  });
  BRAID_CHECK(it != program.ops.end(), "attention at '{}' to keys that nothing appends",
              attention.scope);
  return *it;
}

// Why the step's products stay whole; empty: they divide.
std::string reason_against(const Op& op) {
  if (op.def == &ops::kLatentAttention) return "latent attention reads a cache";
  if (op.def == &ops::kExpertLinear) return "experts have no parts in whole weights";
  if (op.def != &ops::kAttention) return {};
  const auto& attrs = op.attrs.as<ops::AttentionAttrs>();
  if (attrs.window > 0) return fmt::format("attention has a window of {}", attrs.window);
  if (attrs.softcap > 0) return "attention caps its scores";
  if (attrs.dual) return "attention is in dual chunks";
  return {};
}

}  // namespace

DividedPrompt divided_prompt(Program program, int P) {
  for (const Op& op : program.ops) {
    const std::string reason = reason_against(op);
    if (!reason.empty()) fail(ErrorCode::kUnsupported, "{}: {}", program.name, reason);
  }
  LayoutPlan layout = tensor_parallel(program, P, /*whole_experts=*/true, /*whole_caches=*/true);
  for (Op& op : program.ops) {
    if (op.def != &ops::kAttention) continue;
    const Op& append = append_of(program, op);
    const auto& attrs = op.attrs.as<ops::AttentionAttrs>();
    const ops::DenseAttentionAttrs dense{
        .head_dim = attrs.head_dim, .scale = attrs.scale, .causal = true};
    op.inputs = {op.inputs[0], append.inputs[0], append.inputs[1], kNoValue, kNoValue};
    op.def = &ops::kDenseAttention;
    op.attrs = Attrs::of(dense);
  }
  verify(program);
  return {std::move(program), std::move(layout)};
}

}  // namespace braid
