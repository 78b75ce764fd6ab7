// TFLOP/s of cuBLASLt through Gemm at Llama-3-8B's prefill shapes, against an 8192^3 product in the
// same run. --m M for another number of tokens, --json FILE.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "braid/base/error.h"
#include "braid/kernels/cuda/linear/device/gemm.h"
#include "braid/tensor/half.h"
#include "gpu_main.h"

using namespace braid;
using namespace braid::cuda;

namespace {

struct DeviceBytes {
  explicit DeviceBytes(size_t bytes) : size(bytes) {
    check_cuda(cudaMalloc(&data, bytes ? bytes : 1), "bench");
  }
  ~DeviceBytes() { cudaFree(data); }
  DeviceBytes(const DeviceBytes&) = delete;
  uint8_t* data = nullptr;
  size_t size;
};

// N(0, 1) in bf16: a block of random numbers, repeated at an odd period.
void fill(DeviceBytes& to, uint32_t seed) {
  static const std::vector<bf16> block = [] {
    std::vector<bf16> out(4000037);
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    for (bf16& x : out) x = to_bf16(normal(rng));
    return out;
  }();
  for (size_t at = 0; at < to.size;) {
    const size_t skip = at == 0 ? seed % 1000 : 0;
    const size_t bytes = std::min(to.size - at, 2 * (block.size() - skip));
    check_cuda(cudaMemcpy(to.data + at, &block[skip], bytes, cudaMemcpyHostToDevice), "bench");
    at += bytes;
  }
}

// A product with its operands.
class Case {
 public:
  Case(const std::shared_ptr<const CublasLt>& lt, const GemmDesc& d, bool tune)
      : gemm_(lt, d),
        x_(static_cast<size_t>(2 * d.m * d.k)),
        w_(static_cast<size_t>(2 * d.n * d.k)),
        y_(static_cast<size_t>(bytes_of(d.y_dtype, d.m * d.n))),
        residual_(y_.size),
        bias_(static_cast<size_t>(bytes_of(d.y_dtype, d.n))),
        workspace_(gemm_.workspace_bytes()) {
    fill(x_, 1);
    fill(w_, 2);
    check_cuda(cudaMemset(residual_.data, 0, residual_.size), "bench");
    check_cuda(cudaMemset(bias_.data, 0, bias_.size), "bench");
    gemm_.prepare(pointers(), nullptr, tune);
  }

  float ms() {
    float out = 0;
    check_cuda(cudaEventRecord(begin_), "bench");
    gemm_.run({}, pointers());
    check_cuda(cudaEventRecord(end_), "bench");
    check_cuda(cudaEventSynchronize(end_), "bench");
    check_cuda(cudaEventElapsedTime(&out, begin_, end_), "bench");
    return out;
  }
  double tflops(double ms) const {
    const GemmDesc& d = gemm_.desc();
    return 2. * static_cast<double>(d.m) * static_cast<double>(d.n) * static_cast<double>(d.k) /
           ms / 1e9;
  }
  const Gemm& gemm() const { return gemm_; }

 private:
  GemmPointers pointers() const {
    return {.x = x_.data,
            .w = w_.data,
            .bias = bias_.data,
            .residual = residual_.data,
            .y = y_.data,
            .workspace = workspace_.data};
  }

  Gemm gemm_;
  DeviceBytes x_, w_, y_, residual_, bias_, workspace_;
  cudaEvent_t begin_ = make_event(), end_ = make_event();

  static cudaEvent_t make_event() {
    cudaEvent_t event;
    check_cuda(cudaEventCreate(&event), "bench");
    return event;
  }
};

double median(std::vector<float> ms) {
  std::sort(ms.begin(), ms.end());
  return ms[ms.size() / 2];
}

struct Result {
  std::string product;
  double ms, tflops, reference;
};

// In turns with the reference product, since the chip's clock follows its temperature and power.
Result measure(Case& reference, Case& c, const std::string& product) {
  std::vector<float> ms, reference_ms;
  for (int round = 0; round < 15; ++round) {
    reference_ms.push_back(reference.ms());
    ms.push_back(c.ms());
  }
  const double m = median(ms);
  return {product, m, c.tflops(m), reference.tflops(median(reference_ms))};
}

}  // namespace

int main(int argc, char** argv) {
  return gpu_main("bench_cuda_gemm", [&] {
    int64_t m = 8192;
    const char* json = nullptr;
    for (int i = 1; i + 1 < argc; ++i) {
      if (!std::strcmp(argv[i], "--m")) m = std::atoll(argv[i + 1]);
      if (!std::strcmp(argv[i], "--json")) json = argv[i + 1];
    }
    const auto lt = CublasLt::load();
    std::printf("%s, version %zu\n\n", lt->path().c_str(), lt->version());
    Case reference(lt, {.m = 8192, .n = 8192, .k = 8192}, true);
    std::vector<Result> results;
    const auto add = [&](const GemmDesc& d, bool tune) {
      Case c(lt, d, tune);
      results.push_back(measure(reference, c, to_string(d) + (tune ? " tuned" : "")));
      const Result& r = results.back();
      std::printf("| %s | %.3f | %.0f | %.0f | %.2f | %s |\n", r.product.c_str(), r.ms, r.tflops,
                  r.reference, r.tflops / r.reference, c.gemm().algorithm().c_str());
    };
    std::printf(
        "| product | ms | TFLOP/s | 8192^3 | ratio | algorithm |\n|---|---|---|---|---|---|\n");
    for (auto [n, k] : {std::pair<int64_t, int64_t>{4096, 4096},
                        {1024, 4096},
                        {6144, 4096},
                        {14336, 4096},
                        {28672, 4096},
                        {4096, 14336}}) {
      add({.m = m, .n = n, .k = k}, false);
      add({.m = m, .n = n, .k = k}, true);
    }
    for (int64_t k : {4096, 14336}) {
      add({.m = m, .n = 4096, .k = k, .y_dtype = DType::f32, .residual = true}, true);
    }
    add({.m = m, .n = 4096, .k = 4096, .bias = true}, true);
    if (json) {
      std::FILE* file = std::fopen(json, "w");
      if (!file) fail(ErrorCode::kNotFound, "cannot write {}", json);
      std::fprintf(file, "[");
      for (size_t i = 0; i < results.size(); ++i) {
        std::fprintf(
            file, "%s\n {\"product\": \"%s\", \"ms\": %.4f, \"tflops\": %.1f, \"reference\": %.1f}",
            i ? "," : "", results[i].product.c_str(), results[i].ms, results[i].tflops,
            results[i].reference);
      }
      std::fprintf(file, "\n]\n");
      std::fclose(file);
    }
    return 0;
  });
}
