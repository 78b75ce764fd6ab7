#include "braid/engine/world.h"

#include <algorithm>
#include <exception>
#include <system_error>
#include <thread>

#include "braid/engine/forward_plans.h"
#include "braid/engine/requests/step_queue.h"
#include "braid/schedule/partition.h"

namespace braid {
namespace {

// Calls fn(rank) for ranks [first, end). `at_once`: on a thread for each, and the first rank's
// error is rethrown after all have ended.
template <class Fn>
void for_each_rank(int first, int end, bool at_once, const Fn& fn) {
  if (!at_once || end - first < 2) {
    for (int rank = first; rank < end; ++rank) fn(rank);
    return;
  }
  std::vector<std::exception_ptr> errors(end - first);
  {
    std::vector<std::jthread> threads;
    try {
      for (int rank = first; rank < end; ++rank) {
        threads.emplace_back([&fn, rank, &error = errors[rank - first]] {
          try {
            fn(rank);
          } catch (...) {
            error = std::current_exception();
          }
        });
      }
    } catch (const std::system_error& e) {
      fail(ErrorCode::kResource, "a thread for each of {} ranks: {}", end - first, e.what());
    }
  }
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace

std::unique_ptr<TokenLoop> World::loop(LoopRequest, const BoundForward&, const BoundForward&,
                                       StepPlanner&) {
  BRAID_CHECK(false, "these ranks sample on the host");
  return nullptr;
}

std::unique_ptr<StepQueue> World::step_queue(const StepQueueOptions&, StepPlanner&) {
  BRAID_CHECK(false, "these ranks sample on the host");
  return nullptr;
}

std::unique_ptr<StepQueue> World::step_queue(const StepQueueOptions&, Runner&) {
  BRAID_CHECK(false, "these ranks sample on the host");
  return nullptr;
}

std::vector<const KernelCatalog*> World::catalogs(int ranks) {
  std::vector<const KernelCatalog*> catalogs;
  const int first = fabric().first_rank(), end = first + fabric().ranks_here();
  for (int r = 0; r < ranks; ++r) {
    catalogs.push_back(&rank(r >= first && r < end ? r : first).backend().catalog());
  }
  return catalogs;
}

std::vector<std::unique_ptr<Executor>> World::bind(PlannedForward planned, bool beside) {
  compare(planned);
  const int first = fabric().first_rank(), end = first + fabric().ranks_here();
  std::vector<std::unique_ptr<Executor>> executors(planned.programs.size());
  // Ranks without a part in a step of several ranks allocate as these do.
  const bool together = std::ranges::any_of(planned.programs.front().ops, communicates);
  const int64_t arena_bytes = planned.schedules.front().memory.arena_bytes;
  for (int i = std::max(first, planned.ranks()); together && i < end; ++i) {
    Schedule idle;
    idle.memory.arena_bytes = arena_bytes;
    rank(i).bind({}, {}, std::move(idle), beside);
  }
  const auto bind_rank = [&](int i) {
    const size_t r = i;
    executors[r] = rank(i).bind(planned.lowered[r], std::move(planned.programs[r]),
                                std::move(planned.schedules[r]), beside);
  };
  for_each_rank(first, std::min(end, planned.ranks()), waits_on_device(), bind_rank);
  return executors;
}

BoundForward World::bound(const ContextKey& key, PlannedForward planned, bool beside) {
  BoundForward result{.key = key};
  if (keeps_plans_) {
    result.programs = planned.programs;
    result.schedules = planned.schedules;
  }
  result.executors = bind(std::move(planned), beside);
  return result;
}

}  // namespace braid
