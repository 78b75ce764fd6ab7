// A pipeline's plan of memory: what it prices, and what follows from little room.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "braid/engine/diffusion/cogvideox_pipeline.h"
#include "braid/engine/diffusion/flux_pipeline.h"
#include "golden/diffusion/case.h"

namespace braid::golden {
namespace {

using testing::HasSubstr;

ImageRequest picture() {
  return {.prompt = "a red box",
          .width = 64,
          .height = 64,
          .steps = 1,
          .guidance = 3.5,
          .text_tokens = 9,
          .seed = 1};
}

ComponentMemory component(const PipelineMemory& memory, const std::string& name) {
  const auto at = std::ranges::find(memory.components, name, &ComponentMemory::name);
  EXPECT_NE(at, memory.components.end()) << name;
  return *at;
}

template <class Pipeline, class Request>
std::string refused(Pipeline& pipeline, Request request) {
  bool begun = false;
  request.on_progress = [&](const PipelineProgress&) { return begun = true; };
  try {
    pipeline.generate(request);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kResource);
    EXPECT_FALSE(begun) << "before any work";
    return e.what();
  }
  return "no error";
}

TEST(MemoryPlan, TooLittleOnTheHostIsSaidBeforeAnyWork) {
  FluxPipeline flux(tiny_pipeline("guided"), {.threads = 1, .free_bytes = 1000});
  EXPECT_THAT(refused(flux, picture()),
              testing::AllOf(HasSubstr("the CPU has 0.0 GB free, and the transformer alone needs"),
                             HasSubstr("a smaller --size")));
  CogVideoXPipeline video(tiny_pipeline("video"), {.threads = 1, .free_bytes = 1000});
  EXPECT_THAT(
      refused(
          video,
          VideoRequest{
              .width = 16, .height = 16, .frames = 9, .steps = 1, .guidance = 6, .text_tokens = 8}),
      HasSubstr("the transformer alone needs"));
}

// 12 billion random weights are made, so they have to fit; no weight is made here.
TEST(MemoryPlan, RandomWeightsOfFullSizeAreRefusedOnASmallHost) {
  const std::string config = std::string(BRAID_TEST_DATA "/../configs/flux-1-dev.json");
  FluxPipeline flux(random_flux(config, DType::bf16),
                    {.threads = 1, .free_bytes = int64_t{16} << 30});
  ImageRequest request = picture();
  request.text_tokens = 512;
  EXPECT_THAT(refused(flux, request),
              testing::AllOf(HasSubstr("the CPU has 17.2 GB free, and the transformer alone needs "
                                       "23.8 GB of weights"),
                             HasSubstr("--device cuda")));
}

// What is planned is what a bound Program takes, alone and over ranks.
TEST(MemoryPlan, PricesAreThoseOfTheBoundPrograms) {
  const DiffusersFolder folder(tiny_pipeline("guided"));
  const auto transformer_weights = folder.weights("transformer");
  const int64_t side = 16;
  std::vector<int64_t> steps, decodes;
  for (const int P : {1, 4}) {
    NetworkConfig network;
    if (P > 1) network.mesh = sequence_mesh(SpMode::ring, {.devices = P}, 2);
    FluxTransformer transformer(folder.config("transformer"), *transformer_weights, network);
    const std::vector<float> text(9 * 32), pooled(32), sigmas = {1};
    transformer.begin({.token_rows = side,
                       .token_columns = side,
                       .text = text,
                       .pooled = pooled,
                       .sigmas = sigmas,
                       .guidance = 3.5});
    const auto arena = [](BoundNetwork& bound) {
      return bound.executor(0).schedule().memory.arena_bytes;
    };
    steps.push_back(transformer.value_bytes({.text = 9, .image = side * side}) / P);
    const FluxConfig& all = transformer.config();
    const int64_t modulation =
        4 * (FluxModulation(all).columns - FluxModulation(few_blocks(all)).columns);
    EXPECT_EQ(steps.back() + modulation, arena(transformer.bound_step())) << P;
    network.schedule = "sequential";
    VaeDecoder decoder(folder.config("vae"), folder.weights("vae"), network);
    decodes.push_back(decoder.value_bytes(2 * side, 2 * side) / P);
    EXPECT_EQ(decodes.back(), arena(decoder.bound(2 * side, 2 * side))) << P;
  }
  EXPECT_LT(steps[1], steps[0]);
  EXPECT_LT(decodes[1], decodes[0]);
  // A GPU with room for a rank's decoding, but not for a lone rank's, decodes exactly over ranks.
  const int64_t reserved = MemoryRoom::of_gpu(0, 0).reserved;
  const MemoryRoom room = MemoryRoom::of_gpu(0, decodes[1] + reserved + 1000);
  for (const int P : {1, 4}) {
    ComponentMemory vae{.name = "vae"};
    const DecoderSize size{
        {.height = 8, .width = 8, .rows = 6, .columns = 6}, 32, 32, [&](int64_t, int64_t) {
          return decodes[P == 1 ? 0 : 1];
        }};
    EXPECT_EQ(plan_decoder(vae, size, false, room), P == 1);
  }
}

// Where a batch of both passes has no room, they come one after another, to the same latents.
// Weights of further blocks would be asked for in vain.
TEST(MemoryPlan, AModelWithFewerBlocksIsPlannedWithItsOwn) {
  const FluxConfig few = few_blocks({.blocks = 0, .single_blocks = 1});
  EXPECT_EQ(few.blocks, 0);
  EXPECT_EQ(few.single_blocks, 1);
}

TEST(MemoryPlan, GuidedPassesAreABatchOnlyWithRoom) {
  VideoRequest request{.prompt = "a cat",
                       .width = 64,
                       .height = 64,
                       .frames = 9,
                       .steps = 2,
                       .guidance = 6,
                       .text_tokens = 8,
                       .seed = 4};
  std::vector<float> last;
  request.on_latents = [&](int64_t, int64_t, std::span<const float> latents) {
    last.assign(latents.begin(), latents.end());
  };
  const auto planned = [&](int64_t free) {
    CogVideoXPipeline pipeline(tiny_pipeline("video"), {.threads = 1, .free_bytes = free});
    const PipelineMemory memory = *pipeline.generate(request).memory;
    return memory;
  };
  const PipelineMemory batch = planned(int64_t{1} << 40);
  const std::vector<float> want = last;
  const int64_t values = component(batch, "transformer").values;
  const PipelineMemory turns = planned(batch.most - 1);
  EXPECT_LT(component(turns, "transformer").values, values);
  ASSERT_EQ(last.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(last[i], want[i], 1e-4) << i;
}

}  // namespace
}  // namespace braid::golden
