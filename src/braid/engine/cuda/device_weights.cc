#include "braid/engine/cuda/device_weights.h"

#include "braid/engine/rank.h"
#include "braid/kernels/cuda/sampling/device/random_fill.h"
#include "braid/tensor/quant.h"

namespace braid::cuda {
namespace {

// Kernels may read a weight's last bytes in whole vectors.
constexpr int64_t kSlack = 256;

}  // namespace

TensorView DeviceWeights::get(const Value& value, const Placement& placement) {
  if (whole_ && placement.is_shard()) {
    return cut(get(value, Placement::replicated()), placement, rank_);
  }
  if (origin_.random != nullptr) {
    const RandomWeights::Tensor& tensor = origin_.random->tensors().find(value.name)->second;
    const bool drawn = tensor.draw.stddev > 0 && is_float(tensor.dtype);
    if (drawn && tensor.shape.rank() == 3 && placement.is_shard() && placement.dim > 0) {
      fail(ErrorCode::kUnsupported, "{}: random weights of experts are not divided over GPUs",
           value.name);
    }
    if (drawn) return random(tensor, placement);
  }
  const TensorView host = cut(origin_.weight(value.name), placement, rank_);
  const DType wanted = value.type.dtype;
  const bool converts = is_float(host.dtype) && is_float(wanted) && !host.matrices;
  const DType dtype = converts ? wanted : host.dtype;
  const std::string key = fmt::format("{} {} {}", static_cast<const void*>(host.data),
                                      to_string(host.shape), name(dtype));
  if (const auto it = views_.find(key); it != views_.end()) return it->second;
  return views_[key] = upload(host, dtype);
}

TensorView DeviceWeights::upload(const TensorView& host, DType dtype) {
  const TensorView view = allocate(dtype, host.shape);
  TensorView from = host;
  std::vector<std::byte> converted;
  if (dtype != host.dtype) {
    converted.resize(view.bytes());
    from = make_view(converted.data(), dtype, host.shape);
    std::vector<float> row(host.cols());
    for (int64_t r = 0; r < host.rows(); ++r) {
      dequantize_row(host.dtype, host.row(r), row.data(), host.cols());
      quantize_row(dtype, row.data(), from.row(r), host.cols());
    }
  }
  if (!uploader_) uploader_ = std::make_unique<Uploader>(backend_.device().id);
  if (host.matrices) {  // apart in the file, one behind the other here
    for (int64_t i = 0; i < host.shape[0]; ++i) {
      uploader_->copy(matrix(view, i).data, matrix(host, i));
    }
  } else {
    uploader_->copy(view.data, from);
  }
  uploader_->finish();
  return view;
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
