#pragma once

#include <cstdint>
#include <string>

namespace braid::fabric {

// NVSHMEM's host library, loaded by a job on GPUs: Braid builds and starts without NVSHMEM. A
// process starts NVSHMEM once, and never ends NVSHMEM: nvshmem_finalize and NVSHMEM's barriers wait
// for ever for a lost process. Braid's own control channel does all waiting.
class NvshmemLibrary {
 public:
  // Calls set_nvshmem_environment(), then loads NVSHMEM_HOME/lib/libnvshmem_host.so.3, or without
  // the variable NVSHMEM_HOME the file in the loader's folders. Fails with kUnsupported, naming the
  // file and the package for `cuda_major`, without the library, a function, or host ABI 3.
  explicit NvshmemLibrary(int cuda_major);

  std::string version() const;  // "3.7.2"

  // 128 bytes with an address for all processes to meet: rank 0 makes the bytes, and listens.
  std::string unique_id() const;
  // Collective, with the rank's GPU current. Fails with kResource and NVSHMEM's status.
  void start(int rank, int ranks, const std::string& unique_id) const;
  // Collective: waits for all processes without a deadline. Null without memory.
  std::byte* allocate(int64_t bytes) const;
  // Address, for this process' GPU, of `rank`'s copy of allocated memory; null without a path.
  std::byte* pointer(const std::byte* own, int rank) const;

 private:
  struct Functions;
  const Functions* functions_ = nullptr;  // the loaded library's, which stays loaded
};

// Sets environment variables for NVSHMEM's and NCCL's start: NVLink multicast is off in any case;
// settings for processes of a single machine leave a user's values alone.
void set_nvshmem_environment();

}  // namespace braid::fabric
