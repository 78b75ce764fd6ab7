#pragma once

#include <iterator>

#include "braid/kernels/cuda/attention/config.h"

// The kernels that are built: adding a row makes a kernel, for bf16 and for f16.
namespace braid::cuda {

// An instance of the Hopper kernel. `tflops` and `item_us` come from runs on an H200 (values for
// 256 x 64 are estimates) and only weigh the variants against each other.
struct HopperVariant {
  int head_dim_qk = 0;
  int head_dim_v = 0;
  int consumers = 0;            // warpgroups that multiply, with 64 rows each
  int block_n = 0;              // keys of a tile
  int kv_stages = 0;            // key tiles in shared memory
  int q_stages = 1;             // query tiles in shared memory
  int ctas_per_sm = 1;          // CTAs that fit on an SM
  int cluster = 1;              // CTAs that share key tiles
  bool q_in_registers = false;  // queries, instead of shared memory
  bool splits = false;          // splits an item's keys among CTAs on request
  HopperForm form = HopperForm::kWhole;
  double tflops = 0;   // TFLOP/s of long calls
  double item_us = 0;  // an item's time beside its tiles
};

// clang-format off
inline constexpr HopperVariant kHopperVariants[] = {
    {.head_dim_qk = 64, .head_dim_v = 64, .consumers = 3, .block_n = 128, .kv_stages = 4,
     .q_stages = 2, .cluster = 2, .tflops = 541, .item_us = 4.3},
    {.head_dim_qk = 64, .head_dim_v = 64, .consumers = 3, .block_n = 128, .kv_stages = 4,
     .q_stages = 2, .tflops = 530, .item_us = 3.5},
    {.head_dim_qk = 64, .head_dim_v = 64, .consumers = 1, .block_n = 64, .kv_stages = 2,
     .ctas_per_sm = 2, .splits = true, .tflops = 366, .item_us = 2.5},
    {.head_dim_qk = 64, .head_dim_v = 64, .consumers = 1, .block_n = 64, .kv_stages = 2,
     .ctas_per_sm = 2, .splits = true, .form = HopperForm::kCarrying, .tflops = 366, .item_us = 2.5},
    {.head_dim_qk = 64, .head_dim_v = 64, .consumers = 3, .block_n = 128, .kv_stages = 3,
     .q_stages = 2, .form = HopperForm::kStaged, .tflops = 530, .item_us = 3.5},
    {.head_dim_qk = 64, .head_dim_v = 64, .consumers = 3, .block_n = 128, .kv_stages = 4,
     .q_stages = 2, .cluster = 2, .form = HopperForm::kArriving, .tflops = 541, .item_us = 12.0},
    {.head_dim_qk = 64, .head_dim_v = 64, .consumers = 3, .block_n = 128, .kv_stages = 4,
     .q_stages = 2, .form = HopperForm::kArriving, .tflops = 530, .item_us = 3.5},
    {.head_dim_qk = 96, .head_dim_v = 96, .consumers = 3, .block_n = 112, .kv_stages = 2,
     .cluster = 2, .tflops = 621, .item_us = 5.9},
    {.head_dim_qk = 96, .head_dim_v = 96, .consumers = 3, .block_n = 112, .kv_stages = 2,
     .tflops = 615, .item_us = 5.6},
    {.head_dim_qk = 96, .head_dim_v = 96, .consumers = 2, .block_n = 128, .kv_stages = 3,
     .tflops = 533, .item_us = 2.2},
    {.head_dim_qk = 96, .head_dim_v = 96, .consumers = 1, .block_n = 64, .kv_stages = 2,
     .ctas_per_sm = 2, .splits = true, .tflops = 400, .item_us = 2.0},
    {.head_dim_qk = 96, .head_dim_v = 96, .consumers = 1, .block_n = 64, .kv_stages = 2,
     .ctas_per_sm = 2, .splits = true, .form = HopperForm::kCarrying, .tflops = 400, .item_us = 2.0},
    {.head_dim_qk = 96, .head_dim_v = 96, .consumers = 3, .block_n = 96, .kv_stages = 2,
     .form = HopperForm::kStaged, .tflops = 594, .item_us = 5.6},
    {.head_dim_qk = 96, .head_dim_v = 96, .consumers = 3, .block_n = 112, .kv_stages = 2,
     .form = HopperForm::kArriving, .tflops = 615, .item_us = 5.6},
    {.head_dim_qk = 96, .head_dim_v = 96, .consumers = 2, .block_n = 128, .kv_stages = 3,
     .form = HopperForm::kArriving, .tflops = 533, .item_us = 2.2},
    {.head_dim_qk = 128, .head_dim_v = 128, .consumers = 2, .block_n = 176, .kv_stages = 2,
     .cluster = 2, .tflops = 698, .item_us = 3.9},
    {.head_dim_qk = 128, .head_dim_v = 128, .consumers = 2, .block_n = 128, .kv_stages = 3,
     .q_in_registers = true, .tflops = 658, .item_us = 2.2},
    {.head_dim_qk = 128, .head_dim_v = 128, .consumers = 1, .block_n = 64, .kv_stages = 2,
     .ctas_per_sm = 2, .splits = true, .tflops = 480, .item_us = 2.2},
    {.head_dim_qk = 128, .head_dim_v = 128, .consumers = 1, .block_n = 64, .kv_stages = 2,
     .ctas_per_sm = 2, .splits = true, .form = HopperForm::kCarrying, .tflops = 480, .item_us = 2.2},
    {.head_dim_qk = 128, .head_dim_v = 128, .consumers = 2, .block_n = 128, .kv_stages = 2,
     .q_in_registers = true, .form = HopperForm::kStaged, .tflops = 674, .item_us = 1.3},
    {.head_dim_qk = 128, .head_dim_v = 128, .consumers = 2, .block_n = 176, .kv_stages = 2,
     .cluster = 2, .form = HopperForm::kArriving, .tflops = 691, .item_us = 8.0},
    {.head_dim_qk = 128, .head_dim_v = 128, .consumers = 2, .block_n = 128, .kv_stages = 3,
     .q_in_registers = true, .form = HopperForm::kArriving, .tflops = 658, .item_us = 2.2},
    {.head_dim_qk = 192, .head_dim_v = 128, .consumers = 2, .block_n = 128, .kv_stages = 2,
     .cluster = 2, .tflops = 697, .item_us = 4.2},
    {.head_dim_qk = 192, .head_dim_v = 128, .consumers = 2, .block_n = 128, .kv_stages = 2,
     .tflops = 683, .item_us = 4.2},
    {.head_dim_qk = 192, .head_dim_v = 128, .consumers = 1, .block_n = 64, .kv_stages = 2,
     .ctas_per_sm = 2, .splits = true, .tflops = 480, .item_us = 2.0},
    {.head_dim_qk = 192, .head_dim_v = 128, .consumers = 2, .block_n = 128, .kv_stages = 2,
     .cluster = 2, .form = HopperForm::kCarrying, .tflops = 697, .item_us = 4.2},
    {.head_dim_qk = 192, .head_dim_v = 128, .consumers = 2, .block_n = 128, .kv_stages = 2,
     .form = HopperForm::kCarrying, .tflops = 683, .item_us = 4.2},
    {.head_dim_qk = 192, .head_dim_v = 128, .consumers = 1, .block_n = 64, .kv_stages = 2,
     .ctas_per_sm = 2, .splits = true, .form = HopperForm::kCarrying, .tflops = 480, .item_us = 2.0},
    {.head_dim_qk = 192, .head_dim_v = 128, .consumers = 2, .block_n = 128, .kv_stages = 2,
     .form = HopperForm::kArriving, .tflops = 683, .item_us = 4.2},
    {.head_dim_qk = 256, .head_dim_v = 256, .consumers = 2, .block_n = 80, .kv_stages = 2,
     .cluster = 2, .tflops = 758, .item_us = 6.7},
    {.head_dim_qk = 256, .head_dim_v = 256, .consumers = 2, .block_n = 80, .kv_stages = 2,
     .tflops = 734, .item_us = 4.5},
    {.head_dim_qk = 256, .head_dim_v = 256, .consumers = 2, .block_n = 64, .kv_stages = 2,
     .tflops = 680, .item_us = 4.5},
    {.head_dim_qk = 256, .head_dim_v = 256, .consumers = 1, .block_n = 64, .kv_stages = 2,
     .splits = true, .tflops = 450, .item_us = 2.5},
    {.head_dim_qk = 256, .head_dim_v = 256, .consumers = 2, .block_n = 80, .kv_stages = 2,
     .cluster = 2, .form = HopperForm::kCarrying, .tflops = 758, .item_us = 6.7},
    {.head_dim_qk = 256, .head_dim_v = 256, .consumers = 2, .block_n = 80, .kv_stages = 2,
     .form = HopperForm::kCarrying, .tflops = 734, .item_us = 4.5},
    {.head_dim_qk = 256, .head_dim_v = 256, .consumers = 1, .block_n = 64, .kv_stages = 2,
     .splits = true, .form = HopperForm::kCarrying, .tflops = 450, .item_us = 2.5},
    {.head_dim_qk = 256, .head_dim_v = 256, .consumers = 2, .block_n = 80, .kv_stages = 2,
     .form = HopperForm::kArriving, .tflops = 734, .item_us = 4.5},
};
// clang-format on
constexpr int kNumHopperVariants = static_cast<int>(std::size(kHopperVariants));

// The variant's index that computes the call with `config`; -1: none does.
int hopper_variant(const AttentionDesc& desc, const AttentionConfig& config);

// An instance of the generic kernel, with 64 keys a tile, or 32 for heads above 128.
struct GenericVariant {
  int head_dim_qk = 0;
  int head_dim_v = 0;
  int block_m = 0;  // rows of a tile
};

inline constexpr GenericVariant kGenericVariants[] = {
    {64, 64, 128},   {64, 64, 64},   {96, 96, 128},  {96, 96, 64},
    {128, 128, 128}, {128, 128, 64}, {192, 128, 64}, {256, 256, 64},
};
constexpr int kNumGenericVariants = static_cast<int>(std::size(kGenericVariants));

}  // namespace braid::cuda
