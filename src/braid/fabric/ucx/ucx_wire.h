#pragma once

#include <cstdint>

#include "braid/fabric/fabric.h"

namespace braid::fabric {

inline constexpr unsigned kFabricMessages = 1;  // their number at the worker

// A message's header between processes in a UcxFabric. A block travels without gaps. The header of
// a put may be followed by that of the signal behind the put.
struct UcxHeader {
  enum class Kind : uint8_t {
    put,        // data for `rows` runs of row_bytes, `stride` apart
    signal,     // `value`
    get,        // a wish for such runs; `value` names it
    reply,      // the data of the wish `value`
    allocation  // the name of segment `segment` with `offset` bytes a rank
  };
  Kind kind = Kind::put;
  SignalOp op = SignalOp::set;
  uint16_t generation = 0;  // of the fabric
  int32_t from = 0;         // process
  int32_t rank = 0;         // whose memory, at the receiver
  uint32_t segment = 0;
  uint64_t sequence = 0;  // of puts and signals between two processes, in call order
  int64_t offset = 0;
  int64_t row_bytes = 0;
  int64_t rows = 1;
  int64_t stride = 0;
  uint64_t value = 0;
};
static_assert(sizeof(UcxHeader) == 64);

// Copies rows; strides count only with several rows.
void copy_rows(std::byte* dst, int64_t dst_stride, const std::byte* src, int64_t src_stride,
               int64_t row_bytes, int64_t rows);

}  // namespace braid::fabric
