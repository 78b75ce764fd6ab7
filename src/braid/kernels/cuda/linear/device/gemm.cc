#include "braid/kernels/cuda/linear/device/gemm.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "braid/backend/cuda/check.h"
#include "braid/base/error.h"

namespace braid::cuda {
namespace {

constexpr uint32_t kAlignment = 16;

cudaDataType_t data_type(DType dtype) {
  return dtype == DType::f32 ? CUDA_R_32F : dtype == DType::f16 ? CUDA_R_16F : CUDA_R_16BF;
}

GemmDesc checked(GemmDesc desc) {
  if (desc.x_stride == 0) desc.x_stride = desc.k;
  if (desc.w_stride == 0) desc.w_stride = desc.k;
  if (desc.y_stride == 0) desc.y_stride = desc.n;
  if (desc.m < 1 || desc.n < 1 || desc.k < 1 || desc.x_stride < desc.k || desc.w_stride < desc.k ||
      desc.y_stride < desc.n) {
    fail(ErrorCode::kInvalidArgument, "gemm: {} with row strides {}, {}, {}", to_string(desc),
         desc.x_stride, desc.w_stride, desc.y_stride);
  }
  if ((desc.pair && (desc.bias || desc.residual || desc.gelu)) || (desc.residual && desc.gelu)) {
    fail(ErrorCode::kUnsupported, "gemm: {}: a pair has nothing behind it, gelu no residual",
         to_string(desc));
  }
  const bool known =
      desc.dtype == DType::bf16 || desc.dtype == DType::f16 || desc.dtype == DType::f32;
  if (!known || (desc.y_dtype != desc.dtype && desc.y_dtype != DType::f32)) {
    fail(ErrorCode::kUnsupported, "gemm: {}; x and W are bf16, f16 or f32, y the same or f32",
         to_string(desc));
  }
  return desc;
}

// A cuBLASLt object, destroyed by the library.
template <class T>
class Owned {
 public:
  using Destroy = cublasStatus_t (*)(T);
  explicit Owned(Destroy destroy) : destroy_(destroy) {}
  ~Owned() {
    if (object_) destroy_(object_);
  }
  Owned(const Owned&) = delete;
  T get() const { return object_; }
  T* out() { return &object_; }

 private:
  Destroy destroy_;
  T object_ = nullptr;
};

class Event {
 public:
  Event() { check_cuda(cudaEventCreate(&event_), "gemm: event"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

std::string to_string(const GemmDesc& desc) {
  return fmt::format("{} {}{}x{}x{} -> {}{}{}{}", name(desc.dtype), desc.pair ? "2 x " : "", desc.m,
                     desc.n, desc.k, name(desc.y_dtype), desc.bias ? " +bias" : "",
                     desc.residual ? " +residual" : "", desc.gelu ? " gelu" : "");
}

bool fits_pair(const void* first, const void* second) {
  const int64_t bytes = static_cast<const char*>(second) - static_cast<const char*>(first);
  return bytes > 0 && bytes < kFarthestPair;
}

// The library's matrices are column-major, so a row-major matrix is a transpose there. Braid asks
// for y^T [N, M] = W x^T with W and x as [K, N]^T and [K, M].
struct Gemm::Impl {
  Impl(std::shared_ptr<const CublasLt> library, const GemmDesc& d)
      : lt(std::move(library)),
        desc(checked(d)),
        operation(lt->MatmulDescDestroy),
        w(lt->MatrixLayoutDestroy),
        x(lt->MatrixLayoutDestroy),
        y(lt->MatrixLayoutDestroy) {
    const cudaDataType_t in = data_type(desc.dtype), result = data_type(desc.y_dtype);
    lt->check(lt->MatmulDescCreate(operation.out(), CUBLAS_COMPUTE_32F, CUDA_R_32F), "gemm");
    layout(w, in, desc.k, desc.n, desc.w_stride);
    layout(x, in, desc.k, desc.m, desc.x_stride);
    layout(y, result, desc.n, desc.m, desc.y_stride);
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    if (desc.pair) {
      for (const auto* layout : {&w, &x, &y}) {
        set(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, int32_t{2});
      }
      set(x, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, int64_t{0});
      set_distances(desc.n * desc.w_stride, desc.m * desc.y_stride);  // as if side by side
    }
    if (desc.gelu) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE,
          desc.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU);
    } else if (desc.bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
    }
    if (desc.bias) {
      // For the heuristics, which look at the pointer's alignment.
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, reinterpret_cast<const void*>(uintptr_t{kAlignment}));
    }
  }

