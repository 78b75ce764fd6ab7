#include "braid/schedule/simulator.h"

#include <algorithm>
#include <unordered_map>

#include "braid/base/error.h"
#include "braid/schedule/fair_share.h"
#include "braid/schedule/partition.h"
#include "braid/schedule/phase_work.h"
#include "braid/schedule/step_resources.h"

namespace braid {
namespace {

// A launch, or a collective on all its ranks, from begin to end.
struct Job {
  int rank = 0;  // a collective: its first
  int launch = 0;
  bool fused_tile = false;  // a fused op computes its first tile before sending
};

// Work on a part of a launch's results: phases finished or started, fraction done of the next.
struct PartWork {
  size_t phases = 0;
  double fraction = 0;
};

// A meeting of ranks: a stream's n-th communication.
struct Meeting {
  int ranks = 0;
  std::vector<std::pair<int, int>> here;  // (rank, launch) that have come
  enum class Step : uint8_t { gathering, latency, transfer } step = Step::gathering;
};

class Simulation {
 public:
  Simulation(const Plan& plan, const CostModel& model, SimulatedStep& step)
      : programs_(plan.programs),
        schedules_(plan.schedules),
        model_(model),
        step_(step),
        resources_(model),
        share_(resources_.count()),
        ranks_(schedules_.size()) {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      const size_t n = schedules_[r].launches.size();
      ranks_[r].ended.assign(n, false);
      ranks_[r].parts.assign(n, 0);
      ranks_[r].begun.resize(n);
      step.times[r].resize(n);
      left_ += n;
      for (size_t i = 0; i < n; ++i) {
        const Launch& launch = schedules_[r].launches[i];
        ranks_[r].work.push_back(phase_work(schedules_[r].op(programs_[r], launch), launch));
        ranks_[r].begun[i].resize(std::max<size_t>(ranks_[r].work[i].size(), 1));
        ranks_[r].queue[launch.stream].push_back(static_cast<int>(i));
      }
    }
  }

  double run() {
    for (size_t r = 0; r < ranks_.size(); ++r) start_what_can(static_cast<int>(r));
    std::vector<int> ended;
    while (left_ > 0) {
      if (share_.idle()) stuck();
      ended.clear();
      now_ += share_.advance(ended);
      for (int handle : ended) finish(handle);
      std::ranges::sort(woken_);
      woken_.erase(std::unique(woken_.begin(), woken_.end()), woken_.end());
      for (int rank : std::exchange(woken_, {})) start_what_can(rank);
    }
    return now_;
  }

 private:
  using Resources = StepResources;
  static constexpr double kSlice = 1. / 16;

  struct Rank {
    PerStream<std::vector<int>> queue;
    PerStream<size_t> next{};
    PerStream<bool> busy{};
    PerStream<int> communications{};
    std::vector<bool> ended;
    std::vector<int> parts;                    // [launches] present parts before the last
    std::vector<PhaseWork> work;               // [launches]
    std::vector<std::vector<PartWork>> begun;  // [launches][parts]
    std::vector<Job> held;                     // jobs whose next phase may not begin yet
  };
  // Meaning of a share_ activity: a launch, or a meeting.
  struct Activity {
    Job job;
    int meeting = -1;
  };

  const LaunchCost& cost(int rank, int launch) const { return step_.costs[rank][launch]; }
  const PhaseWork& work(const Job& job) const { return ranks_[job.rank].work[job.launch]; }
  size_t phases_of(const Job& job) const { return work(job).empty() ? 1 : work(job)[0].size(); }
  // Of the launch's work.
  double share_of(const Job& job, size_t part, size_t phase) const {
    return work(job).empty() ? 1 : work(job)[part][phase];
  }
  // Adds the device's use by `part` of a launch's work, and the ports' use by its transfers, during
  // `seconds`.
  void add_body(int rank, const LaunchCost& c, double seconds, double part) {
    if (seconds <= 0) return;
    const Profile& profile = model_.profile();
    double units = c.compute * std::min(c.units / profile.units, 1.0) * part / seconds;
    if (c.ranks > 1) units = std::max(units, profile.collective_units / profile.units);
    add_use(rank, Resources::kUnits, units);
    add_use(rank, Resources::kMemory,
            c.memory * profile.memory_bytes_per_second / profile.total_memory_bytes_per_second *
                part / seconds);
  }
  void add_wire(int rank, const LaunchCost& c, double seconds) {
    if (seconds <= 0) return;
    // A port shared by several ranks belongs to each rank for part of the time.
    const auto add = [&](double port_seconds, Resources::Kind out, Resources::Kind in) {
      const double share = port_seconds / resources_.sharers(out, c.ranks) / seconds;
      add_use(rank, out, share);
      add_use(rank, in, share);
    };
    add(c.machine, Resources::kMachineOut, Resources::kMachineIn);
    add(c.cluster, Resources::kClusterOut, Resources::kClusterIn);
    add(c.rack, Resources::kRackOut, Resources::kRackIn);
  }

