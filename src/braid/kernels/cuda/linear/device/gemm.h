#pragma once

#include <string>

#include "braid/backend/cuda/launch.h"
#include "braid/kernels/cuda/linear/device/cublaslt.h"
#include "braid/tensor/dtype.h"

namespace braid::cuda {

// y[M, N] = x[M, K] W[N, K]^T (+ bias) (+ residual), accumulated in f32, or the tanh form of gelu
// of the sum. A y of x's type is rounded once, except with a residual: the library may round the
// product before the addition.
struct GemmDesc {
  int64_t m = 0;  // capacity: all M rows are computed and written, live or not
  int64_t n = 0;
  int64_t k = 0;
  DType dtype = DType::bf16;    // x and W: bf16, f16, or f32 without tensor cores
  DType y_dtype = DType::bf16;  // y, residual and bias: x's, or f32
  bool bias = false;
  bool residual = false;
  bool gelu = false;     // no residual
  bool pair = false;     // two such products with the same x in a launch; no bias, residual, gelu
  int64_t x_stride = 0;  // elements from row to row; 0: packed
  int64_t w_stride = 0;
  int64_t y_stride = 0;  // for y and residual
  bool operator==(const GemmDesc&) const = default;
};

std::string to_string(const GemmDesc& desc);  // "bf16 8192x4096x4096 -> bf16 +bias"

// Device memory, 16-byte aligned, the caller's.
struct GemmPointers {
  const void* x = nullptr;         // dtype [M, K]
  const void* w = nullptr;         // dtype [N, K]
  const void* bias = nullptr;      // y_dtype [N]
  const void* residual = nullptr;  // y_dtype [M, N]; may be y
  void* y = nullptr;               // y_dtype [M, N]
  const void* w2 = nullptr;        // in a pair: the other weight, behind w within kFarthestPair
  void* y2 = nullptr;              // and the other product, likewise behind y
  void* workspace = nullptr;       // workspace_bytes()
};

// Bytes between the matrices in a pair: strides in tensor copies have 40 bits, addresses from two
// allocations may be farther apart.
constexpr int64_t kFarthestPair = int64_t{1} << 39;
// Whether `second` lies behind `first`, near enough for a pair.
bool fits_pair(const void* first, const void* second);

struct GemmOptions {
  size_t max_workspace = 32 << 20;
  int candidates = 8;  // algorithms to ask the library's heuristics for
};

// A product of a single shape through cuBLASLt. Construction and a call of `prepare` come before
// capture, while nothing waits on the device; `run` is capturable. For one thread at a time.
class Gemm {
 public:
  // Fails with kUnsupported where the library has no algorithm, kInvalidArgument for a bad desc.
  Gemm(std::shared_ptr<const CublasLt> library, const GemmDesc& desc,
       const GemmOptions& options = {});
  ~Gemm();
  Gemm(Gemm&&) noexcept;

  // Scratch of a run; runs in flight share no scratch. `prepare` may lower the number.
  size_t workspace_bytes() const;

  // Runs the chosen algorithm once, to load the algorithm's kernels, and waits. With `tune` all
  // candidates take turns on these operands, and the fastest by the median of five rounds is
  // chosen. Overwrites y.
  void prepare(const GemmPointers& pointers, cudaStream_t stream, bool tune);

  // No allocation, no synchronization. `context.pdl` does not apply: the library's kernels wait for
  // all work before them.
  void run(const LaunchContext& context, const GemmPointers& pointers);

  const GemmDesc& desc() const;
  std::string algorithm() const;  // "algorithm 66 tile 20 stages 36 of 8 candidates, workspace 0"

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid::cuda
