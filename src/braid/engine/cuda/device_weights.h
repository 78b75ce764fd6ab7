#pragma once

#include <map>
#include <memory>
#include <string>

#include "braid/backend/cuda/cuda_backend.h"
#include "braid/backend/cuda/upload.h"
#include "braid/engine/world.h"
#include "braid/parallel/layout_plan.h"

namespace braid::cuda {

// One rank's parts of the weights in its GPU's memory, as the file has them: quantized blocks stay
// blocks. Floats become the float type that the Program wants. Each weight is copied when a plan
// first asks for it, packed, and stays.
class DeviceWeights {
 public:
  // What `origin` names and `backend` outlive it.
  DeviceWeights(WeightOrigin origin, int rank, CudaBackend& backend)
      : origin_(std::move(origin)), rank_(rank), backend_(backend) {}

  TensorView get(const Value& value, const Placement& placement);

 private:
  TensorView upload(const TensorView& host, DType dtype);
  TensorView allocate(DType dtype, const Shape& shape);
  TensorView random(const RandomWeights::Tensor& tensor, const Placement& placement);

  const WeightOrigin origin_;
  const int rank_;
  CudaBackend& backend_;
  // By where the bytes come from and which part: tied weights share a copy.
  std::map<std::string, TensorView> views_;
  std::vector<std::unique_ptr<DeviceMemory>> memory_;
  std::unique_ptr<Uploader> uploader_;
};

}  // namespace braid::cuda
