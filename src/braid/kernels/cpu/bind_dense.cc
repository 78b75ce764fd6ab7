// Binds the ops of networks without a KV cache.
#include "braid/kernels/cpu/bind.h"
#include "braid/ops/concat.h"
#include "braid/ops/dense_attention.h"
#include "braid/ops/layer_norm.h"
#include "braid/ops/rope_table.h"
#include "braid/ops/timestep.h"
#include "braid/ops/unary.h"

namespace braid::cpu {

void add_dense_kernels(KernelTable& table, Isa) {
  for (const OpDef* def :
       {&ops::kDenseAttention, &ops::kLayerNorm, &ops::kGatedAdd, &ops::kUnary, &ops::kRopeTable,
        &ops::kTimestepEmbedding, &ops::kConcatRows, &ops::kTakeRows, &ops::kConcatColumns}) {
    add_reference_kernel(table, *def);
  }
}

}  // namespace braid::cpu
