#include "backend/cuda/linear/skinny_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "braid/backend/cuda/device.h"
#include "braid/base/math.h"
#include "braid/ops/linear.h"
#include "braid/tensor/quant.h"

namespace braid::cuda::test {

bool has_device() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

SkinnyDevice this_device() {
  static const SkinnyDevice device = [] {
    prepare_skinny_linear();
    const DeviceInfo info = device_info(0);
    return SkinnyDevice{info.compute_capability, info.num_sms,
                        static_cast<int>(info.shared_memory_per_cta),
                        static_cast<int>(info.shared_memory_per_sm)};
  }();
  return device;
}

DeviceBytes::DeviceBytes(size_t bytes) : size(bytes) {
  check_cuda(cudaMalloc(&data, round_up(std::max<size_t>(bytes, 1), 16)), "test memory");
}
DeviceBytes::~DeviceBytes() {
  cudaFree(data);
}
DeviceBytes::DeviceBytes(DeviceBytes&& other) noexcept
    : data(std::exchange(other.data, nullptr)), size(other.size) {}
DeviceBytes& DeviceBytes::operator=(DeviceBytes&& other) noexcept {
  std::swap(data, other.data);
  std::swap(size, other.size);
  return *this;
}
void DeviceBytes::upload(const void* from, size_t bytes) const {
  check_cuda(cudaMemcpy(data, from, bytes, cudaMemcpyHostToDevice), "upload");
}
std::vector<uint8_t> DeviceBytes::download() const {
  std::vector<uint8_t> out(size);
  check_cuda(cudaMemcpy(out.data(), data, size, cudaMemcpyDeviceToHost), "download");
  return out;
}
void DeviceBytes::poison() const {
  check_cuda(cudaMemset(data, 0xff, size), "poison");
}

namespace {

template <class T>
DeviceBytes on_device(const std::vector<T>& host) {
  DeviceBytes d(host.size() * sizeof(T));
  d.upload(host.data(), d.size);
  return d;
}

f16 random_f16(float magnitude, std::mt19937& rng) {
  return to_f16(magnitude * std::uniform_real_distribution<float>(-1, 1)(rng));
}

// K-formats cannot be written by quantize_row: random codes with scales of the wanted size.
void fill_super_blocks(DType dtype, uint8_t* row, int k, std::mt19937& rng) {
  const int size = info(dtype).block_bytes;
  const float magnitude = 1 / std::sqrt(static_cast<float>(k));
  for (int b = 0; b < k / 256; ++b) {
    uint8_t* block = row + b * size;
    for (int i = 0; i < size; ++i) block[i] = static_cast<uint8_t>(rng());
    if (dtype == DType::q6_k) {
      const f16 d = random_f16(magnitude / 32 / 64, rng);
      std::memcpy(block + offsetof(BlockQ6_K, d), &d, 2);
    } else {
      const f16 d = random_f16(magnitude / 32 / 8, rng), dmin = random_f16(magnitude / 32, rng);
      std::memcpy(block, &d, 2);
      std::memcpy(block + 2, &dmin, 2);
    }
  }
}

float rounded(float x, DType dtype) {
  if (dtype == DType::bf16) return to_float(to_bf16(x));
  if (dtype == DType::f16) return to_float(to_f16(x));
  return x;
}

// [rows, cols] of f32 as dtype, `gap` elements between rows.
std::vector<uint8_t> pack(const std::vector<float>& x, int64_t cols, int64_t gap, DType dtype) {
  const int64_t rows = static_cast<int64_t>(x.size()) / cols;
  std::vector<uint8_t> out(bytes_of(dtype, rows * (cols + gap)), 0xff);
  for (int64_t i = 0; i < rows; ++i) {
    quantize_row(dtype, x.data() + i * cols, out.data() + bytes_of(dtype, i * (cols + gap)), cols);
  }
  return out;
}

std::vector<float> normal(size_t n, float sigma, std::mt19937& rng) {
  std::normal_distribution<float> d(0, sigma);
  std::vector<float> out(n);
  for (float& x : out) x = d(rng);
  return out;
}

double activate(ops::Activation activation, double x) {
  if (activation == ops::Activation::silu) return x / (1 + std::exp(-x));
  return .5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + .044715 * x * x * x)));
}

}  // namespace

