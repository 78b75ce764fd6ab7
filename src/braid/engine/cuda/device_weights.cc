#include "braid/engine/cuda/device_weights.h"

#include "braid/engine/rank.h"
#include "braid/kernels/cuda/sampling/device/random_fill.h"

namespace braid::cuda {
namespace {

// Kernels may read a weight's last bytes in whole vectors.
constexpr int64_t kSlack = 256;

}  // namespace

TensorView DeviceWeights::get(const Value& value, const Placement& placement) {
  if (model_.random()) {
    const RandomWeights::Tensor& tensor = model_.random()->tensors().find(value.name)->second;
    const bool drawn = tensor.draw.stddev > 0 && is_float(tensor.dtype);
    if (drawn && tensor.shape.rank() == 3 && placement.is_shard() && placement.dim > 0) {
      fail(ErrorCode::kUnsupported, "{}: random weights of experts are not divided over GPUs",
           value.name);
    }
    if (drawn) return random(tensor, placement);
  }
  const TensorView host = cut(model_.weight(value.name), placement, rank_);
  const std::string key =
      fmt::format("{} {}", static_cast<const void*>(host.data), to_string(host.shape));
  if (const auto it = views_.find(key); it != views_.end()) return it->second;
  const TensorView view = allocate(host.dtype, host.shape);
  if (!uploader_) uploader_ = std::make_unique<Uploader>(backend_.device().id);
  if (host.matrices) {  // they lie apart in the file, and one behind the other here
    for (int64_t i = 0; i < host.shape[0]; ++i) {
      uploader_->copy(matrix(view, i).data, matrix(host, i));
    }
  } else {
    uploader_->copy(view.data, host);
  }
  uploader_->finish();
  return views_[key] = view;
}

TensorView DeviceWeights::allocate(DType dtype, const Shape& shape) {
  memory_.push_back(backend_.allocate(make_view(nullptr, dtype, shape).bytes() + kSlack));
  return make_view(memory_.back()->data(), dtype, shape);
}

// Made on the GPU, the same numbers at the same places however the tensor is divided.
TensorView DeviceWeights::random(const RandomWeights::Tensor& tensor, const Placement& placement) {
  const std::string key = fmt::format("{} {}", tensor.seed, to_string(placement));
  if (const auto it = views_.find(key); it != views_.end()) return it->second;
  const TensorView whole = make_view(nullptr, tensor.dtype, tensor.shape);
  const TensorView part = cut(whole, placement, rank_);
  const TensorView view = allocate(part.dtype, part.shape);
  const auto elems = (part.data - whole.data) / info(tensor.dtype).block_bytes;
  random_fill({.out = view,
               .first = elems,
               .index_stride = whole.cols(),
               .seed = tensor.seed,
               .stddev = tensor.draw.stddev},
              {backend_.stream(Stream::compute)});
  check_cuda(cudaStreamSynchronize(backend_.stream(Stream::compute)), "random weights");
  return views_[key] = view;
}

}  // namespace braid::cuda
