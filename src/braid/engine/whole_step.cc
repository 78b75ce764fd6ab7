#include "braid/engine/whole_step.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "braid/ops/input_names.h"

namespace braid {
namespace {

void fill(const Executor& executor, std::string_view name, std::span<const int32_t> values,
          int32_t behind) {
  const TensorView& view = executor.input(name);
  const std::span<int32_t> out(view.as<int32_t>(), view.shape.elems());
  BRAID_CHECK(values.size() <= out.size(), "{} values for {} of {}", values.size(), out.size(),
              name);
  std::ranges::fill(std::span(std::ranges::copy(values, out.begin()).out, out.end()), behind);
}

// The values that the input has room for.
std::span<const int32_t> within(const Executor& executor, std::string_view name,
                                std::span<const int32_t> values) {
  const size_t room = executor.input(name).shape.elems();
  return values.first(std::min(values.size(), room));
}

}  // namespace

WholeStep::WholeStep(const Batch& batch, KvOwners& owners)
    : batch_(batch), slots_(owners.ranks(), std::vector<int32_t>(batch.slots().size(), -1)) {
  BRAID_CHECK(batch.sequences().size() == 1 && batch.sequences()[0].cached == 0,
              "{} sequences, the first behind {} tokens", batch.sequences().size(),
              batch.sequences()[0].cached);
  kv_ = even_layout(batch.sequences()[0].tokens, owners.ranks());
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
  const auto n = static_cast<int32_t>(batch_.tokens().size());
  std::vector<int32_t> in_order(n);
  std::iota(in_order.begin(), in_order.end(), 0);
  fill(executor, inputs::kTokenIds, batch_.tokens(), 0);
  fill(executor, inputs::kPositions, batch_.positions(), 0);
  fill(executor, inputs::kRows, batch_.rows(), 0);
  // The step's own cache: tokens and pages in order.
  fill(executor, inputs::kSlots, in_order, -1);
  if (executor.has_input(inputs::kKvSlots)) fill(executor, inputs::kKvSlots, in_order, 0);
  fill(executor, inputs::kPageTable, within(executor, inputs::kPageTable, in_order), 0);
  fill(executor, inputs::kQStart, std::array{0, n}, 0);
  fill(executor, inputs::kKvLen, std::array{n}, 0);
  // A rank takes rows from its first key on.
  const int64_t first = kv_.rows(rank) > 0 ? kv_.ranks[rank][0].position : 0;
  fill(executor, inputs::kToSlots,
       within(executor, inputs::kToSlots, std::span(slots_[rank]).subspan(first)), -1);
}

}  // namespace braid
