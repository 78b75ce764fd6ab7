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
PerLink<double> moved_bytes(const Program& program, const Op& op, int rank,
                            const Topology& topology, const Work& work) {
  PerLink<double> bytes{};
  if (op.def->transfers == nullptr) return bytes;
  for (const Transfer& t : op.def->transfers(op.attrs, program.input_types(op), work)) {
    bytes[topology.link(rank, t.peer)] += t.bytes;
  }
  return bytes;
}

// Ends of the parts of a launch's results, if phase n may begin at there[n] and an earlier part's
// work comes first: [parts], the last when all work ends.
std::vector<double> work_through(const PhaseWork& work, double alone,
                                 std::span<const double> there) {
  double now = there[0];
  std::vector<double> ends(std::max<size_t>(work.size(), 1), now), left(ends.size());
  for (size_t n = 0; n < there.size(); ++n) {
    now = std::max(now, there[n]);
    const double next = n + 1 < there.size() ? there[n + 1] : INFINITY;
    for (size_t part = 0; part < ends.size(); ++part) {
      left[part] += work.empty() ? alone : alone * work[part][n];
      const double done = std::clamp(next - now, 0., left[part]);
      left[part] -= done;
      now += done;
      if (done > 0) ends[part] = now;
    }
  }
  ends.back() = now;
  return ends;
}

double step_seconds(const Program& program, const Schedule& schedule, int rank,
                    const Topology& topology, std::span<const Work> works, double compute,
                    const PerLink<LinkProfile>& links) {
  std::vector<double> flops;
  double all = 0, last = 0;
  for (const Launch& launch : schedule.launches) {
    const Op& op = schedule.op(program, launch);
    const Cost cost = op.def->cost(op.attrs, program.input_types(op), program.output_types(op),
                                   work_of(launch, works));
    flops.push_back(cost.flops);
    all += cost.flops;
  }
  // Per stream: the last launch's end, and the time at which a later transfer may be asked for,
  // together with a transfer before it.
  PerStream<double> stream_free{}, stream_asks{};
  PerLink<double> link_free{};
  std::vector<std::vector<double>> ends;  // [launches][parts]
  for (size_t i = 0; i < schedule.launches.size(); ++i) {
    const Launch& launch = schedule.launches[i];
    const Op& op = schedule.op(program, launch);
    const Stream stream = launch.stream;
    double begin = moves(op) ? stream_asks[stream] : stream_free[stream];
    std::vector<double> there{begin};  // when each phase may begin
    for (const Wait& wait : launch.waits) {
      there.resize(wait.phase + 1, there[0]);
      const std::vector<double>& done = ends[wait.launch];
      there.back() = std::max(there.back(), wait.partial() ? done.at(wait.part) : done.back());
    }
    begin = there[0];
    const double alone = all > 0 ? compute * flops[i] / all : 0;
    double& end = ends.emplace_back(work_through(phase_work(op, launch), alone, there)).back();
    const auto bytes = moved_bytes(program, op, rank, topology, work_of(launch, works));
    if (moves(op)) {
      for (const LinkClass link : {LinkClass::machine, LinkClass::cluster}) {
        if (bytes[link] == 0) continue;
        link_free[link] =
            std::max(begin, link_free[link]) + bytes[link] / links[link].bytes_per_second;
        end = std::max(end, link_free[link] + links[link].latency_seconds);
      }
    }
    if (op.def->remote == RemoteUse::stores) {
      const double stored = bytes[LinkClass::machine];
      if (stored > 0) {
        end = std::max(end, begin + stored / links[LinkClass::machine].bytes_per_second);
      }
    }
    stream_free[stream] = end;
    stream_asks[stream] = moves(op) ? begin : end;
    last = std::max(last, end);
  }
  return last;
}

}  // namespace

double schedule_bound(const Plan& plan, const Topology& topology, std::span<const Work> works,
                      double compute, const PerLink<LinkProfile>& links) {
  double worst = 0;
  for (size_t r = 0; r < plan.programs.size(); ++r) {
    worst = std::max(worst, step_seconds(plan.programs[r], plan.schedules[r], static_cast<int>(r),
                                         topology, works, compute, links) -
                                compute);
  }
  return worst;
}

}  // namespace braid