HostWeight::HostWeight(DType dtype, int n, int k, int64_t offset, int64_t row_gap,
                       std::mt19937& rng)
    : dtype(dtype), n(n), k(k), offset(offset), row_bytes(bytes_of(dtype, k) + row_gap) {
  bytes.assign(offset + n * row_bytes, 0xff);  // gaps hold NaN
  for (int i = 0; i < n; ++i) {
    uint8_t* to = bytes.data() + offset + i * row_bytes;
    if (info(dtype).block_elems == 256) {
      fill_super_blocks(dtype, to, k, rng);
      continue;
    }
    const auto values = normal(k, 1 / std::sqrt(static_cast<float>(k)), rng);
    std::vector<uint8_t> packed(bytes_of(dtype, k));
    quantize_row(dtype, values.data(), packed.data(), k);
    std::memcpy(to, packed.data(), packed.size());
  }
}

std::vector<float> HostWeight::row_values(int i) const {
  std::vector<uint8_t> packed(row(i), row(i) + bytes_of(dtype, k));
  std::vector<float> values(k);
  dequantize_row(dtype, packed.data(), values.data(), k);
  if (dtype == DType::f16 || dtype == DType::f32) {
    for (float& v : values) v = rounded(v, DType::bf16);
  }
  return values;
}

double HostWeight::row_slack(int i) const {
  if (!is_quantized(dtype)) return 0;
  const DTypeInfo& t = info(dtype);
  double most = 0;
  for (int b = 0; b < k / t.block_elems; ++b) {
    const uint8_t* block = row(i) + b * t.block_bytes;
    f16 d;
    std::memcpy(&d, block + (dtype == DType::q6_k ? offsetof(BlockQ6_K, d) : 0), 2);
    most = std::max<double>(most, std::abs(to_float(d)));
  }
  return most * (t.block_elems == 32 ? 160. : 160. * 128);
}

std::string to_string(const CaseSpec& s) {
  return fmt::format(
      "{} n {} k {} m {} live {} bias {} x {}+{} y {}+{} w +{} gap {} gated {} act {} norm {}{}{} "
      "residual {} seed {}",
      name(s.dtype), fmt::join(s.n, ","), s.k, s.m, s.live, s.bias, name(s.x_dtype), s.x_gap,
      name(s.y_dtype), s.y_gap, s.w_offset, s.w_gap, s.gated, ops::to_string(s.activation),
      s.normed, s.norm_b, s.norm_sum, s.residual, s.seed);
}

