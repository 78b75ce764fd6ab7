#include "braid/parallel/attention/key_levels.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid {
namespace {

constexpr std::pair<std::string_view, Importance> kImportances[] = {
    {"own", Importance::own}, {"probe", Importance::probe}, {"previous", Importance::previous}};

int64_t share_of(double share, int64_t rows) {
  // A share of 1 keeps all, whatever the product rounds to.
  return std::min(rows, static_cast<int64_t>(std::ceil(share * static_cast<double>(rows))));
}

}  // namespace

Importance parse_importance(std::string_view name) {
  for (const auto& [known, importance] : kImportances) {
    if (name == known) return importance;
  }
  fail(ErrorCode::kInvalidArgument, "--importance is '{}', wanted own, probe or previous", name);
}

std::string to_string(Importance importance) {
  for (const auto& [name, known] : kImportances) {
    if (importance == known) return std::string(name);
  }
  return "";
}

size_t level_of(const KeyLevels& levels, const PromptPart& a, const PromptPart& b) {
  size_t level = 0;
  if (a.second != b.second) return levels.groups.size() - 1;
  while (a.rank / levels.groups[level] != b.rank / levels.groups[level]) ++level;
  return level;
}

KeyLevels key_levels(std::vector<double> keep, std::vector<int> groups, int ranks) {
  if (groups.empty()) groups = {ranks};
  int inner = 1;
  for (int group : groups) {
    if (group <= inner || group % inner != 0) {
      fail(
          ErrorCode::kInvalidArgument,
          "--levels {}: groups of {} ranks in groups of {}, wanted each to hold several of the one "
          "before",
          fmt::join(groups, ","), inner, group);
    }
    inner = group;
  }
  if (inner % ranks != 0) {
    fail(ErrorCode::kInvalidArgument,
         "--levels {}: the last group has {} of {} ranks, wanted all, or a multiple",
         fmt::join(groups, ","), inner, ranks);
  }
  if (keep.empty() || keep.size() > groups.size()) {
    fail(ErrorCode::kInvalidArgument,
         "--keep has {} shares, wanted 1 to {}: one for each level of --levels (with --sp also "
         "of --machines)",
         keep.size(), groups.size());
  }
  for (size_t i = 0; i < keep.size(); ++i) {
    if (!(keep[i] > 0 && keep[i] <= 1)) {
      fail(ErrorCode::kInvalidArgument, "--keep is {}, wanted above 0 and at most 1", keep[i]);
    }
    if (i > 0 && keep[i] > keep[i - 1]) {
      fail(ErrorCode::kInvalidArgument, "--keep rises from {} to {} with the distance", keep[i - 1],
           keep[i]);
    }
  }
  // The same number of keys in each further level's region.
  while (keep.size() < groups.size()) {
    const size_t i = keep.size();
    keep.push_back(keep.back() * groups[i - 1] / groups[i]);
  }
  return {.groups = std::move(groups), .keep = std::move(keep)};
}

KeyLevels key_levels(std::vector<double> keep, std::vector<int> groups, const Topology& topology) {
  if (groups.empty() && keep.size() > 1) groups = nested_groups(topology);
  return key_levels(std::move(keep), std::move(groups), topology.ranks());
}

KeyLevels keeping_all(KeyLevels levels) {
  std::ranges::fill(levels.keep, 1);
  levels.drop_queries = false;
  return levels;
}

std::vector<PromptPart> prompt_parts(const SequenceLayout& q) {
  const int P = static_cast<int>(q.ranks.size());
  std::vector<PromptPart> parts;
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const auto& runs : q.ranks) {
    if (!runs.empty()) first = std::min(first, runs[0].position);
  }
  for (int r = 0; r < P; ++r) {
    parts.push_back({.rank = r, .rows = ceil_div(q.rows(r), int64_t{2})});
  }
  for (int r = P - 1; r >= 0; --r) {
    parts.push_back(
        {.rank = r, .second = true, .row = ceil_div(q.rows(r), int64_t{2}), .rows = q.rows(r) / 2});
  }
  int64_t position = first;
  for (PromptPart& part : parts) {
    part.position = position;
    position += part.rows;
  }
  BRAID_CHECK(q == even_zigzag_layout(q.length(), P, first), "tokens that are not in zigzag");
  return parts;
}

