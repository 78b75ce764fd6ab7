#pragma once

#include <span>
#include <vector>

#include "braid/engine/diffusion/flux_transformer.h"

namespace braid::golden {

// Tokens of a Flux step: of the text, and of the image.
struct Picture {
  int64_t text, rows, columns;
};

// Prepares a step for each sigma. draw(n, seed) gives n numbers: 1 of the text, 2 of the pooled
// vector.
template <class Draw>
void begin(FluxTransformer& transformer, const Picture& p, std::span<const float> sigmas,
           Draw&& draw) {
  const FluxConfig& c = transformer.config();
  const std::vector<float> text = draw(p.text * c.text_dim, 1), pooled = draw(c.pooled_dim, 2);
  transformer.begin({.token_rows = p.rows,
                     .token_columns = p.columns,
                     .text = text,
                     .pooled = pooled,
                     .sigmas = sigmas,
                     .guidance = 3.5f});
}

}  // namespace braid::golden
