// Random weights of a shape: the numbers of tools/random_weights.py.
#include <gtest/gtest.h>

#include "braid/engine/diffusion/flux_pipeline.h"
#include "braid/engine/diffusion/random_source.h"

namespace braid::golden {
namespace {

TEST(RandomWeights, AreThoseOfThePythonTool) {
  EXPECT_EQ(random_seed(1, "x_embedder.weight"), 4934685396053281778u);
  EXPECT_EQ(random_seed(2, "decoder.conv_in.weight"), 465365325054671235u);
  const PipelineParts parts =
      random_flux(BRAID_TEST_DATA "/../configs/flux-1-dev.json", DType::f32);
  // tools/random_weights.py 1 x_embedder.weight 5
  const float want[] = {0.0268348874f, 0.0417435747f, -0.0228815015f, 0.0251541409f,
                        -0.0086428786f};
  const float* got = parts.transformer_weights->get("x_embedder.weight").as<const float>();
  for (float w : want) EXPECT_NEAR(*got++, w, 1e-8);
  EXPECT_EQ(parts.transformer_weights->get("x_embedder.bias").as<const float>()[0], 0);
  const std::string norm = "transformer_blocks.0.attn.norm_q.weight";
  EXPECT_EQ(parts.transformer_weights->get(norm).as<const float>()[127], 1);
}

TEST(RandomWeights, OfTheFullSize) {
  const PipelineParts parts =
      random_flux(BRAID_TEST_DATA "/../configs/flux-1-dev.json", DType::bf16);
  int64_t weights = 0;
  for (const TensorInfo& tensor : parts.transformer_weights->tensors()) weights += tensor.bytes / 2;
  EXPECT_EQ(weights, 11901408320);
  EXPECT_EQ(parts.random_transformer->tensors().size(), 1160u);
  EXPECT_FALSE(parts.transformer_weights->find_type("nothing"));
}

}  // namespace
}  // namespace braid::golden
