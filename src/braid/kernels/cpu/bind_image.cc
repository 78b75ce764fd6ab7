// Binds the ops of pictures and of text encoders.
#include "braid/kernels/cpu/bind.h"
#include "braid/kernels/cpu/register.h"
#include "braid/ops/conv2d.h"
#include "braid/ops/group_norm.h"
#include "braid/ops/relative_bias.h"

namespace braid::cpu {

void add_image_kernels(KernelTable& table, Isa) {
  add_reference_kernel(table, ops::kConv2d);
  add_reference_kernel(table, ops::kGroupNorm);
  add_reference_kernel(table, ops::kRelativeBias);
}

}  // namespace braid::cpu
