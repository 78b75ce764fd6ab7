#include "braid/engine/plan_agreement.h"

#include <sstream>

#include "braid/base/fnv.h"

namespace braid {
namespace {

// The plan as text: a line for each op and each launch of each rank.
std::vector<std::string> lines_of(const PlannedForward& planned) {
  std::vector<std::string> lines;
  for (size_t r = 0; r < planned.programs.size(); ++r) {
    const Schedule& schedule = planned.schedules[r];
    std::istringstream text(to_string(planned.programs[r]) +
                            to_string(schedule, planned.programs[r]) +
                            fmt::format("hash {:016x}\n", hash_of(schedule)));
    for (std::string line; std::getline(text, line);) {
      lines.push_back(fmt::format("rank {}: {}", r, line));
    }
  }
  return lines;
}

std::string hash_of(const std::vector<std::string>& lines) {
  Fnv low, high(0x9e3779b97f4a7c15u);
  for (const std::string& line : lines) {
    low.add(line);
    high.add(line);
  }
  return fmt::format("{:016x}{:016x}", high.value(), low.value());
}

std::string line_about(const PlannedForward& planned, const std::string& hash) {
  const Schedule& schedule = planned.schedules[0];
  return fmt::format("plan {}: {} ranks, {}, {} launches, arena {} bytes", hash,
                     planned.programs.size(), schedule.strategy, schedule.num_launches(),
                     schedule.memory.arena_bytes);
}

std::string joined(const std::vector<std::string>& lines) {
  return fmt::format("{}", fmt::join(lines, "\n"));
}

std::string line_at(const std::string& text, int64_t wanted) {
  std::istringstream lines(text);
  std::string line;
  for (int64_t i = 0; std::getline(lines, line); ++i) {
    if (i == wanted) return line;
  }
  return "nothing";
}

// The first difference of two texts, with both lines.
std::string first_difference(const job::Job& job, const std::vector<std::string>& texts) {
  for (size_t p = 1; p < texts.size(); ++p) {
    for (int64_t i = 0; texts[p] != texts[0]; ++i) {
      const std::string mine = line_at(texts[0], i), theirs = line_at(texts[p], i);
      if (mine == theirs) continue;
      return fmt::format("plans differ: {} has '{}', {} has '{}'", job.name(0), mine,
                         job.name(static_cast<int>(p)), theirs);
    }
  }
  return "";
}

}  // namespace

std::string plan_line(const PlannedForward& planned) {
  return line_about(planned, hash_of(lines_of(planned)));
}

std::string agree_on_plan(job::Job& job, const PlannedForward& planned) {
  const std::vector<std::string> lines = lines_of(planned);
  const std::string hash = hash_of(lines);
  const std::vector<std::string> hashes = job.gather("plans", hash);
  const bool same =
      std::ranges::all_of(hashes, [&](const std::string& other) { return other == hashes[0]; });
  if (job.broadcast("plans", same ? "same" : "different") == "same") {
    return line_about(planned, hash);
  }
  const std::vector<std::string> texts = job.gather("plans as text", joined(lines));
  throw Error(ErrorCode::kInvalidArgument,
              job.broadcast("plans as text", first_difference(job, texts)));
}

}  // namespace braid
