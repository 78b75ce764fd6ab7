#include "braid/fabric/nvshmem/nvshmem_meeting.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid::fabric {
namespace {

constexpr int64_t kBlock = 32 << 20;
// NVSHMEM grows by so many bytes at a time, and needs some beside.
constexpr int64_t kGranularity = 512 << 20;
constexpr int64_t kBeside = 64 << 20;

}  // namespace

void agree_on_version(const NvshmemMeeting& meeting, const NvshmemLibrary& library) {
  meeting.agree("NVSHMEM versions", library.version());
}

int64_t heap_block(int64_t bytes) {
  return round_up(std::max(bytes, kBlock), kBlock);
}

void agree_on_room(const NvshmemMeeting& meeting, std::string_view buffer, int64_t block,
                   const HeapRoom& room) {
  const int64_t needed = round_up(block, kGranularity) + kBeside;
  std::string verdict = "enough";
  if (room.free < needed) {
    verdict = fmt::format("symmetric buffer '{}': needs {} bytes on cuda:{}, {} of {} are free",
                          buffer, needed, room.device, room.free, room.total);
  }
  try {
    meeting.agree("rooms for symmetric memory", verdict);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    throw Error(ErrorCode::kResource, error.what());
  }
  if (verdict != "enough") throw Error(ErrorCode::kResource, verdict);
}

}  // namespace braid::fabric
