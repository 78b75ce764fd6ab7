// How a pipeline's components share a GPU's memory.
#include "braid/engine/diffusion/pipeline_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/base/error.h"

namespace braid {
namespace {

constexpr int64_t kGb = 1000000000;

std::vector<ComponentMemory> flux() {
  return {
      {"transformer", 24 * kGb, kGb}, {"vae", kGb / 5, 2 * kGb}, {"text_encoder_2", 10 * kGb, kGb}};
}

TEST(PipelineMemory, AllStayWhereTheyFit) {
  const PipelineMemory m = plan_memory(flux(), MemoryRoom::of_gpu(0, 80 * kGb));
  EXPECT_TRUE(m.together);
  EXPECT_EQ(m.most, 24 * kGb + kGb + kGb / 5 + 2 * kGb + 11 * kGb);
  EXPECT_THAT(to_string(m), testing::HasSubstr("transformer 24.0 + 1.0 GB"));
}

TEST(PipelineMemory, ComponentsTakeTurnsWhereTheyDoNot) {
  const PipelineMemory m = plan_memory(flux(), MemoryRoom::of_gpu(0, 30 * kGb));
  EXPECT_FALSE(m.together);
  EXPECT_EQ(m.most, 25 * kGb);
  EXPECT_THAT(to_string(m), testing::HasSubstr("one after another: 25.0 GB at once"));
}

std::string refused(const std::vector<ComponentMemory>& components, const MemoryRoom& room) {
  try {
    plan_memory(components, room);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kResource);
    return e.what();
  }
  return "no error";
}

TEST(PipelineMemory, WhatFitsNowhereIsNamed) {
  EXPECT_THAT(
      refused(flux(), MemoryRoom::of_gpu(1, 20 * kGb)),
      testing::AllOf(testing::HasSubstr("cuda:1 has 20.0 GB free, and the transformer alone"),
                     testing::HasSubstr("--device cpu")));
  EXPECT_THAT(refused({{"vae", kGb, 40 * kGb}}, MemoryRoom::of_gpu(1, 30 * kGb)),
              testing::AllOf(testing::HasSubstr("a smaller --size"),
                             testing::HasSubstr("--sp auto over 2 GPUs divides the values")));
  EXPECT_THAT(refused({{"text_encoder_2", 10 * kGb, kGb}}, MemoryRoom::of_gpu(1, 8 * kGb)),
              testing::HasSubstr("--text-encoder cpu"));
}

// Encoders that leave before the other components come need no room beside these.
TEST(PipelineMemory, EncodersApart) {
  MemoryRoom room = MemoryRoom::of_gpu(0, 29 * kGb);
  room.apart = true;
  const PipelineMemory m = plan_memory(flux(), room);
  EXPECT_TRUE(m.together);
  EXPECT_EQ(m.most, 25 * kGb + kGb / 5 + 2 * kGb);
}

// Without a wish encoders go where all fits, else come and leave, else stay on the CPU.
TEST(PipelineMemory, EncodersArePlacedByTheRoom) {
  const auto placed = [](EncoderPlace wanted, int64_t free) {
    MemoryRoom room = MemoryRoom::of_gpu(0, free);
    room.apart = true;  // of an earlier request
    std::vector<ComponentMemory> components = flux();
    const EncoderChoice made = place_encoders(wanted, components, room);
    const bool on_cpu = made.place == EncoderPlace::cpu;
    EXPECT_EQ(room.apart, made.place == EncoderPlace::load);
    EXPECT_EQ(components.size(), on_cpu ? 2 : 3);
    // What was chosen by itself is planned without a refusal where the others have room.
    PipelineMemory plan = plan_memory(components, room);
    if (made.place == EncoderPlace::gpu && wanted == EncoderPlace::automatic) {
      EXPECT_TRUE(plan.together);
    }
    plan.encoders = made;
    EXPECT_THAT(to_string(plan), testing::HasSubstr(fmt::format("; text encoder {}: {}",
                                                                to_string(made.place), made.why)));
    return made;
  };
  using enum EncoderPlace;
  const int64_t reserved = MemoryRoom::of_gpu(0, 0).reserved;
  const int64_t all = 38 * kGb + kGb / 5 + reserved;
  EXPECT_EQ(placed(automatic, all).place, gpu);
  EXPECT_THAT(placed(automatic, all).why, testing::HasSubstr("fit beside all else, 38.2 of 38.2"));
  EXPECT_EQ(placed(automatic, all - 1).place, load);
  EXPECT_THAT(placed(automatic, 31 * kGb + reserved).why,
              testing::HasSubstr("38.2 GB do not fit 31.0 GB, they alone need 11.0 GB"));
  // The others take turns, and encoders come and leave before both.
  EXPECT_EQ(placed(automatic, 26 * kGb + reserved).place, load);
  for (const EncoderPlace wanted : {gpu, load, cpu}) {
    EXPECT_EQ(placed(wanted, 80 * kGb).place, wanted);
    EXPECT_EQ(placed(wanted, 30 * kGb).place, wanted);
  }
}

// Encoders of 11 GB beside small components.
TEST(PipelineMemory, EncodersWithoutRoomStayOnTheCpu) {
  std::vector<ComponentMemory> components = {{"transformer", kGb, kGb},
                                             {"vae", kGb / 5, kGb},
                                             {"text_encoder", kGb, 0},
                                             {"text_encoder_2", 9 * kGb, kGb}};
  MemoryRoom room = MemoryRoom::of_gpu(0, 10 * kGb + MemoryRoom::of_gpu(0, 0).reserved);
  const EncoderChoice made = place_encoders(EncoderPlace::automatic, components, room);
  EXPECT_EQ(made.place, EncoderPlace::cpu);
  EXPECT_THAT(made.why, testing::HasSubstr("alone need 11.0 GB, a GPU has 10.0 GB"));
  EXPECT_EQ(components.size(), 2);
  MemoryRoom host = MemoryRoom::of_cpu(80 * kGb);
  components = flux();
  EXPECT_EQ(place_encoders(EncoderPlace::automatic, components, host).place, EncoderPlace::cpu);
  EXPECT_EQ(components.size(), 3);
}

TEST(PipelineMemory, OptionsThatWouldFitAreNamed) {
  // A decoding of 10 x 10 latents takes 2 GB, a tile of 5 x 5 half a GB.
  const DecoderSize decoding{
      {.height = 5, .width = 5, .rows = 4, .columns = 4}, 10, 10, [](int64_t h, int64_t w) {
        return h * w * kGb / 50;
      }};
  const auto options = [&](std::vector<ComponentMemory> components, int64_t free) {
    return plan_memory(std::move(components), MemoryRoom::of_gpu(0, free), false, decoding).options;
  };
  EXPECT_THAT(options(flux(), 30 * kGb),
              testing::ElementsAre("--text-encoder cpu", "--text-encoder load"));
  const std::vector<ComponentMemory> plain = {{"transformer", 24 * kGb, kGb},
                                              {"vae", kGb / 5, 2 * kGb}};
  const int64_t little = (27 * kGb) + (3 * kGb / 10);  // tiles fit
  EXPECT_THAT(options(plain, little),
              testing::ElementsAre("--vae-tiling", "--sp auto over 2 GPUs"));
  EXPECT_THAT(options(plain, 80 * kGb), testing::IsEmpty());
  EXPECT_THAT(to_string(plan_memory(plain, MemoryRoom::of_gpu(0, little), false, decoding)),
              testing::HasSubstr("all would stay with --vae-tiling, or --sp auto over 2 GPUs"));
}

// Pages of a file make room by themselves; weights that were made do not.
TEST(PipelineMemory, OfAHost) {
  std::vector<ComponentMemory> components = flux();
  EXPECT_THAT(refused(components, MemoryRoom::of_cpu(20 * kGb)),
              testing::AllOf(testing::HasSubstr("the CPU has 20.0 GB free, and the transformer"),
                             testing::HasSubstr("--device cuda"),
                             testing::Not(testing::HasSubstr("libraries"))));
  MemoryRoom made = MemoryRoom::of_cpu(30 * kGb);
  made.frees = false;
  EXPECT_THAT(refused(components, made), testing::HasSubstr("all components need 38.2 GB"));
  EXPECT_THAT(refused({{"vae", kGb, 40 * kGb}}, made), testing::HasSubstr("a smaller --size"));
  for (ComponentMemory& c : components) c.mapped = true;
  const PipelineMemory m = plan_memory(components, MemoryRoom::of_cpu(20 * kGb));
  EXPECT_TRUE(m.together);
  EXPECT_EQ(m.most, 4 * kGb);
  EXPECT_THAT(to_string(m), testing::HasSubstr("transformer: weights do not fit"));
}

}  // namespace
}  // namespace braid
