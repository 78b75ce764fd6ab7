#include "braid/schedule/overlap.h"

#include <algorithm>

#include "braid/base/error.h"
#include "braid/schedule/dependencies.h"
#include "braid/schedule/partition.h"

namespace braid {
namespace {

// Of all that a step takes: sums are not exact.
constexpr double kNothing = 1e-9;

// Sorted, and those that touch or overlap made one.
std::vector<LaunchTime> merged(std::vector<LaunchTime> times) {
  std::ranges::sort(times, {}, &LaunchTime::begin);
  std::vector<LaunchTime> out;
  for (const LaunchTime& t : times) {
    if (t.end <= t.begin) continue;
    if (!out.empty() && t.begin <= out.back().end) {
      out.back().end = std::max(out.back().end, t.end);
    } else {
      out.push_back(t);
    }
  }
  return out;
}

double length(const std::vector<LaunchTime>& times) {
  double sum = 0;
  for (const LaunchTime& t : times) sum += t.seconds();
  return sum;
}

double common(const std::vector<LaunchTime>& a, const std::vector<LaunchTime>& b) {
  double sum = 0;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    sum += std::max(0.0, std::min(a[i].end, b[j].end) - std::max(a[i].begin, b[j].begin));
    if (a[i].end < b[j].end) {
      ++i;
    } else {
      ++j;
    }
  }
  return sum;
}

// The longest chain of launches that need each other's results; `seconds` of each launch.
double longest_chain(const RankTimes& rank, std::span<const double> seconds) {
  const Program& program = *rank.program;
  const Schedule& schedule = *rank.schedule;
  const Dependencies needs = dependencies_of(program);
  const size_t n = schedule.micro_batches.size();
  std::vector<double> ready(program.ops.size() * n, 0);  // [ops, micro-batches] when it has ended
  double longest = 0;
  for (size_t i = 0; i < schedule.launches.size(); ++i) {
    const Launch& launch = schedule.launches[i];
    double begin = 0;
    const auto after = [&](int op, int mb) {
      begin = std::max(begin, ready[static_cast<size_t>(op) * n + static_cast<size_t>(mb)]);
    };
    for (int mb = launch.micro_batch; mb < launch.micro_batch_end(); ++mb) {
      for (int op = launch.op; op < launch.op_end(); ++op) {
        for (int before : needs.same[static_cast<size_t>(op)]) after(before, mb);
        for (int b = mb; b > 0 && schedule.micro_batches[static_cast<size_t>(b)].continues; --b) {
          for (int before : needs.continued[static_cast<size_t>(op)]) after(before, b - 1);
        }
      }
    }
    const double end = begin + std::max(0.0, seconds[i]);
    for (int mb = launch.micro_batch; mb < launch.micro_batch_end(); ++mb) {
      for (int op = launch.op; op < launch.op_end(); ++op) {
        ready[static_cast<size_t>(op) * n + static_cast<size_t>(mb)] = end;
      }
    }
    longest = std::max(longest, end);
  }
  return longest;
}

}  // namespace

Overlap& Overlap::operator+=(const Overlap& other) {
  communication += other.communication;
  hidden += other.hidden;
  hideable += other.hideable;
  computation += other.computation;
  return *this;
}

Overlap& Overlap::operator/=(double n) {
  for (double* x : {&communication, &hidden, &hideable, &computation}) *x /= n;
  return *this;
}

Overlap overlap_of(const RankTimes& rank, std::span<const LaunchCost> costs) {
  const Schedule& schedule = *rank.schedule;
  BRAID_CHECK(rank.times.size() == schedule.launches.size(), "{} times of {} launches",
              rank.times.size(), schedule.launches.size());
  BRAID_CHECK(costs.empty() || costs.size() == rank.times.size());
  std::vector<LaunchTime> computing, communicating;
  std::vector<double> least_seconds;  // [launches] with all hidden inside them that could be
  Overlap result;
  for (size_t i = 0; i < rank.times.size(); ++i) {
    const Launch& launch = schedule.launches[i];
    least_seconds.push_back(rank.times[i].seconds());
    if (!communicates(schedule.op(*rank.program, launch))) {
      computing.push_back(rank.times[i]);
    } else if (!costs.empty() && costs[i].tiles > 0 && launch.stream == Stream::compute) {
      const double body = costs[i].body(), wire = costs[i].wire() + costs[i].latency;
      computing.push_back(rank.times[i]);
      least_seconds.back() = std::min(least_seconds.back(), std::max(body, wire));
      result.communication += wire;
      result.computation -= std::max(0.0, rank.times[i].seconds() - body);
      result.hidden += std::clamp(body + wire - rank.times[i].seconds(), 0.0, std::min(body, wire));
    } else {
      communicating.push_back(rank.times[i]);
    }
  }
  computing = merged(std::move(computing));
  communicating = merged(std::move(communicating));
  result.communication += length(communicating);
  result.computation += length(computing);
  result.hidden += common(communicating, computing);
  if (result.communication > 0) {
    const double least =
        std::max({result.communication, result.computation, longest_chain(rank, least_seconds)});
    const double all = result.communication + result.computation;
    if (all - least > kNothing * all) result.hideable = all - least;
  }
  return result;
}

std::string to_string(const Overlap& o) {
  if (o.communication <= 0) return "no communication";
  if (o.hideable <= 0) {
    return fmt::format("communication {:.3f} ms, none of which could be hidden",
                       o.communication * 1e3);
  }
  return fmt::format(
      "communication {:.3f} ms, {:.3f} ms of the {:.3f} ms that could be are hidden ({:.0f}%), "
      "{:.3f} ms exposed",
      o.communication * 1e3, o.hidden * 1e3, o.hideable * 1e3, o.share() * 100, o.exposed() * 1e3);
}

}  // namespace braid