  void add_use(int rank, Resources::Kind kind, double share) {
    if (share > 0) uses_.push_back({resources_.index(rank, kind), std::min(share, 1.0)});
  }

  void begin(double seconds, const Activity& activity) {
    const size_t handle = share_.begin(seconds, uses_);
    uses_.clear();
    if (activities_.size() <= handle) activities_.resize(handle + 1);
    activities_[handle] = activity;
  }

  void start_what_can(int rank) {
    Rank& state = ranks_[rank];
    const Schedule& schedule = schedules_[rank];
    for (const Job& job : std::exchange(state.held, {})) work_on(job);
    for (size_t s = 0; s < kNumStreams; ++s) {
      if (state.busy[s] || state.next[s] == state.queue[s].size()) continue;
      const int i = state.queue[s][state.next[s]];
      const Launch& launch = schedule.launches[i];
      if (!may_begin(state, launch, 0)) continue;
      ++state.next[s];
      state.busy[s] = true;
      start(rank, i);
    }
  }

  static bool may_begin(const Rank& state, const Launch& launch, int phase) {
    return std::ranges::all_of(launch.waits, [&](const Wait& wait) {
      return wait.phase != phase || state.ended[wait.launch] ||
             (wait.partial() && state.parts[wait.launch] > wait.part);
    });
  }

  void start(int rank, int launch) {
    step_.times[rank][launch].begin = now_;
    const LaunchCost& c = cost(rank, launch);
    if (c.ranks == 1) {
      work_on({.rank = rank, .launch = launch});
    } else if (c.tiles > 0) {
      const double seconds = c.fixed + c.body() / c.tiles;
      add_body(rank, c, seconds, 1.0 / c.tiles);
      begin(seconds, {{rank, launch, true}});
    } else {
      meet(rank, launch);
    }
  }

  // A launch other than a meeting: its phases, each as soon as allowed, an earlier part of the
  // results first: its work comes between slices of later parts' work.
  void work_on(Job job) {
    Rank& state = ranks_[job.rank];
    const size_t i = job.launch;
    const Launch& launch = schedules_[job.rank].launches[i];
    const size_t phases = phases_of(job);
    std::vector<PartWork>& begun = state.begun[i];
    size_t part = 0;
    bool is_behind = false;  // an earlier part has work left
    for (; part < begun.size(); ++part) {
      const size_t next = begun[part].phases;
      if (next == phases) continue;
      if (next == 0 || may_begin(state, launch, static_cast<int>(next))) break;
      is_behind = true;
    }
    if (part == begun.size()) return state.held.push_back(job);
    auto& [phase, fraction] = begun[part];
    const bool sliced = is_behind && fraction + kSlice < 1;
    const double slice = sliced ? kSlice : 1 - fraction;
    const double share = share_of(job, part, phase) * slice;
    fraction += slice;
    if (!sliced) fraction = 0, ++phase;
    const LaunchCost& c = cost(job.rank, job.launch);
    add_body(job.rank, c, c.seconds() * share, share);
    for (const LaunchCost::Transfer& t : c.transfers) {  // includes ports of idle ranks
      const double of_port = t.seconds / c.seconds();
      add_use(t.from, t.cluster ? Resources::kClusterOut : Resources::kMachineOut, of_port);
      add_use(t.to, t.cluster ? Resources::kClusterIn : Resources::kMachineIn, of_port);
      add_use(t.from, Resources::kRackOut, t.rack / c.seconds());
      add_use(t.to, Resources::kRackIn, t.rack / c.seconds());
    }
    begin(c.seconds() * share, {job});
  }

