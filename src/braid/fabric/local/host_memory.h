#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "braid/fabric/local/doorbell.h"

namespace braid::fabric {

// Symmetric memory of a process' ranks: a file without a name, which the host's other processes
// map. Every process takes the same parts in the same order, so that a part has the same offset in
// every process' file. The kernel removes the file with the last process that has it open.
class HostMemory {
 public:
  // This process' memory, with a doorbell for each of its ranks. Where the system gives no such
  // file, memory of this process alone.
  static std::shared_ptr<HostMemory> make(int ranks);
  // Another process' memory by its name; null where the process cannot be reached.
  static std::shared_ptr<HostMemory> open(const std::string& name, int ranks);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  const std::string& name() const { return name_; }  // empty: memory of this process alone
  Doorbell& doorbell(int rank) const { return doorbells_[rank]; }  // `rank` counts from 0

  // The first offset behind the doorbells.
  int64_t begin() const { return begin_; }
  // Whether the host can have so many bytes at such an offset at all.
  static bool has_room(int64_t offset, int64_t bytes);
  // Maps a part; offset and bytes are whole pages. Zeroed unless written before, also by other
  // processes. Null: no memory.
  std::byte* map(int64_t offset, int64_t bytes) const;
  // Unmaps a part, and by its owner gives its memory back.
  void unmap(std::byte* part, int64_t offset, int64_t bytes) const;

  static constexpr int64_t kPage = 4096;

 private:
  HostMemory(int file, bool own, int ranks);

  const int file_;  // -1: none
  const bool own_;
  const int64_t begin_;
  std::string name_;
  std::byte* first_ = nullptr;  // [begin_]: a mark, and doorbells
  Doorbell* doorbells_ = nullptr;
};

}  // namespace braid::fabric
