#pragma once

#include "backend/cuda/decode/decode_case.h"

namespace braid::cuda::test {

// Stands for the kernels before an attention: takes the new rows of q, k and v away and brings them
// back, late.
class LateWriter {
 public:
  // Writes all of q, and `slot_bytes` at each of `slots` of k and v. The buffers outlive the
  // writer.
  LateWriter(const DeviceBuffer<std::byte>& q, const DeviceBuffer<std::byte>& k,
             const DeviceBuffer<std::byte>& v, const std::vector<int64_t>& slots,
             int64_t slot_bytes);
  // Makes them NaN. A full dependency: nothing after it begins before it is done.
  void poison(cudaStream_t stream);
  // Lets dependents launch at once, writes the rows some 20 us later.
  void write(LaunchContext context);

 private:
  const DeviceBuffer<std::byte>&to_q_, &to_k_, &to_v_;
  int64_t q_bytes_;
  int64_t slot_bytes_;
  DeviceBuffer<std::byte> q_, k_, v_;
  DeviceBuffer<int64_t> slots_;
  int num_slots_;
};

}  // namespace braid::cuda::test
