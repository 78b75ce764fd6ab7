#include "braid/job/job.h"

#include <unistd.h>

#include <bit>
#include <limits>

#include "braid/base/clock.h"
#include "braid/job/packing.h"

namespace braid::job {

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::start:
      return "the start";
    case Phase::loading:
      return "loading";
    case Phase::planning:
      return "planning";
    case Phase::first_step:
      return "the first step";
    case Phase::steps:
      return "a step";
    case Phase::drain:
      return "the end";
  }
  return "an unknown phase";
}

std::string host_name() {
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) != 0) return "unknown host";
  return name;
}

std::string Job::name(int process) const {
  const std::string& host = members().at(static_cast<size_t>(process)).host;
  const int ranks = ranks_per_process(), first = process * ranks;
  if (ranks == 1) return fmt::format("rank {} on {}", first, host);
  return fmt::format("ranks {} to {} on {}", first, first + ranks - 1, host);
}

void Job::agree(std::string_view what, std::string_view value, std::string_view show) {
  Packer mine;
  mine.add(value).add(show.empty() ? value : show);
  const std::vector<std::string> values = gather(what, mine.bytes());
  std::string verdict;
  for (size_t p = 1; p < values.size() && verdict.empty(); ++p) {
    Unpacker first(values[0]), other(values[p]);
    if (first.text() == other.text()) continue;
    verdict =
        fmt::format("{} differ{}: {} has '{}', {} has '{}'", what, what.ends_with('s') ? "" : "s",
                    name(0), first.text(), name(static_cast<int>(p)), other.text());
  }
  verdict = broadcast(what, verdict);
  if (!verdict.empty()) throw Error(ErrorCode::kInvalidArgument, verdict);
}

void Job::barrier(std::string_view what) {
  gather(what, "");
  broadcast(what, "");
}

std::vector<double> Job::clocks_ahead() {
  constexpr int kExchanges = 32;
  std::vector<double> ahead(static_cast<size_t>(processes()));
  for (size_t p = 1; p < ahead.size(); ++p) {
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kExchanges; ++i) {
      const double asked = steady_seconds();
      broadcast("clocks", "");
      const bool mine = process() == static_cast<int>(p);
      const int64_t stamp = mine ? std::bit_cast<int64_t>(steady_seconds()) : 0;
      const std::vector<std::string> stamps = gather("clocks", Packer().add(stamp).bytes());
      const double seconds = steady_seconds() - asked;
      if (process() != 0 || seconds >= least) continue;
      least = seconds;
      ahead[p] = std::bit_cast<double>(Unpacker(stamps[p]).number()) - (asked + seconds / 2);
    }
  }
  if (process() != 0) ahead.clear();
  return ahead;
}

}  // namespace braid::job