  void layout(Owned<cublasLtMatrixLayout_t>& to, cudaDataType_t type, int64_t rows, int64_t cols,
              int64_t stride) {
    lt->check(lt->MatrixLayoutCreate(to.out(), type, static_cast<uint64_t>(rows),
                                     static_cast<uint64_t>(cols), stride),
              "gemm: layout");
  }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    lt->check(lt->MatmulDescSetAttribute(operation.get(), attribute, &value, sizeof(value)),
              "gemm: attribute");
  }

  template <class T>
  void set(const Owned<cublasLtMatrixLayout_t>& of, cublasLtMatrixLayoutAttribute_t attribute,
           const T& value) {
    lt->check(lt->MatrixLayoutSetAttribute(of.get(), attribute, &value, sizeof(value)),
              "gemm: layout");
  }

  // Distances within a pair, in elements.
  void set_distances(int64_t of_w, int64_t of_y) {
    set(w, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, of_w);
    set(y, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, of_y);
  }

  void find(const GemmOptions& options) {
    Owned<cublasLtMatmulPreference_t> preference(lt->MatmulPreferenceDestroy);
    lt->check(lt->MatmulPreferenceCreate(preference.out()), "gemm: preference");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      lt->check(
          lt->MatmulPreferenceSetAttribute(preference.get(), attribute, &value, sizeof(value)),
          "gemm: preference");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{options.max_workspace});
    // A split sum's parts meet in f32, for any type of y.
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    for (auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(attribute, kAlignment);
    }
    std::vector<cublasLtMatmulHeuristicResult_t> found(std::max(options.candidates, 1));
    int count = 0;
    const cublasStatus_t status = lt->MatmulAlgoGetHeuristic(
        lt->handle(), operation.get(), w.get(), x.get(), y.get(), y.get(), preference.get(),
        static_cast<int>(found.size()), found.data(), &count);
    found.resize(std::max(count, 0));
    std::erase_if(found, [](const auto& r) { return r.state != CUBLAS_STATUS_SUCCESS; });
    if (status != CUBLAS_STATUS_SUCCESS || found.empty()) {
      fail(ErrorCode::kUnsupported, "gemm: cuBLASLt has no algorithm for {}: {}", to_string(desc),
           lt->GetStatusString(status));
    }
    algorithms = std::move(found);
    for (const auto& a : algorithms) workspace = std::max(workspace, a.workspaceSize);
    candidates = algorithms.size();
  }

  cublasStatus_t launch(const cublasLtMatmulHeuristicResult_t& algorithm, const GemmPointers& p,
                        cudaStream_t stream) {
    const float one = 1, beta = desc.residual ? 1.f : 0.f;
    if (desc.bias) set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
    if (desc.pair) {
      const auto distance = [](const void* from, const void* to, DType dtype) {
        return (static_cast<const char*>(to) - static_cast<const char*>(from)) / bytes_of(dtype, 1);
      };
      set_distances(distance(p.w, p.w2, desc.dtype), distance(p.y, p.y2, desc.y_dtype));
    }
    return lt->Matmul(lt->handle(), operation.get(), &one, p.w, w.get(), p.x, x.get(), &beta,
                      desc.residual ? p.residual : p.y, y.get(), p.y, y.get(), &algorithm.algo,
                      p.workspace, algorithm.workspaceSize, stream);
  }

  void verify(const GemmPointers& p) const {
    const bool missing = !p.x || !p.w || !p.y || (desc.bias && !p.bias) ||
                         (desc.residual && !p.residual) || (workspace > 0 && !p.workspace);
    if (missing) fail(ErrorCode::kInvalidArgument, "gemm: {}: an operand is null", to_string(desc));
    if (desc.pair && !(fits_pair(p.w, p.w2) && fits_pair(p.y, p.y2))) {
      fail(ErrorCode::kInvalidArgument,
           "gemm: {}: the second of a pair lies within {} bytes behind the first", to_string(desc),
           kFarthestPair);
    }
    for (const void* pointer :
         {p.x, p.w, p.w2, p.bias, p.residual, static_cast<const void*>(p.y),
          static_cast<const void*>(p.y2), static_cast<const void*>(p.workspace)}) {
      if (reinterpret_cast<uintptr_t>(pointer) % kAlignment != 0) {
        fail(ErrorCode::kInvalidArgument, "gemm: an operand at {} is not {}-byte aligned",
             fmt::ptr(pointer), kAlignment);
      }
    }
  }