Case::Case(const CaseSpec& spec) : spec_(spec) {
  std::mt19937 rng(spec.seed);
  const auto keep = [&](DeviceBytes d) {
    memory_.push_back(std::move(d));
    return memory_.back().data;
  };
  SkinnyParams& p = params_;
  p.k = spec.k;
  p.m = spec.m;
  p.num_parts = static_cast<int>(spec.n.size());
  p.gated = spec.gated;
  p.activation = spec.activation;
  const size_t mk = size_t(spec.m) * spec.k;
  if (spec.normed) {
    p.normed = true;
    const auto a = normal(mk, 2, rng);
    auto b = normal(mk, 1, rng);
    for (float& v : b) v = spec.norm_b ? rounded(v, DType::bf16) : 0;
    auto w = normal(spec.k, 1, rng);
    for (float& v : w) v = rounded(v, DType::bf16);
    sum_.resize(mk);
    x_.resize(mk);
    for (int i = 0; i < spec.m; ++i) {
      double squares = 0;
      for (int j = 0; j < spec.k; ++j) {
        const size_t at = size_t(i) * spec.k + j;
        sum_[at] = a[at] + b[at];
        squares += double(sum_[at]) * sum_[at];
      }
      const double inverse = 1 / std::sqrt(squares / spec.k + p.norm.eps);
      for (int j = 0; j < spec.k; ++j) {
        const size_t at = size_t(i) * spec.k + j;
        x_[at] = static_cast<float>(sum_[at] * inverse * w[j]);
      }
    }
    p.norm.a = reinterpret_cast<float*>(keep(on_device(pack(a, spec.k, spec.x_gap, DType::f32))));
    p.norm.a_stride = spec.k + spec.x_gap;
    if (spec.norm_b) {
      p.norm.b = keep(on_device(pack(b, spec.k, spec.x_gap, DType::bf16)));
      p.norm.b_stride = spec.k + spec.x_gap;
    }
    p.norm.w_dtype = spec.seed % 2 == 0 ? DType::bf16 : DType::f32;
    p.norm.w = keep(on_device(pack(w, spec.k, 0, p.norm.w_dtype)));
    if (spec.norm_sum) {
      sum_out_ = DeviceBytes(mk * 4);
      p.norm.sum = reinterpret_cast<float*>(sum_out_.data);
      p.norm.sum_stride = spec.k;
    }
  } else {
    x_ = normal(mk, 1, rng);
    p.x_dtype = spec.x_dtype;
    p.x_stride = spec.k + spec.x_gap;
    p.x = keep(on_device(pack(x_, spec.k, spec.x_gap, spec.x_dtype)));
    for (float& v : x_) v = rounded(v, DType::bf16);
  }
  if (spec.live >= 0) {
    p.rows = reinterpret_cast<int64_t*>(keep(on_device(std::vector<int64_t>{spec.live})));
  }
  for (int i = 0; i < p.num_parts; ++i) {
    SkinnyPart& part = p.parts[i];
    const int n = spec.n[i];
    w_.emplace_back(spec.dtype, n, spec.k, spec.w_offset, spec.w_gap, rng);
    part.dtype = spec.dtype;
    part.n = n;
    part.row_bytes = w_[i].row_bytes;
    part.w = keep(on_device(w_[i].bytes)) + spec.w_offset;
    bias_.push_back(normal(n, 1, rng));
    part.bias_dtype = i == 0 ? DType::f32 : i == 1 ? DType::bf16 : DType::f16;
    for (float& v : bias_[i]) v = spec.bias ? rounded(v, part.bias_dtype) : 0;
    if (spec.bias) part.bias = keep(on_device(pack(bias_[i], n, 0, part.bias_dtype)));
    part.y_dtype = spec.y_dtype;
    part.y_stride = n + spec.y_gap;
    if (spec.gated && i > 0) continue;
    out_.emplace_back(bytes_of(spec.y_dtype, spec.m * part.y_stride));
    part.y = out_.back().data;
  }
  if (spec.residual) {
    residual_ = normal(size_t(spec.m) * spec.n[0], 1, rng);
    p.residual = reinterpret_cast<float*>(keep(on_device(residual_)));
    p.residual_stride = spec.n[0];
  }
  make_reference();
}

