#pragma once

#include <memory>

#include "braid/backend/backend.h"
#include "braid/base/error.h"
#include "braid/kernels/cuda/attention/paged_call.h"
#include "braid/kernels/cuda/bind.h"
#include "braid/kernels/cuda/decode/decode_config.h"

// Shared by the files that bind the op `attention`.
namespace braid::cuda {

namespace attention_input {
enum Input : size_t { kQ, kCacheK, kCacheV, kQStart, kKvLen, kPageTable };
}  // namespace attention_input

// A micro-batch's rows, counted like its metadata from the whole batch's first token.
TensorView from_first_token(const OpCall& call, TensorView view);

// The call's operands, without spans.
PagedOperands paged_operands(const OpCall& call);

std::vector<ValueType> types_of(std::span<const TensorView> views);

// False if f() fails with kUnsupported.
template <class F>
bool supported(F&& f) {
  try {
    f();
    return true;
  } catch (const Error& e) {
    if (e.code() != ErrorCode::kUnsupported) throw;
    return false;
  }
}

// Whether segment attention takes the call.
bool takes_segments(const ops::AttentionAttrs& attrs, TypeList in, const ValueType& out);

DecodeDevice decode_device_of(const DeviceInfo& device);
DecodeDesc decode_desc(const ops::AttentionAttrs& attrs, TypeList in, const ValueType& out);

// The plain kernel, for any shape. With dual chunks `turns` holds rope_turns(), else it is null.
BoundKernel bind_plain_attention(const LaunchArgs& args, std::shared_ptr<DeviceMemory> turns);

// Attention with dual chunks (ops/dual_chunks.h).
KernelInfo dual_attention_info(const ops::AttentionAttrs& attrs, TypeList in, const ValueType& out,
                               const DeviceInfo& device);
BoundKernel bind_dual_attention(const LaunchArgs& args, Scratch& segments, Scratch& decode);

}  // namespace braid::cuda
