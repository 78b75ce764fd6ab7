#pragma once

#include "braid/kernels/cuda/attention/config.h"

// The Hopper kernels that are built, each as
// X(Dqk, Dv, consumer warpgroups, block_n, KV stages, Q stages, CTAs per SM, CTAs per cluster,
//   queries in registers, keys split among CTAs on request, HopperForm,
//   TFLOP/s on long calls, us of an item beside its tiles)
// The last two come from runs on an H200 (values for 256 x 64 are estimates) and only weigh the
// variants against each other.
#define BRAID_HOPPER_VARIANTS(X)                     \
  X(64, 64, 3, 128, 4, 2, 1, 2, 0, 0, 0, 541, 4.3)   \
  X(64, 64, 3, 128, 4, 2, 1, 1, 0, 0, 0, 530, 3.5)   \
  X(64, 64, 1, 64, 2, 1, 2, 1, 0, 1, 0, 366, 2.5)    \
  X(64, 64, 1, 64, 2, 1, 2, 1, 0, 1, 1, 366, 2.5)    \
  X(64, 64, 3, 128, 3, 2, 1, 1, 0, 0, 2, 530, 3.5)   \
  X(64, 64, 3, 128, 4, 2, 1, 2, 0, 0, 3, 541, 12.0)  \
  X(64, 64, 3, 128, 4, 2, 1, 1, 0, 0, 3, 530, 3.5)   \
  X(64, 64, 3, 128, 4, 2, 1, 1, 0, 0, 4, 530, 3.5)   \
  X(96, 96, 3, 112, 2, 1, 1, 2, 0, 0, 0, 621, 5.9)   \
  X(96, 96, 3, 112, 2, 1, 1, 1, 0, 0, 0, 615, 5.6)   \
  X(96, 96, 2, 128, 3, 1, 1, 1, 0, 0, 0, 533, 2.2)   \
  X(96, 96, 1, 64, 2, 1, 2, 1, 0, 1, 0, 400, 2.0)    \
  X(96, 96, 1, 64, 2, 1, 2, 1, 0, 1, 1, 400, 2.0)    \
  X(96, 96, 3, 96, 2, 1, 1, 1, 0, 0, 2, 594, 5.6)    \
  X(96, 96, 3, 112, 2, 1, 1, 1, 0, 0, 3, 615, 5.6)   \
  X(96, 96, 2, 128, 3, 1, 1, 1, 0, 0, 3, 533, 2.2)   \
  X(96, 96, 3, 112, 2, 1, 1, 1, 0, 0, 4, 615, 5.6)   \
  X(128, 128, 2, 176, 2, 1, 1, 2, 0, 0, 0, 698, 3.9) \
  X(128, 128, 2, 128, 3, 1, 1, 1, 1, 0, 0, 658, 2.2) \
  X(128, 128, 1, 64, 2, 1, 2, 1, 0, 1, 0, 480, 2.2)  \
  X(128, 128, 1, 64, 2, 1, 2, 1, 0, 1, 1, 480, 2.2)  \
  X(128, 128, 2, 128, 2, 1, 1, 1, 1, 0, 2, 674, 1.3) \
  X(128, 128, 2, 176, 2, 1, 1, 2, 0, 0, 3, 691, 8.0) \
  X(128, 128, 2, 128, 3, 1, 1, 1, 1, 0, 3, 658, 2.2) \
  X(128, 128, 2, 128, 3, 1, 1, 1, 1, 0, 4, 658, 2.2) \
  X(192, 128, 2, 128, 2, 1, 1, 2, 0, 0, 0, 697, 4.2) \
  X(192, 128, 2, 128, 2, 1, 1, 1, 0, 0, 0, 683, 4.2) \
  X(192, 128, 1, 64, 2, 1, 2, 1, 0, 1, 0, 480, 2.0)  \
  X(192, 128, 2, 128, 2, 1, 1, 2, 0, 0, 1, 697, 4.2) \
  X(192, 128, 2, 128, 2, 1, 1, 1, 0, 0, 1, 683, 4.2) \
  X(192, 128, 1, 64, 2, 1, 2, 1, 0, 1, 1, 480, 2.0)  \
  X(192, 128, 2, 128, 2, 1, 1, 1, 0, 0, 3, 683, 4.2) \
  X(192, 128, 2, 128, 2, 1, 1, 1, 0, 0, 4, 683, 4.2) \
  X(256, 256, 2, 80, 2, 1, 1, 2, 0, 0, 0, 758, 6.7)  \
  X(256, 256, 2, 80, 2, 1, 1, 1, 0, 0, 0, 734, 4.5)  \
  X(256, 256, 2, 64, 2, 1, 1, 1, 0, 0, 0, 680, 4.5)  \
  X(256, 256, 1, 64, 2, 1, 1, 1, 0, 1, 0, 450, 2.5)  \
  X(256, 256, 2, 80, 2, 1, 1, 2, 0, 0, 1, 758, 6.7)  \
  X(256, 256, 2, 80, 2, 1, 1, 1, 0, 0, 1, 734, 4.5)  \
  X(256, 256, 1, 64, 2, 1, 1, 1, 0, 1, 1, 450, 2.5)  \
  X(256, 256, 2, 80, 2, 1, 1, 1, 0, 0, 3, 734, 4.5)  \
  X(256, 256, 2, 80, 2, 1, 1, 1, 0, 0, 4, 734, 4.5)

namespace braid::cuda {

struct HopperVariant {
  int head_dim_qk;
  int head_dim_v;
  int consumers;
  int block_n;
  int kv_stages;
  int q_stages;
  int ctas_per_sm;
  int cluster;
  bool q_in_registers;
  bool splits;
  HopperForm form;
  double tflops;
  double item_us;
};

#define BRAID_VARIANT_ROW(qk, v, consumers, n, kv_stages, q_stages, ctas, cluster, q_reg, splits, \
                          form, tflops, item_us)                                                  \
  {qk,    v,      consumers,        n,      kv_stages, q_stages, ctas, cluster,                   \
   q_reg, splits, HopperForm(form), tflops, item_us},
inline constexpr HopperVariant kHopperVariants[] = {BRAID_HOPPER_VARIANTS(BRAID_VARIANT_ROW)};
#undef BRAID_VARIANT_ROW

}  // namespace braid::cuda
