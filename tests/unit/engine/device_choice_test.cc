// Which device a job gets, on machines that are not there.
#include "braid/engine/device_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/base/error.h"

namespace braid {
namespace {

using testing::HasSubstr;

const GpuState kTwoGpus = {.built = true,
                           .runtime_version = 13000,
                           .driver_version = 13010,
                           .gpus = 2,
                           .first = "NVIDIA H100"};

GpuState without(GpuState state) {
  state.gpus = 0;
  return state;
}

TEST(DeviceChoiceTest, EachCauseIsNamed) {
  EXPECT_EQ(why_no_gpu(kTwoGpus), "");
  EXPECT_EQ(why_no_gpu({}), "this build has no CUDA");
  GpuState state = without(kTwoGpus);
  EXPECT_EQ(why_no_gpu(state), "this machine has no NVIDIA GPU");
  state.hidden = true;
  EXPECT_EQ(why_no_gpu(state), "CUDA_VISIBLE_DEVICES leaves no GPU");
  state = without(kTwoGpus);
  state.error = "system not yet initialized";
  EXPECT_EQ(why_no_gpu(state), "CUDA finds no GPU: system not yet initialized");
  state.driver_version = 12040;
  EXPECT_EQ(why_no_gpu(state),
            "the NVIDIA driver is too old: it serves CUDA 12.4, this build is of CUDA 13.0");
  state.driver_version = 0;
  EXPECT_EQ(why_no_gpu(state), "this machine has no NVIDIA driver");
}

TEST(DeviceChoiceTest, AutoTakesGpusWhereThereAreEnough) {
  EXPECT_TRUE(choose_device("auto", 2, kTwoGpus).device.cuda);
  EXPECT_EQ(choose_device("auto", 2, kTwoGpus).reason, "");
  EXPECT_FALSE(choose_device("auto", 4, kTwoGpus).device.cuda);
  EXPECT_EQ(choose_device("auto", 4, kTwoGpus).reason, "4 ranks and 2 GPUs");
  EXPECT_FALSE(choose_device("auto", 1, {}).device.cuda);
  EXPECT_EQ(choose_device("auto", 1, {}).reason, "this build has no CUDA");
}

TEST(DeviceChoiceTest, WhatIsNamedIsHadOrFails) {
  EXPECT_EQ(choose_device("cpu", 1, kTwoGpus).device, DeviceSpec{});
  EXPECT_EQ(choose_device("cuda:1,0", 2, kTwoGpus).device.ids, (std::vector{1, 0}));
  EXPECT_EQ(choose_device("cuda:0,0", 2, kTwoGpus).device.ids, (std::vector{0, 0}));
  const auto message = [](const char* text, int ranks, const GpuState& state) -> std::string {
    try {
      choose_device(text, ranks, state);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing";
  };
  EXPECT_THAT(message("cuda", 1, {}), HasSubstr("--device cuda: this build has no CUDA"));
  EXPECT_THAT(message("cuda:0", 1, without(kTwoGpus)), HasSubstr("no NVIDIA GPU"));
  EXPECT_THAT(message("cuda:2", 1, kTwoGpus), HasSubstr("2 GPUs are there (cuda:0 to cuda:1)"));
  EXPECT_THAT(message("cuda", 3, kTwoGpus), HasSubstr("wanted is cuda:2"));
  EXPECT_THAT(message("gpu", 1, kTwoGpus), HasSubstr("device 'gpu'"));
}

}  // namespace
}  // namespace braid
