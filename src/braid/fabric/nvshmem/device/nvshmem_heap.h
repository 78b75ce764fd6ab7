#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "braid/fabric/nvshmem/heap_ranges.h"
#include "braid/fabric/nvshmem/nvshmem_library.h"
#include "braid/fabric/nvshmem/nvshmem_meeting.h"

namespace braid::fabric {

// NVSHMEM's symmetric heap on this process' GPU. NVSHMEM lives once in a process and for the whole
// process, so memory that is given back stays here for the next allocation.
class NvshmemHeap {
 public:
  // Collective: loads and starts NVSHMEM on `device`, once every process has the same version.
  NvshmemHeap(const NvshmemMeeting& meeting, int device);

  struct Part {
    HeapRanges::Place place;
    std::vector<std::byte*> parts;  // [processes] as this process' GPU sees them
  };
  // Collective, in the same order on all processes; zeroed on all when it returns. Fails with
  // kInvalidArgument where processes ask for different things, with kResource, naming `name`,
  // needed and free bytes, where a GPU lacks room, with kUnsupported without a path to a peer.
  Part allocate(const NvshmemMeeting& meeting, int64_t bytes, std::string_view name);
  // Of this process alone, in the same order on all processes.
  void give(const HeapRanges::Place& place, int64_t bytes);

  int device() const { return device_; }
  std::string version() const { return library_.version(); }

 private:
  void grow(const NvshmemMeeting& meeting, int64_t bytes, std::string_view name);

  const NvshmemLibrary library_;
  const int device_;
  std::mutex mutex_;  // guards ranges_
  HeapRanges ranges_;
  std::vector<std::vector<std::byte*>> blocks_;  // [blocks, processes]
};

// The heap of this process, made by the first call. Fails with kUnsupported if an earlier call had
// another device.
NvshmemHeap& nvshmem_heap(const NvshmemMeeting& meeting, int device);

}  // namespace braid::fabric
