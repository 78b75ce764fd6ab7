#pragma once

#include <cublasLt.h>

#include <memory>
#include <string>
#include <vector>

namespace braid::cuda {

// Search list for cuBLASLt, in order. A name without '/' goes to the system's loader. Any other
// entry is a pattern as in glob(7); the last match (the newest version) is tried first. The default
// has the loader, CUDA toolkits in /usr/local and /opt, and the nvidia-cublas package of a Python
// installation or virtual environment.
std::vector<std::string> cublaslt_default_search();

struct CublasLtOptions {
  std::vector<std::string> search = cublaslt_default_search();
};

// NVIDIA's matrix product library, loaded at first need: the library is over 500 MB large, and
// other programs start without it. One per device.
class CublasLt {
 public:
  // For the current device. Allocates device memory: before graphs wait on the device. Fails with
  // kNotFound, naming the search list, or kResource.
  static std::shared_ptr<const CublasLt> load(const CublasLtOptions& options = {});
  ~CublasLt();
  CublasLt(const CublasLt&) = delete;

  cublasLtHandle_t handle() const { return handle_; }
  const std::string& path() const { return path_; }
  size_t version() const;  // 130100 is 13.1

  // Fails with kResource unless the status is success, naming `what`.
  void check(cublasStatus_t status, const char* what) const;

#define BRAID_CUBLASLT_FUNCTIONS(X) \
  X(Create)                         \
  X(Destroy)                        \
  X(GetVersion)                     \
  X(GetStatusString)                \
  X(Matmul)                         \
  X(MatmulAlgoGetHeuristic)         \
  X(MatmulAlgoConfigGetAttribute)   \
  X(MatmulDescCreate)               \
  X(MatmulDescDestroy)              \
  X(MatmulDescSetAttribute)         \
  X(MatrixLayoutCreate)             \
  X(MatrixLayoutDestroy)            \
  X(MatrixLayoutSetAttribute)       \
  X(MatmulPreferenceCreate)         \
  X(MatmulPreferenceDestroy)        \
  X(MatmulPreferenceSetAttribute)
#define BRAID_DECLARE(name) decltype(&::cublasLt##name) name = nullptr;
  BRAID_CUBLASLT_FUNCTIONS(BRAID_DECLARE)
#undef BRAID_DECLARE

 private:
  CublasLt() = default;

  struct Close {
    void operator()(void* library) const;
  };
  std::unique_ptr<void, Close> library_;
  std::string path_;
  cublasLtHandle_t handle_ = nullptr;
};

// Whether load would find the library. Costs a look at the search list; nothing stays loaded.
bool cublaslt_available(const CublasLtOptions& options = {});

}  // namespace braid::cuda
