#include "braid/schedule/schedule_bound.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "braid/schedule/phase_work.h"
#include "braid/schedule/simulator.h"

namespace braid {
namespace {

bool moves(const Op& op) {
  return op.def->remote == RemoteUse::pulls || op.def->remote == RemoteUse::pushes;
}

// Bytes of a launch's one-sided moves on a rank, by LinkClass.
std::array<double, 3> moved_bytes(const Program& program, const Op& op, int rank,
                                  const Topology& topology, const Work& work) {
  std::array<double, 3> bytes{};
  if (op.def->transfers == nullptr) return bytes;
  for (const Transfer& t : op.def->transfers(op.attrs, program.input_types(op), work)) {
    bytes[static_cast<size_t>(topology.link(rank, t.peer))] += t.bytes;
  }
  return bytes;
}

// Ends of a launch's early results and of all its work, if phase n may begin at there[n] and early
// work comes first.
struct Ends {
  double early = 0;
  double all = 0;
};
Ends work_through(const PhaseWork& work, double alone, std::span<const double> there) {
  double now = there[0], early = 0, rest = 0;
  Ends ends{.early = now, .all = 0};
  for (size_t n = 0; n < there.size(); ++n) {
    now = std::max(now, there[n]);
    const double next = n + 1 < there.size() ? there[n + 1] : INFINITY;
    early += work.early.empty() ? 0 : alone * work.early[n];
    rest += work.rest.empty() ? alone : alone * work.rest[n];
    for (double* left : {&early, &rest}) {
      const double done = std::clamp(next - now, 0., *left);
      *left -= done;
      now += done;
      if (left == &early && done > 0) ends.early = now;
    }
  }
  ends.all = now;
  if (work.early.empty()) ends.early = now;
  return ends;
}

double step_seconds(const Program& program, const Schedule& schedule, int rank,
                    const Topology& topology, std::span<const Work> works, double compute,
                    const std::array<LinkProfile, 3>& links) {
  std::vector<double> flops;
  double all = 0;
  for (const Launch& launch : schedule.launches) {
    const Op& op = schedule.op(program, launch);
    const Cost cost = op.def->cost(op.attrs, program.input_types(op), program.output_types(op),
                                   work_of(launch, works));
    flops.push_back(cost.flops);
    all += cost.flops;
  }
  // Per stream: the last launch's end, and the time at which a later transfer may be asked for,
  // together with a transfer before it.
  std::array<double, kNumStreams> stream_free{}, stream_asks{};
  std::array<double, 3> link_free{};
  std::vector<double> ends, early;  // [launches]
  for (size_t i = 0; i < schedule.launches.size(); ++i) {
    const Launch& launch = schedule.launches[i];
    const Op& op = schedule.op(program, launch);
    const auto stream = static_cast<size_t>(launch.stream);
    double begin = moves(op) ? stream_asks[stream] : stream_free[stream];
    std::vector<double> there{begin};  // when each phase may begin
    for (const Wait& wait : launch.waits) {
      there.resize(static_cast<size_t>(wait.phase) + 1, there[0]);
      const auto& done = wait.results == Results::early ? early : ends;
      there.back() = std::max(there.back(), done[wait.launch]);
    }
    begin = there[0];
    const double alone = all > 0 ? compute * flops[i] / all : 0;
    const Ends worked = work_through(phase_work(op, launch), alone, there);
    double end = worked.all;
    early.push_back(worked.early);
    const auto bytes = moved_bytes(program, op, rank, topology, work_of(launch, works));
    if (moves(op)) {
      for (const LinkClass link : {LinkClass::machine, LinkClass::cluster}) {
        const auto l = static_cast<size_t>(link);
        if (bytes[l] == 0) continue;
        link_free[l] = std::max(begin, link_free[l]) + bytes[l] / links[l].bytes_per_second;
        end = std::max(end, link_free[l] + links[l].latency_seconds);
      }
    }
    if (op.def->remote == RemoteUse::stores) {
      const auto l = static_cast<size_t>(LinkClass::machine);
      if (bytes[l] > 0) end = std::max(end, begin + bytes[l] / links[l].bytes_per_second);
    }
    stream_free[stream] = end;
    stream_asks[stream] = moves(op) ? begin : end;
    ends.push_back(end);
  }
  return ends.empty() ? 0 : *std::ranges::max_element(ends);
}

}  // namespace

double schedule_bound(const Plan& plan, const Topology& topology, std::span<const Work> works,
                      double compute, const std::array<LinkProfile, 3>& links) {
  double worst = 0;
  for (size_t r = 0; r < plan.programs.size(); ++r) {
    worst = std::max(worst, step_seconds(plan.programs[r], plan.schedules[r], static_cast<int>(r),
                                         topology, works, compute, links) -
                                compute);
  }
  return worst;
}

}  // namespace braid