  // The fastest algorithm by the rounds' median. Candidates take turns, so clock changes meet all
  // candidates alike.
  size_t fastest(const GemmPointers& p, cudaStream_t stream) {
    constexpr size_t kRounds = 5;
    Event begin, end;
    std::vector<std::array<float, kRounds>> ms(algorithms.size());
    std::vector<bool> runs;
    for (const auto& a : algorithms) runs.push_back(launch(a, p, stream) == CUBLAS_STATUS_SUCCESS);
    for (size_t round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < algorithms.size(); ++i) {
        if (!runs[i]) continue;
        check_cuda(cudaEventRecord(begin.get(), stream), "gemm: tune");
        lt->check(launch(algorithms[i], p, stream), "gemm: tune");
        check_cuda(cudaEventRecord(end.get(), stream), "gemm: tune");
        check_cuda(cudaEventSynchronize(end.get()), "gemm: tune");
        check_cuda(cudaEventElapsedTime(&ms[i][round], begin.get(), end.get()), "gemm: tune");
      }
    }
    size_t best = 0;
    float least = std::numeric_limits<float>::infinity();
    for (size_t i = 0; i < algorithms.size(); ++i) {
      std::sort(ms[i].begin(), ms[i].end());
      if (!runs[i] || ms[i][kRounds / 2] >= least) continue;
      least = ms[i][kRounds / 2];
      best = i;
    }
    return best;
  }

  std::shared_ptr<const CublasLt> lt;
  GemmDesc desc;
  Owned<cublasLtMatmulDesc_t> operation;
  Owned<cublasLtMatrixLayout_t> w, x, y;
  std::vector<cublasLtMatmulHeuristicResult_t> algorithms;  // the chosen algorithm first
  size_t workspace = 0;
  size_t candidates = 0;
};

Gemm::Gemm(std::shared_ptr<const CublasLt> library, const GemmDesc& desc,
           const GemmOptions& options)
    : impl_(std::make_unique<Impl>(std::move(library), desc)) {
  impl_->find(options);
}

Gemm::~Gemm() = default;
Gemm::Gemm(Gemm&&) noexcept = default;

size_t Gemm::workspace_bytes() const {
  return impl_->workspace;
}

const GemmDesc& Gemm::desc() const {
  return impl_->desc;
}

void Gemm::prepare(const GemmPointers& pointers, cudaStream_t stream, bool tune) {
  Impl& g = *impl_;
  g.verify(pointers);
  if (tune) std::swap(g.algorithms[0], g.algorithms[g.fastest(pointers, stream)]);
  g.algorithms.resize(1);
  g.workspace = g.algorithms[0].workspaceSize;
  g.lt->check(g.launch(g.algorithms[0], pointers, stream), "gemm");
  check_cuda(cudaStreamSynchronize(stream), "gemm");
}

void Gemm::run(const LaunchContext& context, const GemmPointers& pointers) {
  impl_->verify(pointers);
  impl_->lt->check(impl_->launch(impl_->algorithms[0], pointers, context.stream), "gemm");
}

std::string Gemm::algorithm() const {
  const auto& chosen = impl_->algorithms[0];
  const auto get = [&](cublasLtMatmulAlgoConfigAttributes_t attribute) {
    uint32_t value = 0;
    size_t written = 0;
    impl_->lt->MatmulAlgoConfigGetAttribute(&chosen.algo, attribute, &value, sizeof(value),
                                            &written);
    return value;
  };
  return fmt::format("algorithm {} tile {} stages {} of {} candidates, workspace {}",
                     get(CUBLASLT_ALGO_CONFIG_ID), get(CUBLASLT_ALGO_CONFIG_TILE_ID),
                     get(CUBLASLT_ALGO_CONFIG_STAGES_ID), impl_->candidates, chosen.workspaceSize);
}

}  // namespace braid::cuda
