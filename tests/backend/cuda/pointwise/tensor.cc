#include "backend/cuda/pointwise/tensor.h"

#include <algorithm>

namespace braid::cuda::test {

Tensor::Tensor(DType dtype, Shape shape, int64_t gap, int64_t skip)
    : dtype_(dtype),
      shape_(shape),
      row_bytes_(bytes_of(dtype, shape[-1] + gap)),
      skip_(bytes_of(dtype, skip)) {
  host_.assign(static_cast<size_t>(skip_ + row_bytes_ * shape.rows()), kPoison);
  check_cuda(cudaMalloc(&device_, std::max<size_t>(host_.size(), 1)), "test");
  upload();
}

Tensor& Tensor::normal(std::mt19937& rng, float scale) {
  std::normal_distribution<float> normal(0, scale);
  const int64_t cols = shape_[-1];
  std::vector<float> x(static_cast<size_t>(cols));
  for (int64_t r = 0; r < shape_.rows(); ++r) {
    for (float& v : x) v = normal(rng);
    std::byte* to = host().row(r);
    const auto bytes = static_cast<size_t>(bytes_of(dtype_, cols));
    if (dtype_ != DType::q4_k && dtype_ != DType::q5_k && dtype_ != DType::q6_k) {
      quantize_row(dtype_, x.data(), to, cols);
      continue;
    }
    // Any bits are a block but for the scales, which are kept small.
    for (size_t i = 0; i < bytes; ++i) to[i] = static_cast<std::byte>(rng());
    const size_t block = static_cast<size_t>(info(dtype_).block_bytes);
    for (size_t at = 0; at < bytes; at += block) {
      const f16 d = to_f16(0.01f * normal(rng)), dmin = to_f16(0.01f * normal(rng));
      if (dtype_ == DType::q6_k) {
        std::memcpy(to + at + offsetof(BlockQ6_K, d), &d, 2);
      } else {
        std::memcpy(to + at, &d, 2);
        std::memcpy(to + at + 2, &dmin, 2);
      }
    }
  }
  return upload();
}

Tensor& Tensor::integers(const std::vector<int32_t>& values) {
  std::memcpy(host_.data() + skip_, values.data(), values.size() * 4);
  return upload();
}

Tensor& Tensor::upload() {
  check_cuda(cudaMemcpy(device_, host_.data(), host_.size(), cudaMemcpyHostToDevice), "test");
  return *this;
}

void Tensor::download() {
  check_cuda(cudaMemcpy(host_.data(), device_, host_.size(), cudaMemcpyDeviceToHost), "test");
}

void Tensor::poison() {
  std::fill(host_.begin(), host_.end(), kPoison);
  upload();
}

std::vector<float> Tensor::row(int64_t r) {
  std::vector<float> out(static_cast<size_t>(shape_[-1]));
  dequantize_row(dtype_, host().row(r), out.data(), shape_[-1]);
  return out;
}

std::string Tensor::compare(const TensorView& want, int64_t live,
                            const std::function<double(int64_t, int64_t)>& tolerance) {
  std::vector<float> w(static_cast<size_t>(shape_[-1]));
  std::vector<bool> written(host_.size());
  for (int64_t r = 0; r < live; ++r) {
    const std::vector<float> got = row(r);
    dequantize_row(want.dtype, want.row(r), w.data(), shape_[-1]);
    for (size_t c = 0; c < w.size(); ++c) {
      const double allowed = tolerance(r, static_cast<int64_t>(c));
      const bool both_nan = std::isnan(got[c]) && std::isnan(w[c]);
      if (!both_nan && !(std::abs(double{got[c]} - w[c]) <= allowed)) {
        return fmt::format("[{}, {}] is {}, not {} (tolerance {})", r, c, got[c], w[c], allowed);
      }
    }
    const auto begin = static_cast<size_t>(skip_ + r * row_bytes_);
    const auto end = begin + static_cast<size_t>(bytes_of(dtype_, shape_[-1]));
    std::fill(written.begin() + static_cast<ptrdiff_t>(begin),
              written.begin() + static_cast<ptrdiff_t>(end), true);
  }
  for (size_t i = 0; i < host_.size(); ++i) {
    if (!written[i] && host_[i] != kPoison) {
      return fmt::format("byte {} of {} was written; {} rows are live", i, host_.size(), live);
    }
  }
  return "";
}

void reference(const OpDef& def, const Attrs& attrs, std::vector<TensorView> in,
               std::vector<TensorView> out, int64_t live) {
  Op op;
  op.def = &def;
  op.attrs = attrs;
  BatchPart part;
  part.count.token = part.count.row = live;
  def.reference({&op, in, out, BatchAxis::token, &part});
}

}  // namespace braid::cuda::test
