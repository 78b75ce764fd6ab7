#include "braid/parallel/layout_plan.h"

namespace braid {

std::string to_string(const LayoutPlan& plan) {
  std::string out =
      fmt::format("{} over {} ranks{}\n", plan.axis, plan.P,
                  plan.token_sharded_residual ? ", residual divided over tokens" : "");
  if (plan.groups > 1) out += fmt::format("  dp: {} groups of such ranks\n", plan.groups);
  if (plan.tokens) {
    out += fmt::format("  tokens: {} attention, {}\n", to_string(plan.tokens->mesh.mode),
                       to_string(plan.tokens->mesh.degrees));
  }
  for (const auto& [name, placement] : plan.pinned) {
    out += fmt::format("  {}: {}\n", name, to_string(placement));
  }
  for (const auto& [name, placement] : plan.widths) {
    out += fmt::format("  {}: also {}\n", name, to_string(placement));
  }
  for (const auto& [name, placement] : plan.queries) {
    out += fmt::format("  q over {}: {}\n", name, to_string(placement));
  }
  return out;
}

}  // namespace braid
