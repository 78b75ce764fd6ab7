#include "braid/engine/trace/step_times.h"

#include <algorithm>
#include <utility>

#include "braid/schedule/micro_batch.h"

namespace braid {
namespace {

std::array<double, 4> numbers_of(std::span<const TimedRow> rows) {
  std::array<double, 4> x{1};
  for (const TimedRow& row : rows) {
    x[1] += static_cast<double>(row.tokens);
    x[row.decode ? 3 : 2] += static_cast<double>(attended_keys(row.cached, row.tokens));
  }
  return x;
}

// 0: answers alone; 1: with tokens of prompts.
size_t kind_of(std::span<const TimedRow> rows) {
  return std::ranges::all_of(rows, &TimedRow::decode) ? 0 : 1;
}

}  // namespace

void FittedTimes::add(std::span<const TimedRow> rows, double seconds) {
  const std::lock_guard lock(mutex_);
  Kind& kind = kinds_[kind_of(rows)];
  kind.fit.add(numbers_of(rows), seconds);
  kind.known = true;
  kind.current = false;
}

void FittedTimes::clear() {
  const std::lock_guard lock(mutex_);
  kinds_ = {};
}

double FittedTimes::seconds(std::span<const TimedRow> rows) {
  const std::lock_guard lock(mutex_);
  const size_t k = kind_of(rows);
  Kind& kind = kinds_[kinds_[k].known ? k : 1 - k];
  if (!std::exchange(kind.current, true)) kind.cost = kind.fit.solve();
  const std::array<double, 4> x = numbers_of(rows);
  double seconds = 0;
  for (size_t i = 0; i < x.size(); ++i) seconds += kind.cost[i] * x[i];
  return seconds;
}

}  // namespace braid