std::vector<PromptPart> level_parts(const KeyLevels& levels, const SequenceLayout& q) {
  const std::vector<PromptPart> runs = prompt_parts(q);
  const size_t P = q.ranks.size(), R = levels.groups.back();
  if (P == R) return runs;
  BRAID_CHECK(R % P == 0, "parts of {} ranks on {}", R, P);
  const size_t each = R / P;
  std::vector<PromptPart> parts =
      prompt_parts(even_zigzag_layout(q.length(), static_cast<int>(R), runs[0].position));
  for (size_t i = 0; i < parts.size(); ++i) {
    const size_t run = i / each;
    // The last rank's two runs follow each other.
    const PromptPart& begin = runs[run == P ? P - 1 : run];
    const PromptPart& last = runs[run == P - 1 ? P : run];
    int64_t& position = parts[i].position;
    position = i % each == 0 && run != P
                   ? begin.position
                   : std::clamp(position, begin.position, last.position + last.rows);
    parts[i].row = begin.row + position - begin.position;
    parts[i].rows = last.position + last.rows - position;
    if (i > 0) parts[i - 1].rows = position - parts[i - 1].position;
  }
  return parts;
}

int64_t kept_keys(const KeyLevels& levels, const PromptPart& reader, const PromptPart& part) {
  return share_of(levels.keep[level_of(levels, reader, part)], part.rows);
}

int64_t kept_queries(const KeyLevels& levels, const PromptPart& reader, size_t level) {
  if (!levels.drop_queries) return reader.rows;
  const int64_t spared = levels.recent + (reader.position == 0 ? levels.sinks : 0);
  return std::max(share_of(levels.keep[level], reader.rows), std::min(spared, reader.rows));
}

double kept_pairs(const KeyLevels& levels, const SequenceLayout& q) {
  const std::vector<PromptPart> parts = level_parts(levels, q);
  double kept = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto rows = static_cast<double>(parts[i].rows);
    kept += rows * (rows + 1) / 2;
    for (size_t j = 0; j < i; ++j) {
      const size_t level = level_of(levels, parts[i], parts[j]);
      kept += static_cast<double>(kept_queries(levels, parts[i], level)) *
              static_cast<double>(kept_keys(levels, parts[i], parts[j]));
    }
  }
  const auto L = static_cast<double>(q.length());
  return kept / (L * (L + 1) / 2);
}

int64_t pulled_rows(const KeyLevels& levels, const SequenceLayout& q,
                    const std::vector<int64_t>& cached) {
  const std::vector<PromptPart> parts = level_parts(levels, q);
  const int P = static_cast<int>(cached.size());
  const auto rank_of = [&](const PromptPart& part) {
    return part.rank / (levels.groups.back() / P);
  };
  const auto reads = [&](int reader) {
    return std::ranges::any_of(
        parts, [&](const PromptPart& part) { return rank_of(part) == reader && part.rows > 0; });
  };
  int64_t rows = 0;
  for (int reader = 0; reader < P; ++reader) {
    for (size_t j = 0; j < parts.size(); ++j) {
      if (rank_of(parts[j]) == reader) continue;
      int64_t most = 0;
      for (size_t i = j + 1; i < parts.size(); ++i) {
        if (rank_of(parts[i]) != reader || parts[i].rows == 0) continue;
        most = std::max(most, kept_keys(levels, parts[i], parts[j]));
      }
      rows += most;
    }
    for (int r = 0; r < P; ++r) {
      if (r != reader && reads(reader)) rows += cached[r];
    }
  }
  return rows;
}

}  // namespace braid