// Bound: f32 sums in a chain per warp, then over warps and CTAs; the tensor cores truncate, so each
// step may lose a unit of 2^-22 of what it adds up. A norm's x is rounded to bf16.
void Case::make_reference() {
  const double steps = 2. * (spec_.k / 256 + 1) + 8 + 8 + 16;
  const double eps = std::ldexp(steps, -22) + (spec_.normed ? std::ldexp(1.01, -9) : 0);
  for (size_t part = 0; part < w_.size(); ++part) {
    for (int n = 0; n < spec_.n[part]; ++n) {
      const std::vector<float> w = w_[part].row_values(n);
      const double slack = w_[part].row_slack(n);
      for (int i = 0; i < spec_.m; ++i) {
        double y = bias_[part][n], magnitude = std::abs(y), rounding = 0;
        for (int j = 0; j < spec_.k; ++j) {
          const double x = x_[size_t(i) * spec_.k + j];
          y += x * w[j];
          magnitude += std::abs(x) * (std::abs(w[j]) + slack);
          rounding += std::abs(x * w[j]);
        }
        double bound = std::ldexp(steps, -22) * magnitude;
        if (spec_.normed) bound += (eps - std::ldexp(steps, -22)) * rounding;
        if (spec_.residual) {
          const double r = residual_[size_t(i) * spec_.n[0] + n];
          y += r;
          bound += std::ldexp(std::abs(r) + std::abs(y), -23);
        }
        y_.push_back(y);
        bound_.push_back(bound);
      }
    }
  }
  if (!spec_.gated) return;
  const size_t count = y_.size() / 2;
  for (size_t i = 0; i < count; ++i) {
    const double gate = activate(spec_.activation, y_[i]), up = y_[i + count];
    // |act'| <= 1.13; expf and tanhf are good to a few units of 2^-23.
    const double gate_bound =
        1.13 * bound_[i] + std::ldexp(8 * (std::abs(gate) + std::abs(y_[i]) * .5), -23);
    bound_[i] = gate_bound * std::abs(up) + std::abs(gate) * bound_[i + count] +
                gate_bound * bound_[i + count];
    y_[i] = gate * up;
  }
  y_.resize(count);
  bound_.resize(count);
}

std::string Case::check() const {
  const int live = spec_.live >= 0 ? spec_.live : spec_.m;
  size_t at = 0;
  for (size_t part = 0; part < out_.size(); ++part) {
    const auto bytes = out_[part].download();
    const int64_t stride = params_.parts[part].y_stride;
    const int size = spec_.y_dtype == DType::f32 ? 4 : 2;
    for (int64_t i = 0; i < spec_.m; ++i) {
      for (int64_t n = 0; n < stride; ++n) {
        const uint8_t* p = bytes.data() + (i * stride + n) * size;
        if (i < live && n < spec_.n[part]) continue;
        if (std::any_of(p, p + size, [](uint8_t b) { return b != 0xff; })) {
          return fmt::format("part {} row {} column {} was written", part, i, n);
        }
      }
    }
    for (int64_t n = 0; n < spec_.n[part]; ++n) {
      for (int64_t i = 0; i < spec_.m; ++i, ++at) {
        if (i >= live) continue;
        float y;
        dequantize_row(spec_.y_dtype, bytes.data() + (i * stride + n) * size, &y, 1);
        const double rounding =
            std::ldexp(std::abs(y_[at]) + bound_[at], spec_.y_dtype == DType::f32 ? -23 : -8);
        if (!(std::abs(y - y_[at]) <= bound_[at] + rounding + 1e-30)) {
          return fmt::format("part {} [{}, {}]: {} instead of {}, bound {}", part, i, n, y, y_[at],
                             bound_[at] + rounding);
        }
      }
    }
  }
  if (spec_.norm_sum) {
    const auto bytes = sum_out_.download();
    if (std::memcmp(bytes.data(), sum_.data(), size_t(live) * spec_.k * 4) != 0) {
      return "the written sum differs";
    }
  }
  return "";
}

std::vector<uint8_t> Case::result() const {
  std::vector<uint8_t> all;
  for (const DeviceBytes& d : out_) {
    const auto bytes = d.download();
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

void Case::poison() const {
  for (const DeviceBytes& d : out_) d.poison();
  if (spec_.norm_sum) sum_out_.poison();
}

std::string Case::run(const StreamConfig& config, bool pdl) {
  poison();
  stream_linear(params_, config, {.stream = nullptr, .pdl = pdl});
  check_cuda(cudaDeviceSynchronize(), "stream linear");
  return check();
}

std::string Case::run(const PanelConfig& config, bool pdl) {
  poison();
  panel_linear(params_, config, {.stream = nullptr, .pdl = pdl});
  check_cuda(cudaDeviceSynchronize(), "panel linear");
  return check();
}

std::string Case::run(const SkinnyConfig& config, bool pdl) {
  poison();
  skinny_linear(params_, config, {.stream = nullptr, .pdl = pdl});
  check_cuda(cudaDeviceSynchronize(), "skinny linear");
  return check();
}

}  // namespace braid::cuda::test
