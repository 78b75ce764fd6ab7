#include "backend/cuda/decode/late_writer.h"
#include "braid/kernels/cuda/ptx/barrier.h"

namespace braid::cuda::test {
namespace {

// Rows of `slot_bytes` at `slots`, from `source` or NaN.
__global__ void write_rows(uint8_t* q, uint8_t* k, uint8_t* v, const uint8_t* q_source,
                           const uint8_t* k_source, const uint8_t* v_source, int64_t q_bytes,
                           int64_t slot_bytes, const int64_t* slots, int num_slots, bool late) {
  ptx::grid_launch_dependents();
  ptx::grid_dependency_wait();
  if (late) {
    const int64_t begin = clock64();
    while (clock64() - begin < 40000) {
    }
  }
  for (int64_t i = threadIdx.x; i < q_bytes; i += blockDim.x) q[i] = late ? q_source[i] : 0xff;
  for (int s = 0; s < num_slots; ++s) {
    for (int64_t i = threadIdx.x; i < slot_bytes; i += blockDim.x) {
      const int64_t at = slots[s] * slot_bytes + i;
      k[at] = late ? k_source[at] : 0xff;
      v[at] = late ? v_source[at] : 0xff;
    }
  }
}

uint8_t* bytes(const DeviceBuffer<std::byte>& b) {
  return reinterpret_cast<uint8_t*>(b.data());
}

}  // namespace

LateWriter::LateWriter(const DeviceBuffer<std::byte>& q, const DeviceBuffer<std::byte>& k,
                       const DeviceBuffer<std::byte>& v, const std::vector<int64_t>& slots,
                       int64_t slot_bytes)
    : to_q_(q),
      to_k_(k),
      to_v_(v),
      q_bytes_(static_cast<int64_t>(q.download().size())),
      slot_bytes_(slot_bytes),
      q_(q.download()),
      k_(k.download()),
      v_(v.download()),
      slots_(slots),
      num_slots_(static_cast<int>(slots.size())) {}

void LateWriter::poison(cudaStream_t stream) {
  launch_kernel({stream, false}, write_rows, 1, 256, 0, bytes(to_q_), bytes(to_k_), bytes(to_v_),
                bytes(q_), bytes(k_), bytes(v_), q_bytes_, slot_bytes_, slots_.data(), num_slots_,
                false);
}

void LateWriter::write(LaunchContext context) {
  launch_kernel(context, write_rows, 1, 256, 0, bytes(to_q_), bytes(to_k_), bytes(to_v_), bytes(q_),
                bytes(k_), bytes(v_), q_bytes_, slot_bytes_, slots_.data(), num_slots_, true);
}

}  // namespace braid::cuda::test
