#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "braid/base/math.h"
#include "braid/fabric/local/host_memory.h"
#include "braid/fabric/symmetric.h"

namespace braid::fabric {

// An allocation: the parts of this process' ranks, and of the host's other processes where they are
// mapped.
class UcxSegment final : public Segment {
 public:
  struct Place {
    int64_t index = 0;   // in the order of the world's allocations
    int64_t offset = 0;  // of every process' parts in the process' memory
  };
  // `memories`: [processes], null: not mapped. Fails with kResource on more memory than the host
  // has.
  UcxSegment(std::span<const std::shared_ptr<HostMemory>> memories, int process, int ranks_each,
             Place place, std::string name, int64_t bytes)
      : Segment(std::move(name), bytes), process_(process), ranks_each_(ranks_each), place_(place) {
    const auto total = checked_mul(pitch_of(bytes), ranks_each);
    const bool room = total && HostMemory::has_room(place.offset, *total);
    for (const auto& memory : memories) {
      parts_.push_back({memory, place.offset, room ? *total : 0});
      if (memory && parts_.back().data == nullptr) {
        fail(ErrorCode::kResource, "symmetric buffer '{}': no memory for {} bytes on {} ranks",
             this->name(), bytes, ranks_each);
      }
    }
  }

  int64_t index() const { return place_.index; }
  // The offset of the next segment.
  int64_t end() const { return place_.offset + pitch_of(bytes()) * ranks_each_; }
  // A rank's part as this process sees it; null where only messages reach it.
  std::byte* part(int rank) const {
    std::byte* const all = parts_[static_cast<size_t>(rank / ranks_each_)].data;
    return all == nullptr ? nullptr : all + rank % ranks_each_ * pitch_of(bytes());
  }
  // Memory of other processes is for verbs alone: plans do not depend on what is mapped.
  std::byte* map(int /*from*/, int of) const override {
    return of / ranks_each_ == process_ ? part(of) : nullptr;
  }

 private:
  // A process' parts, each on pages of its own.
  struct Mapping {
    Mapping(std::shared_ptr<HostMemory> of, int64_t at, int64_t size)
        : memory(std::move(of)), offset(at), bytes(size) {
      if (memory && bytes > 0) data = memory->map(offset, bytes);
    }
    Mapping(Mapping&& other) noexcept
        : memory(std::move(other.memory)),
          offset(other.offset),
          bytes(other.bytes),
          data(std::exchange(other.data, nullptr)) {}
    ~Mapping() {
      if (data != nullptr) memory->unmap(data, offset, bytes);
    }
    std::shared_ptr<HostMemory> memory;
    int64_t offset, bytes;
    std::byte* data = nullptr;
  };
  static int64_t pitch_of(int64_t bytes) {
    constexpr int64_t kMost = int64_t{1} << 62;
    return round_up(std::clamp<int64_t>(bytes, 1, kMost), HostMemory::kPage);
  }

  const int process_, ranks_each_;
  const Place place_;
  std::vector<Mapping> parts_;  // [processes]
};

}  // namespace braid::fabric
