#pragma once

#include <map>
#include <memory>
#include <string>

#include "braid/backend/cuda/cuda_backend.h"
#include "braid/backend/cuda/upload.h"
#include "braid/engine/world.h"
#include "braid/parallel/layout_plan.h"

namespace braid::cuda {

// A rank's parts of the weights in its GPU's memory, in the file's form: quantized blocks stay
// blocks. Floats become the Program's float type. A plan's first use of a weight copies it, packed,
// for good. With `whole` the GPU keeps whole weights, and parts are views: rows, or columns with
// the whole weight's distance from row to row.
class DeviceWeights {
 public:
  // The objects named by `origin`, and `backend`, outlive the weights.
  DeviceWeights(WeightOrigin origin, int rank, CudaBackend& backend, bool whole)
      : origin_(std::move(origin)), rank_(rank), backend_(backend), whole_(whole) {}

  TensorView get(const Value& value, const Placement& placement);

 private:
  TensorView upload(const TensorView& host, DType dtype);
  TensorView allocate(DType dtype, const Shape& shape);
  TensorView random(const RandomWeights::Tensor& tensor, const Placement& placement);

  const WeightOrigin origin_;
  const int rank_;
  CudaBackend& backend_;
  const bool whole_;
  // By source bytes and part: tied weights share a copy.
  std::map<std::string, TensorView> views_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  std::unique_ptr<Uploader> uploader_;
};

}  // namespace braid::cuda
