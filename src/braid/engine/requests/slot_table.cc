#include "braid/engine/requests/slot_table.h"

#include <algorithm>

#include "braid/base/error.h"

namespace braid {

int32_t SlotTable::take() {
  const auto free = std::ranges::find(taken_, false);
  if (free == taken_.end()) return -1;
  *free = true;
  ++count_;
  return static_cast<int32_t>(free - taken_.begin());
}

void SlotTable::give_back(int32_t slot) {
  const auto s = static_cast<size_t>(slot);
  BRAID_CHECK(slot >= 0 && s < taken_.size() && taken_[s], "slot {} is not taken", slot);
  taken_[s] = false;
  --count_;
}

}  // namespace braid
