#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace braid {

// Which places among a fixed number are taken. The lowest free place is taken first, so high places
// stay unused under light load.
class SlotTable {
 public:
  explicit SlotTable(int64_t slots) : taken_(static_cast<size_t>(slots)) {}

  // A free slot; -1 where all are taken.
  int32_t take();
  // Fails with a broken invariant on a slot that is not taken.
  void give_back(int32_t slot);
  int64_t taken() const { return count_; }

 private:
  std::vector<bool> taken_;
  int64_t count_ = 0;
};

}  // namespace braid
