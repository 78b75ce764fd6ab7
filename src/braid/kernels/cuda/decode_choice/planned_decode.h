#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "braid/kernels/cuda/decode_choice/describe_step.h"
#include "braid/ops/kernel_catalog.h"
#include "braid/schedule/own_prices.h"

namespace braid::cuda {

// Kernels of an absent GPU for decode steps: each capacity's form is chosen as on a GPU, and each
// launch has its part of the form's price. Pure host code.
class PlannedDecode : public KernelCatalog {
 public:
  // `kernels` outlives the catalog and knows all but blocks. `context`: keys of each token.
  // Relays do not go on over ranks of several machines.
  PlannedDecode(const KernelCatalog& kernels, const DecodeForm& form, const DecodeRates& rates,
                int64_t context, bool across_machines = false)
      : kernels_(kernels),
        asked_(form),
        rates_(rates),
        context_(context),
        across_machines_(across_machines) {}

  KernelInfo find(const Program& program, const Op& op, Stream stream,
                  const Extents& capacity) const override;
  std::span<const Fusion> fusions() const override { return few_token_fusions(); }
  // Chooses the form for all ranks by the first Program of a decode step of its capacity.
  Program rewrite(Program program) const override;
  // Joins a one-token step into the relay of an H100 where the chosen form is a relay.
  LaunchGroup join(const Program& program, const LaunchRun& run) const override;
  std::vector<std::string> explain() const override;

  // Of decode steps, in the form of rewrite(): members of a group have the seams of a relay's
  // steps, blocks their exchanges, other launches a seam each. The profile prices what the form's
  // price does not know: experts, the keys of the step at hand (a block has `context` keys for each
  // token), and the computation of many tokens.
  std::optional<OwnPrice> price(const Program& program, const Op& op, bool grouped) const;
  // The form for the least capacity so far; nothing without a decode step of few tokens.
  std::optional<DecodeForm> form() const;

 private:
  struct Choice {
    DecodeForm form;
    bool norms_apart = false;
    std::vector<std::string> lines;
  };
  FusedConfig config(const Program& program, const Op& op) const;

  const KernelCatalog& kernels_;
  const DecodeForm asked_;
  const DecodeRates rates_;
  const int64_t context_;
  const bool across_machines_;
  mutable std::map<int64_t, Choice> choices_;  // by capacity of tokens
};

}  // namespace braid::cuda
