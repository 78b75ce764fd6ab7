// What `--sp auto` takes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "any_stages.h"
#include "braid/engine/mesh_choice.h"
#include "braid/model/model_shape.h"
#include "braid/schedule/strategies/registry.h"

namespace braid {
namespace {

// A prompt of 512 tokens a rank, by stages, is too short for calls over parts of the keys. One call
// that takes them as they come is not, and hides what ulysses shows.
TEST(ChooseMesh, PricesTheCallsThatTheKernelsTake) {
  constexpr int64_t kTokens = 4096, kPageSize = 64;
  ModelShape shape =
      read_model_shape(fmt::format("{}/../configs/llama-3-8b.json", BRAID_TEST_DATA));
  shape.config.layers = 1;
  shape.config.windows.resize(1);
  const Topology topology = parse_topology("1x8");
  const CostModel cost(load_profile("h200"), topology);
  const CacheShape cache{.pages = kTokens / kPageSize,
                         .page_size = kPageSize,
                         .pages_per_sequence = kTokens / kPageSize,
                         .kv_dtype = DType::bf16,
                         .activations = DType::bf16};
  const auto chosen = [&](const KernelCatalog* like) {
    return choose_mesh(
               {}, [&](const ForwardShape& s) { return shape.forward(s); }, shape.config.Hq, cache,
               topology, *find_strategy("sequence_parallel"), like, &cost)
        .mode;
  };
  EXPECT_EQ(chosen(nullptr), SpMode::ulysses);
  EXPECT_EQ(chosen(&any_stages), SpMode::torus);
}

}  // namespace
}  // namespace braid
