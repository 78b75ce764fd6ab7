#pragma once

#include <memory>
#include <vector>

#include "braid/backend/cuda/memory.h"
#include "braid/engine/attention/attention_modes.h"
#include "braid/kernels/cuda/attention/device/launch.h"

// The same attention on a single GPU, to compare with.
namespace braid::attention_modes {

enum Tensor : uint64_t { kQ = 1, kK, kV, kJointQ, kJointK, kJointV };

// Rows position, position + step, ... of a tensor [L, width] in bf16, for sequence b. The numbers
// are the same on every device.
void fill_rows(std::byte* out, Tensor tensor, int64_t b, int64_t position, int64_t rows,
               int64_t step, int64_t width, cudaStream_t stream);

// A call over as many (query, key) pairs as a rank's calls have, with a single segment of each.
class PlainCall {
 public:
  PlainCall(const ModePlan& plan, int rank, const cuda::DeviceInfo& device);
  bool there() const { return there_; }  // false under a mask, or if groups of heads are cut
  void launch(cudaStream_t stream);

 private:
  cuda::CudaMemory workspace_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  cuda::AttentionDesc desc_;
  cuda::QTensor q_;
  cuda::KvTensor kv_;
  cuda::AttentionConfig config_;
  const int num_sms_;
  bool there_ = false;
};

// Evenly spaced rows of the first and the last sequence's result, [samples, heads * D].
struct Samples {
  std::vector<int64_t> positions;  // over the sequences, one behind the other
  std::vector<uint16_t> rows;
};

// Of a rank's result o [B, L, heads, D], in device memory.
Samples samples_of(const SequenceAttention& attention, int rank, const TensorView& o);
// A single call on the current device, which is `device`. Takes attention without a mask.
Samples one_gpu(const SequenceAttention& attention, int device);
// At process 0 fills `samples` [ranks], a rank for each process, from all processes.
void gather_samples(job::Job& job, std::vector<Samples>& samples);
double largest_difference(const Samples& got, const Samples& want, int64_t width);

}  // namespace braid::attention_modes