  void meet(int rank, int launch) {
    const LaunchCost& c = cost(rank, launch);
    const auto s = static_cast<size_t>(schedules_[rank].launches[launch].stream);
    const int first = rank / c.ranks * c.ranks;
    const int turn = ranks_[rank].communications[s]++;
    const auto world = static_cast<int64_t>(ranks_.size());
    const int64_t key =
        (static_cast<int64_t>(turn) * kNumStreams + static_cast<int64_t>(s)) * world + first;
    const auto [it, made] = meeting_of_.try_emplace(key, static_cast<int>(meetings_.size()));
    if (made)
      meetings_.push_back({.ranks = std::min<int>(c.ranks, static_cast<int>(world) - first)});
    Meeting& meeting = meetings_[it->second];
    meeting.here.emplace_back(rank, launch);
    if (static_cast<int>(meeting.here.size()) == meeting.ranks) go_on(it->second);
  }

  // The next step of a meeting whose ranks have all come: first pure delays, then the transfers, at
  // the slowest rank's pace.
  void go_on(int index) {
    Meeting& meeting = meetings_[index];
    const Activity activity{.job = {}, .meeting = index};
    if (meeting.step == Meeting::Step::gathering) {
      meeting.step = Meeting::Step::latency;
      double seconds = 0;
      for (const auto& [rank, launch] : meeting.here) {
        const LaunchCost& c = cost(rank, launch);
        seconds = std::max(seconds, c.latency + (c.tiles > 0 ? 0 : c.fixed));
      }
      return begin(seconds, activity);
    }
    if (meeting.step == Meeting::Step::latency) {
      meeting.step = Meeting::Step::transfer;
      double seconds = 0;
      const auto first_tile = [](const LaunchCost& c) {
        return c.tiles > 0 ? c.body() / c.tiles : 0;
      };
      for (const auto& [rank, launch] : meeting.here) {
        const LaunchCost& c = cost(rank, launch);
        seconds = std::max(seconds, c.pipelined() - first_tile(c));
      }
      for (const auto& [rank, launch] : meeting.here) {
        const LaunchCost& c = cost(rank, launch);
        add_body(rank, c, seconds, c.tiles > 0 ? 1 - 1.0 / c.tiles : 1);
        add_wire(rank, c, seconds);
      }
      return begin(seconds, activity);
    }
    for (const auto& [rank, launch] : meeting.here) end(rank, launch);
    meeting.here = {};
  }

  void finish(int handle) {
    const Activity activity = activities_[handle];
    const Job& job = activity.job;
    if (activity.meeting >= 0) {
      go_on(activity.meeting);
    } else if (job.fused_tile) {
      meet(job.rank, job.launch);
    } else {
      go_on(job);
    }
  }

  void go_on(Job job) {
    Rank& state = ranks_[job.rank];
    const size_t i = job.launch;
    std::vector<PartWork>& begun = state.begun[i];
    const size_t phases = phases_of(job);
    size_t done = 0;  // parts, in order
    for (size_t part = 0; part < begun.size(); ++part) {
      size_t& next = begun[part].phases;
      while (part + 1 < begun.size() && next < phases && share_of(job, part, next) == 0) ++next;
      if (next == phases && done == part) ++done;
    }
    if (done == begun.size()) return end(job.rank, job.launch);
    if (done > static_cast<size_t>(state.parts[i])) {
      state.parts[i] = static_cast<int>(done);
      woken_.push_back(job.rank);
    }
    work_on(job);
  }

  void end(int rank, int launch) {
    Rank& state = ranks_[rank];
    const size_t i = launch;
    const Launch& what = schedules_[rank].launches[i];
    step_.times[rank][i].end = now_;
    state.ended[i] = true;
    state.busy[what.stream] = false;
    woken_.push_back(rank);
    --left_;
  }

  [[noreturn]] void stuck() const {
    for (size_t r = 0; r < ranks_.size(); ++r) {
      for (size_t i = 0; i < ranks_[r].ended.size(); ++i) {
        if (ranks_[r].ended[i]) continue;
        const Op& op = schedules_[r].op(programs_[r], schedules_[r].launches[i]);
        fail(ErrorCode::kInvalidArgument,
             "schedule '{}': rank {}: launch {} ({} at '{}') waits for what never comes",
             schedules_[r].strategy, r, i, op.def->kind, op.scope);
      }
    }
    BRAID_CHECK(false, "no launch is left");
    std::abort();
  }

