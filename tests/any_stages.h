#pragma once

#include "braid/ops/segment_attention.h"

namespace braid {

// As kernels that take every call's stages.
inline bool any_stages(const ops::SegmentAttentionAttrs&, const ValueType&) {
  return true;
}

}  // namespace braid
