#include "braid/fabric/nvshmem/nvshmem_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>

#include "braid/base/error.h"

namespace braid::fabric {
namespace {

constexpr const char* kFile = "libnvshmem_host.so.3";
constexpr int kAbi = 3;  // NVSHMEM's major version

// NVSHMEM's structures for a start by unique id, in the layout's first version, which all versions
// 3 accept.
struct UniqueId {
  int32_t version = (1 << 16) + 128;
  char internal[124] = {};
};
struct UniqueIdArgs {
  int32_t version = (1 << 16) + 24;
  UniqueId* id = nullptr;
  int32_t rank = -1;
  int32_t ranks = -1;
};
struct InitArgs {
  int32_t version = (1 << 16) + 128;
  UniqueIdArgs unique_id;
  char padding[96] = {};
};
struct InitAttributes {
  int32_t version = (1 << 16) + 144;
  void* communicator = nullptr;
  InitArgs args;
};
static_assert(sizeof(UniqueId) == 128 && sizeof(UniqueIdArgs) == 24);
static_assert(sizeof(InitArgs) == 128 && sizeof(InitAttributes) == 144);
constexpr unsigned kWithUniqueId = 1 << 3;

[[noreturn]] void refuse(const std::string& why, int cuda_major) {
  fail(
      ErrorCode::kUnsupported,
      "a job of GPUs needs NVSHMEM {}: {} (pip install nvidia-nvshmem-cu{}, and NVSHMEM_HOME names "
      "its folder nvidia/nvshmem)",
      kAbi, why, cuda_major);
}

}  // namespace

struct NvshmemLibrary::Functions {
  void (*version)(int* major, int* minor, int* patch) = nullptr;
  int (*get_unique_id)(UniqueId* id) = nullptr;
  int (*init)(unsigned flags, InitAttributes* attributes) = nullptr;
  void* (*allocate)(size_t bytes) = nullptr;
  void* (*pointer)(const void* own, int rank) = nullptr;
};

void set_nvshmem_environment() {
  setenv("NVSHMEM_DISABLE_NVLS", "1", 1);
  setenv("NCCL_NVLS_ENABLE", "0", 1);
  setenv("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1", 1);
  setenv("NVSHMEM_REMOTE_TRANSPORT", "none", 0);
  setenv("NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME", "lo", 0);
  setenv("NVSHMEM_DISABLE_NCCL", "1", 0);  // for collectives, which Braid has itself
}

NvshmemLibrary::NvshmemLibrary(int cuda_major) {
  set_nvshmem_environment();
  const char* const home = std::getenv("NVSHMEM_HOME");
  const std::string path = home ? std::string(home) + "/lib/" + kFile : kFile;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) refuse(dlerror(), cuda_major);
  static Functions functions;
  const auto load = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) refuse(fmt::format("{} has no {}", path, name), cuda_major);
  };
  load("nvshmemx_vendor_get_version_info", functions.version);
  int major = 0, minor = 0, patch = 0;
  functions.version(&major, &minor, &patch);
  if (major != kAbi) {
    refuse(fmt::format("{} is version {}.{}.{}", path, major, minor, patch), cuda_major);
  }
  load("nvshmemx_get_uniqueid", functions.get_unique_id);
  load("nvshmemx_hostlib_init_attr", functions.init);
  load("nvshmem_malloc", functions.allocate);
  load("nvshmem_ptr", functions.pointer);
  functions_ = &functions;
}

std::string NvshmemLibrary::version() const {
  int major = 0, minor = 0, patch = 0;
  functions_->version(&major, &minor, &patch);
  return fmt::format("{}.{}.{}", major, minor, patch);
}

std::string NvshmemLibrary::unique_id() const {
  UniqueId id;
  if (const int status = functions_->get_unique_id(&id); status != 0) {
    fail(ErrorCode::kResource, "NVSHMEM {} makes no place to meet: status {}", version(), status);
  }
  return {reinterpret_cast<const char*>(&id), sizeof(id)};
}

void NvshmemLibrary::start(int rank, int ranks, const std::string& unique_id) const {
  UniqueId id;
  BRAID_CHECK(unique_id.size() == sizeof(id), "{} bytes of a unique id", unique_id.size());
  std::memcpy(&id, unique_id.data(), sizeof(id));
  InitAttributes attributes;
  attributes.args.unique_id.id = &id;
  attributes.args.unique_id.rank = rank;
  attributes.args.unique_id.ranks = ranks;
  if (const int status = functions_->init(kWithUniqueId, &attributes); status != 0) {
    fail(ErrorCode::kResource,
         "NVSHMEM {} does not start: status {} (NVSHMEM_DEBUG=WARN says more)", version(), status);
  }
}

std::byte* NvshmemLibrary::allocate(int64_t bytes) const {
  return static_cast<std::byte*>(functions_->allocate(static_cast<size_t>(bytes)));
}

std::byte* NvshmemLibrary::pointer(const std::byte* own, int rank) const {
  return static_cast<std::byte*>(functions_->pointer(own, rank));
}

}  // namespace braid::fabric