  const std::vector<Program>& programs_;
  const std::vector<Schedule>& schedules_;
  const CostModel& model_;
  SimulatedStep& step_;
  const StepResources resources_;
  FairShare share_;
  std::vector<Rank> ranks_;
  std::vector<Activity> activities_;  // by handle
  std::vector<Meeting> meetings_;
  std::unordered_map<int64_t, int> meeting_of_;
  std::vector<FairShare::Use> uses_;
  std::vector<int> woken_;
  double now_ = 0;
  size_t left_ = 0;
};

// Gives all of a group's time to its first launch.
void join_times(const Schedule& schedule, std::vector<LaunchTime>& times) {
  for (const LaunchGroup& group : schedule.groups) {
    const double end = times[group.end() - 1].end;
    times[group.first].end = end;
    for (int i = group.first + 1; i < group.end(); ++i) times[i] = {end, end};
  }
}

SimulatedStep simulate_step(const Plan& plan, std::span<const Work> works, const CostModel& model,
                            const OwnPrices& own, bool communication) {
  const std::vector<Program>& programs = plan.programs;
  const std::vector<Schedule>& schedules = plan.schedules;
  BRAID_CHECK(programs.size() == schedules.size());
  BRAID_CHECK(plan.ranks() == model.topology().ranks(), "{} ranks on a topology of {}",
              plan.ranks(), to_string(model.topology()));
  SimulatedStep step;
  step.times.resize(schedules.size());
  for (size_t r = 0; r < schedules.size(); ++r) {
    BRAID_CHECK(works.size() == schedules[r].micro_batches.size(), "work of {} micro-batches of {}",
                works.size(), schedules[r].micro_batches.size());
    std::vector<LaunchCost>& costs = step.costs.emplace_back(
        price_launches(model, programs[r], schedules[r], works, static_cast<int>(r), own));
    for (size_t i = 0; i < costs.size() && !communication; ++i) {
      const Op& op = schedules[r].op(programs[r], schedules[r].launches[i]);
      costs[i] = without_communication(op, std::move(costs[i]));
    }
    step.arena_bytes = std::max(step.arena_bytes, schedules[r].memory.arena_bytes);
    for (const LaunchCost& cost : costs) {
      const Topology& topology = model.topology();
      for (const LaunchCost::Transfer& t : cost.transfers) {
        if (!t.cluster || topology.rack_of(t.from) == topology.rack_of(t.to)) continue;
        step.rack_bytes += t.seconds * model.cluster_link().bytes_per_second;
      }
      if (cost.ranks == 1) {
        step.wire_bytes[LinkClass::machine] += cost.machine * model.machine_link().bytes_per_second;
        step.wire_bytes[LinkClass::cluster] += cost.cluster * model.cluster_link().bytes_per_second;
        continue;
      }
      // Shares of a collective's bytes, which go evenly to the other ranks.
      const auto beyond = [&](int ranks) {
        return std::max(0, cost.ranks - ranks) / (cost.ranks - 1.0);
      };
      const double far = beyond(topology.devices);
      step.wire_bytes[LinkClass::machine] += cost.work.wire_bytes * (1 - far);
      step.wire_bytes[LinkClass::cluster] += cost.work.wire_bytes * far;
      step.rack_bytes += cost.work.wire_bytes * beyond(topology.ranks_of_rack());
    }
  }
  step.seconds = model.profile().step_seconds + Simulation(plan, model, step).run();
  for (size_t r = 0; r < schedules.size(); ++r) join_times(schedules[r], step.times[r]);
  return step;
}

}  // namespace

SimulatedStep simulate(const Plan& plan, std::span<const Work> works, const CostModel& model,
                       const OwnPrices& own) {
  return simulate_step(plan, works, model, own, true);
}

SimulatedStep simulate_without_communication(const Plan& plan, std::span<const Work> works,
                                             const CostModel& model, const OwnPrices& own) {
  return simulate_step(plan, works, model, own, false);
}

}  // namespace braid
