#pragma once

#include "braid/engine/sequence_step.h"
#include "braid/engine/thinning.h"
#include "braid/ops/input_names.h"
#include "braid/parallel/thinned_prompt.h"
#include "golden/support/rounding.h"

// What rounding to bf16 between ops does to a model whose prompts leave far keys out.
namespace braid::golden {

// By the ops' scalar references, as rounded_logits, of a rank with the parts of the levels' ranks.
// Rounded scores choose other keys where two are nearly as important.
inline Rows rounded_thinned_logits(const Model& model, const Thinning& thinning,
                                   const std::vector<int32_t>& prompt) {
  const auto n = std::ssize(prompt);
  std::vector<RankProgram> ranks{{.program = model.forward({.capacity = {n, 1, n},
                                                            .pages = kPages,
                                                            .page_size = kPageSize,
                                                            .pages_per_sequence = kPages,
                                                            .kv_dtype = DType::bf16,
                                                            .activations = DType::bf16})}};
  thin_far_keys(ranks, levels_of(thinning, {}), even_layout(n, 1), even_layout(n, 1));
  return reference_logits(model, fuse(ranks[0].program, fusions()), prompt,
                          [&](const Executor& executor, std::span<const int32_t> pages) {
                            std::ranges::copy(slots_of(pages, kPageSize, n),
                                              executor.input(inputs::kKvSlots).as<int32_t>());
                          });
}

// The distance of a dense prompt's rounded logits from those in f32, of the furthest row: what a
// GPU's may have, with kDraws.
inline double dense_tolerance(const Model& model, const std::vector<int32_t>& prompt) {
  Runner f32(model, {.cache = {.pages = kPages,
                               .page_size = kPageSize,
                               .pages_per_sequence = kPages,
                               .kv_dtype = DType::f32}});
  const Rows exact = prompt_logits(f32, prompt, prompt.size());
  const Rows rounded = rounded_logits(model, prompt);
  double most = 0;
  for (size_t i = 0; i < exact.size(); ++i) {
    most = std::max(most, relative_distance(rounded[i], exact[i]));
  }
  return kDraws * most;
}

}  // namespace braid::golden
