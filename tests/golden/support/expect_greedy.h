#pragma once

#include <gtest/gtest.h>

#include <cmath>

#include "braid/engine/generate.h"
#include "braid/engine/loaded_model.h"
#include "golden/support/golden.h"

namespace braid::golden {

// Of logits that ranks on CPUs add in another order, each beside the largest. 16-bit models keep a
// 16-bit KV cache: another rounding of 2^-9 at most per key and value.
inline double greedy_tolerance(const Model& model) {
  return model.default_kv_dtype() == DType::f32 ? 1e-4 : 1e-2;
}

// Greedy tokens agree up to the first step whose two best logits are closer than rounding, each of
// so many `times`.
inline void expect_greedy(Generator& generator, const Case& c, double tolerance, int times = 1) {
  const Request request{.prompt = c.prompt, .max_tokens = std::ssize(c.greedy), .ignore_eos = true};
  const Generation g = generator.generate(request);
  ASSERT_EQ(g.ids.size(), c.greedy.size());
  for (size_t i = 0; i < c.greedy.size(); ++i) {
    if (c.gaps[i] < 2 * tolerance * std::abs(c.greedy_logits[i])) break;
    ASSERT_EQ(g.ids[i], c.greedy[i]) << "token " << i << " after " << c.prompt.size();
  }
  for (int i = 1; i < times; ++i) EXPECT_EQ(generator.generate(request).ids, g.ids);
}

}  // namespace braid::golden
