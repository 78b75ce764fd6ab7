#include "braid/engine/trace/step_times.h"

#include "braid/schedule/micro_batch.h"

namespace braid {

double FittedTimes::seconds(std::span<const TimedRow> rows) {
  int64_t tokens = 0, attended = 0;
  for (const TimedRow& row : rows) {
    tokens += row.tokens;
    attended += attended_keys(row.cached, row.tokens);
  }
  return 1e-3 * cost_.of(tokens, attended) + between_;
}

}  // namespace braid
