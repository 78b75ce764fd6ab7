#include "braid/kernels/cuda/linear/device/cublaslt.h"

#include <dlfcn.h>
#include <glob.h>

#include "braid/base/error.h"

namespace braid::cuda {
namespace {

std::vector<std::string> matches(const std::string& pattern) {
  if (pattern.find('/') == std::string::npos) return {pattern};
  glob_t found{};
  std::vector<std::string> out;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    out.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  globfree(&found);
  return {out.rbegin(), out.rend()};
}

// Opens the first loadable entry of the search list; sets `path`, or the causes in `errors`.
void* open(const std::vector<std::string>& search, std::string& path, std::string& errors) {
  for (const std::string& pattern : search) {
    for (const std::string& candidate : matches(pattern)) {
      if (void* library = dlopen(candidate.c_str(), RTLD_LAZY | RTLD_LOCAL)) {
        path = candidate;
        return library;
      }
      const char* why = dlerror();
      errors += fmt::format("; {}", why ? why : candidate);
    }
  }
  return nullptr;
}

}  // namespace

std::vector<std::string> cublaslt_default_search() {
  std::vector<std::string> out = {"libcublasLt.so.13", "libcublasLt.so.12"};
  for (const char* folder : {"/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib",
                             "/opt/cuda*/lib64", "/usr/local/lib/python3*/*-packages/nvidia/*/lib",
                             "/opt/*/lib/python3*/site-packages/nvidia/*/lib",
                             "/opt/*/.venv/lib/python3*/site-packages/nvidia/*/lib"}) {
    out.push_back(fmt::format("{}/libcublasLt.so.1[23]", folder));
  }
  return out;
}

void CublasLt::Close::operator()(void* library) const {
  dlclose(library);
}

std::shared_ptr<const CublasLt> CublasLt::load(const CublasLtOptions& options) {
  std::shared_ptr<CublasLt> out(new CublasLt);
  std::string errors;
  out->library_.reset(open(options.search, out->path_, errors));
  if (!out->library_) {
    fail(ErrorCode::kNotFound, "cuBLASLt was not found: looked for {}{}",
         fmt::join(options.search, ", "), errors);
  }
#define BRAID_LOAD(name)                                                                           \
  out->name = reinterpret_cast<decltype(out->name)>(dlsym(out->library_.get(), "cublasLt" #name)); \
  if (!out->name) {                                                                                \
    fail(ErrorCode::kUnsupported, "{} has no function cublasLt{}", out->path_, #name);             \
  }
  BRAID_CUBLASLT_FUNCTIONS(BRAID_LOAD)
#undef BRAID_LOAD
  out->check(out->Create(&out->handle_), "cuBLASLt");
  return out;
}

CublasLt::~CublasLt() {
  if (handle_) Destroy(handle_);
}

size_t CublasLt::version() const {
  return GetVersion();
}

void CublasLt::check(cublasStatus_t status, const char* what) const {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  fail(ErrorCode::kResource, "{}: {}", what, GetStatusString(status));
}

bool cublaslt_available(const CublasLtOptions& options) {
  std::string path, errors;
  void* library = open(options.search, path, errors);
  if (library) dlclose(library);
  return library != nullptr;
}

}  // namespace braid::cuda
