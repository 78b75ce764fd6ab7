#include "braid/schedule/launch_waits.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "braid/schedule/dependencies.h"

namespace braid {
namespace {

const Op& op_of(const Program& program, const Launch& launch) {
  return program.ops[launch.op];
}

bool same_micro_batches(const Launch& a, const Launch& b) {
  return a.micro_batch == b.micro_batch && a.num_micro_batches == b.num_micro_batches;
}

// The phase that begins all of `op`'s inputs filled by `pull`; -1: none, or several phases.
int phase_of_pull(const Op& op, const Op& pull) {
  int phase = -1;
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    for (size_t k = 0; k < pull.inputs.size(); ++k) {
      if (op.inputs[i] == kNoValue || op.inputs[i] != pull.inputs[k]) continue;
      if (mutates(op, i)) return -1;
      if (!mutates(pull, k)) continue;
      const int first = first_phase(op, i);
      if (first < 0 || (phase >= 0 && phase != first)) return -1;
      phase = first;
    }
  }
  return phase;
}

// Pulls in `needs` that the launch may wait for inside, the n-th before phase n + 1; or none.
std::vector<int> pulls_inside(const Program& program, std::span<const Launch> launches,
                              const Launch& launch, std::span<const int> needs) {
  const Op& op = op_of(program, launch);
  if (launch.replacement >= 0) return {};
  std::vector<int> pulls(last_phase(op), -1);
  if (pulls.empty()) return {};
  for (int need : needs) {
    const Launch& pull = launches[need];
    if (op_of(program, pull).def->remote != RemoteUse::pulls) continue;
    const int phase = phase_of_pull(op, op_of(program, pull));
    if (phase == 0) continue;
    if (phase < 0 || pull.stream == launch.stream || !same_micro_batches(pull, launch)) return {};
    int& known = pulls[static_cast<size_t>(phase) - 1];
    if (known >= 0 && known != need) return {};
    known = need;
  }
  const auto awaited_inside = [&](int pull) {
    return std::ranges::any_of(launches, [&](const Launch& other) {
      return std::ranges::any_of(
          other.waits, [&](const Wait& wait) { return wait.inside() && wait.launch == pull; });
    });
  };
  for (size_t n = 0; n < pulls.size(); ++n) {
    if (pulls[n] < 0 || (n > 0 && pulls[n] < pulls[n - 1])) return {};
    if (launches[pulls[n]].stream != launches[pulls[0]].stream) return {};
    if (awaited_inside(pulls[n])) return {};
  }
  return pulls;
}

// Launches that must end before these pulls may run: the last launch before the pulls on their
// stream that is no pull, and the waits of all pulls behind that launch.
std::vector<int> before_pulls(const Program& program, std::span<const Launch> launches,
                              std::span<const int> pulls) {
  std::vector<int> before;
  if (pulls.empty()) return before;
  const auto add = [&](int launch) {
    if (std::ranges::count(pulls, launch) == 0) before.push_back(launch);
  };
  const Stream stream = launches[pulls.back()].stream;
  for (int i = pulls.back(); i >= 0; --i) {
    const Launch& launch = launches[i];
    if (launch.stream != stream) continue;
    if (op_of(program, launch).def->remote != RemoteUse::pulls) {
      add(i);
      break;
    }
    for (const Wait& wait : launch.waits) add(wait.launch);
  }
  return before;
}

// The wait for the only launch of which earlier parts are enough; none: there is no such launch, or
// there are several.
std::optional<Wait> partial_wait(const Program& program, std::span<const Launch> launches,
                                 const LaunchOrder& order, const Launch& launch,
                                 std::span<const int> needs) {
  std::optional<Wait> wait;
  for (int need : needs) {
    const Launch& other = launches[need];
    const Op& op = op_of(program, other);
    if (other.last_phase() == 0 || op.def->phases->parts(op.attrs) == 0) continue;
    const int part = part_taken(program, launch, other);
    if (part == kLastPart) continue;
    if (wait && wait->launch != need) return {};
    wait = {need, 0, part};
  }
  // A part may be sent for while its launch runs: all else has ended before that.
  const bool ended = std::ranges::all_of(needs, [&](int other) {
    return !wait || other == wait->launch || order.before(other, wait->launch);
  });
  return ended ? wait : std::nullopt;
}

}  // namespace

std::vector<Wait> waits_of(const Program& program, std::span<const Launch> launches,
                           const LaunchOrder& order, const Launch& launch, std::vector<int> needs) {
  const std::vector<int> pulls = pulls_inside(program, launches, launch, needs);
  const std::optional<Wait> partial = partial_wait(program, launches, order, launch, needs);
  std::erase_if(needs, [&](int other) {
    return (partial && other == partial->launch) || std::ranges::count(pulls, other) > 0;
  });
  for (int other : before_pulls(program, launches, pulls)) needs.push_back(other);
  // The latest launch first: its own waits need not be repeated.
  std::ranges::sort(needs, std::greater<>());
  std::vector<Wait> waits;
  LaunchOrder::Pending pending = order.begin(launch.stream);
  for (int other : needs) {
    if (pending.wait_for(other)) waits.push_back({other});
  }
  std::ranges::sort(waits, {}, &Wait::launch);
  if (partial) waits.push_back(*partial);
  for (int phase = 1; int pull : pulls) waits.push_back({pull, phase++});
  return waits;
}

int last_phase(const Op& op) {
  return op.def->phases == nullptr ? 0 : op.def->phases->last(op.attrs);
}

int first_phase(const Op& op, size_t index) {
  return op.def->phases == nullptr ? 0 : op.def->phases->of_input(op.attrs, index);
}

int part_taken(const Program& program, const Launch& launch, const Launch& other) {
  const Op &taker = op_of(program, launch), &op = op_of(program, other);
  const bool alike = launch.stream != other.stream && same_micro_batches(launch, other) &&
                     launch.replacement < 0 && other.replacement < 0;
  return alike && op.def->phases != nullptr ? op.def->phases->part_for(op, taker) : kLastPart;
}

}  // namespace braid
