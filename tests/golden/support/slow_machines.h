#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "braid/engine/runner.h"
#include "braid/schedule/profile.h"

// Ranks for which `--sp auto` divides prompts over a machine alone.
namespace braid::golden {

// Products cost most of the time, and what leaves a machine ten seconds.
inline Profile slow_machines(DType activations) {
  Profile profile = load_profile("h200");
  profile.activations = activations;
  profile.rates = {{.kind = "linear", .dtype = "", .points = {{.m = 1, .per_second = 1e6}}}};
  profile.memory_bytes_per_second = profile.total_memory_bytes_per_second = 1e15;
  profile.cluster_link.latency_seconds = 10;
  return profile;
}

// Products cost most of the time, and each peer that a rank reads from a tenth of a second: the
// more tokens, the more ranks a ring pays for. For models with fewer heads than ranks.
inline Profile slow_peers(DType activations) {
  Profile profile = slow_machines(activations);
  profile.machine_link.latency_seconds = profile.pull_seconds = 0.1;
  return profile;
}

// Of the lines of Runner::explain(), prompts behind no keys were computed by two ranks.
inline void expect_two_ranks(const std::vector<std::string>& lines) {
  int prompts = 0;
  for (const std::string& line : lines) {
    if (!line.starts_with("prompt of ") || line.find("behind 0:") > line.size()) continue;
    ++prompts;
    const size_t chosen = line.find("behind 0: tokens divided, ");
    ASSERT_LT(chosen, line.size()) << line;
    const std::string degrees = line.substr(chosen, line.find(')', chosen) - chosen);
    EXPECT_TRUE(degrees.ends_with("ulysses 1 x ring 2") || degrees.ends_with("ulysses 2 x ring 1"))
        << line;
  }
  EXPECT_GT(prompts, 0);
}

// Of the same lines, some prompt was computed by a ring whose ranks do not divide `ranks`.
inline void expect_uneven_parts(const std::vector<std::string>& lines, int ranks) {
  int uneven = 0;
  for (const std::string& line : lines) {
    const std::string mark = ": tokens divided, ring (torus 1 x ulysses 1 x ring ";
    const size_t chosen = line.find(mark);
    if (!line.starts_with("prompt of ") || chosen > line.find(';')) continue;
    uneven += ranks % std::stoi(line.substr(chosen + mark.size())) != 0 ? 1 : 0;
  }
  EXPECT_GT(uneven, 0);
}

}  // namespace braid::golden
