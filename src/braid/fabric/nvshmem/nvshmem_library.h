#pragma once

#include <cstdint>
#include <string>

namespace braid::fabric {

// NVSHMEM's host library, loaded when a job of GPUs asks for it: Braid builds and starts without.
// A process starts NVSHMEM once, and never ends it: nvshmem_finalize and NVSHMEM's barriers wait
// for ever for a lost process, so Braid's own control channel does all waiting.
class NvshmemLibrary {
 public:
  // Loads NVSHMEM_HOME/lib/libnvshmem_host.so.3, or without that variable the loader's own find,
  // after set_nvshmem_environment(). Fails with kUnsupported, naming what was tried and the package
  // for `cuda_major`, without the library, one of its functions, or the host ABI of version 3.
  explicit NvshmemLibrary(int cuda_major);

  std::string version() const;  // "3.7.2"

  // 128 bytes by which all processes meet: made at rank 0, which then listens for the others.
  std::string unique_id() const;
  // Collective, with the rank's GPU current. Fails with kResource and NVSHMEM's status.
  void start(int rank, int ranks, const std::string& unique_id) const;
  // Collective, and waits for all without a deadline; null where NVSHMEM has no memory.
  std::byte* allocate(int64_t bytes) const;
  // Where this process' GPU reaches `rank`'s copy of an address of allocate(); null without a path.
  std::byte* pointer(const std::byte* own, int rank) const;

 private:
  struct Functions;
  const Functions* functions_ = nullptr;  // of the loaded library, which stays loaded
};

// Variables that NVSHMEM and NCCL read at their start. Switches of NVLink multicast are set off in
// any case; what suits processes of a single machine is set unless the user has.
void set_nvshmem_environment();

}  // namespace braid::fabric
