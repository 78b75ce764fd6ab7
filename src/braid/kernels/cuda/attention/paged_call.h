#pragma once

#include "braid/kernels/cuda/attention/desc.h"
#include "braid/ops/attention.h"
#include "braid/tensor/view.h"

// The op `attention` (ops/attention.h) as segment attention: the prefill path. A captured launch
// serves every step up to its operands' capacities.
namespace braid::cuda {

// Operands of the op, on the device; shapes are capacities: S sequences, T tokens.
struct PagedOperands {
  TensorView q;           // bf16 or f16 [T, Hq * D], as the cache
  TensorView k_cache;     // [NB, BS, Hkv, D]
  TensorView v_cache;     // [NB, BS, Hkv, D]
  TensorView page_table;  // i32 [S, P]
  TensorView out;         // [T, Hq * D], as q
  // i32 [3 S + 1]: output of query_spans (decode/device/query_spans.h) for q_start, kv_len and the
  // live sequences, computed before each call.
  const int32_t* spans = nullptr;
};

struct PagedCall {
  AttentionDesc desc;
  QTensor q;
  KvTensor kv;
  // Points into this object.
  AttentionParams params() const { return {{&q, 1}, {&kv, 1}}; }
};

// The whole call, causal, with its window. Fails with kUnsupported for calls outside segment
// attention (decode attention, run over all rows, then answers, slowly): a softcap; q or out of
// another dtype than the cache; unequal numbers of query heads per KV head.
PagedCall make_paged_call(const ops::AttentionAttrs& attrs, const PagedOperands& operands);

}  // namespace braid::cuda
