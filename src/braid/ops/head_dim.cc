#include "braid/ops/head_dim.h"

#include "braid/ops/dense_attention.h"
#include "braid/ops/segment_attention.h"

namespace braid::ops {

int64_t head_dim_of(const Op& op, TypeList in) {
  if (op.def == &kDenseAttention) return op.attrs.as<DenseAttentionAttrs>().head_dim;
  if (op.def == &kSegmentAttention) return in[SegmentAttentionAttrs::kFirstQ].shape[3];
  return 0;
}

}  // namespace braid::ops
