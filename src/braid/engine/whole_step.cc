#include "braid/engine/whole_step.h"

#include <algorithm>

#include "braid/ops/input_names.h"

namespace braid {
namespace {

// Behind the values come zeros, which every reader of a row may take.
void fill(const Executor& executor, std::string_view name, std::span<const int32_t> values) {
  const TensorView& view = executor.input(name);
  const std::span<int32_t> out(view.as<int32_t>(), view.shape.elems());
  BRAID_CHECK(values.size() <= out.size(), "{} values for {} in '{}'", values.size(), out.size(),
              name);
  std::fill(std::ranges::copy(values, out.begin()).out, out.end(), 0);
}

}  // namespace

WholeStep::WholeStep(const Batch& batch, KvOwners& owners)
    : batch_(batch), slots_(owners.ranks(), std::vector<int32_t>(batch.slots().size(), -1)) {
  BRAID_CHECK(batch.sequences().size() == 1 && batch.sequences()[0].cached == 0,
              "{} sequences, the first behind {} tokens", batch.sequences().size(),
              batch.sequences()[0].cached);
  kv_ = even_zigzag_layout(batch.sequences()[0].tokens, owners.ranks());
  const std::span<const int32_t> slots = batch.slots();
  for (int32_t slot : slots) owners.forget(slot);
  for (int r = 0; r < owners.ranks(); ++r) {
    for (const SequenceRun& run : kv_.ranks[r]) {
      for (int64_t i = run.position; i < run.position + run.rows; ++i) {
        owners.write(slots[i], r);
        slots_[r][i] = owners.held_at(slots[i]);
      }
    }
  }
  if (owners.apart()) return;
  for (int32_t slot : slots) owners.copy_to_first(slot);
  slots_[0].assign(slots.begin(), slots.end());
}

void WholeStep::write(const Executor& executor, int rank) const {
  fill(executor, inputs::kTokenIds, batch_.tokens());
  fill(executor, inputs::kPositions, batch_.positions());
  fill(executor, inputs::kSlots, slots_[rank]);
  fill(executor, inputs::kRows, batch_.rows());
}

}  // namespace braid
