#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "braid/fabric/nvshmem/nvshmem_library.h"

namespace braid::fabric {

// How processes agree before they call NVSHMEM, each with a GPU: collective calls with deadlines.
struct NvshmemMeeting {
  int process = 0;
  int processes = 1;
  // Fails unless every process has the same value.
  std::function<void(std::string_view what, std::string_view value)> agree;
  // The value of process 0.
  std::function<std::string(std::string_view what, std::string_view value)> broadcast;
};

// Collective. Fails with kInvalidArgument, naming two hosts and their versions, where they differ.
void agree_on_version(const NvshmemMeeting& meeting, const NvshmemLibrary& library);

// A GPU's memory in front of a buffer for which the heap must grow.
struct HeapRoom {
  int device = 0;
  int64_t free = 0, total = 0;  // bytes
};

// Bytes of the heap's next block, for a buffer of `bytes`.
int64_t heap_block(int64_t bytes);
// Collective. Fails on all processes with kResource where a GPU lacks room for a block and for
// NVSHMEM's own memory: the buffer, needed and free bytes.
void agree_on_room(const NvshmemMeeting& meeting, std::string_view buffer, int64_t block,
                   const HeapRoom& room);

}  // namespace braid::fabric
