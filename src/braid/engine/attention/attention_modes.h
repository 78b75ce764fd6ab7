#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "braid/job/job.h"
#include "braid/parallel/attention/lower_attention.h"
#include "braid/program/launch_time.h"
#include "braid/schedule/plan.h"
#include "braid/schedule/profile.h"

namespace braid::attention_modes {

// The runs of `braid bench attention`.
struct AttentionBench {
  std::string shape = "custom", mode = "all", profile;
  std::string machines;  // [Rx]MxD; empty: a machine with the named GPUs, or with two ranks
  std::string cluster;   // a file with a description instead, and with the profile
  std::string schedule = "sequence_parallel", plot, device = "cpu";
  int64_t tokens = 2048, text = 0, heads = 8, kv_heads = 0, head_dim = 64, batch = 1;
  bool causal = false, launches = false, by_phases = false;
  SpRequest degrees;
  double link_gbps = 0;
  int threads = 1, repetitions = 5, pull_parts = AttentionDivision{}.most_parts;
  int micro_batches = 1;  // that the sequences are divided into
  // Whose processes have the ranks; null: this process has all. Numbers of all ranks come together
  // at process 0.
  job::Job* job = nullptr;
};

// A mode's plan for a benchmark.
struct ModePlan : Plan {
  SequenceAttention attention;
  SequenceMesh mesh;
  std::vector<Extents> counts;  // [micro-batches]

  std::vector<Work> works() const {
    std::vector<Work> result;
    for (const Extents& extents : counts) result.push_back({.extents = extents});
    return result;
  }

  // Whether calls wait for their inputs themselves.
  bool waits_inside() const {
    return std::ranges::any_of(schedules[0].launches,
                               [](const Launch& launch) { return launch.last_phase() > 0; });
  }
};

// A mode's numbers, from the slowest rank.
struct ModeReport {
  SpDegrees degrees;
  double seconds = 0;
  double compute = 0;                          // the step with communication that takes no time
  double exposed = 0;                          // seconds - compute
  PerLink<double> bytes{};                     // by link class, counted or simulated, of all ranks
  PerLink<double> analytic{};                  // by the closed form
  std::vector<std::vector<LaunchTime>> times;  // [ranks][launches]
  std::shared_ptr<const ModePlan> plan;        // the plan that ran
  // On GPUs only: `compute` is then the attention launches' time inside the step.
  double alone = 0;     // the step without its communication
  double plain = 0;     // a single call over all of a rank's work; 0: not measured
  double error = 0;     // largest difference from a GPU's result alone, over sampled rows
  bool repeats = true;  // every run gave the same bits
  uint64_t bits = 0;    // of sampled rows of all ranks, to compare runs with
};

std::shared_ptr<const ModePlan> plan_mode(const AttentionBench& bench, SpMode mode,
                                          const Topology& topology, DType dtype,
                                          const std::vector<const KernelCatalog*>& catalogs);
// Degrees, plan and analytic bytes.
ModeReport report_of(const std::shared_ptr<const ModePlan>& plan);

// On a cluster, by simulation.
ModeReport predict(const AttentionBench& bench, SpMode mode, const Topology& topology,
                   const Profile& profile);
// On CPU ranks of this process, where machines and links between machines are emulated, or of a
// job.
ModeReport measure(const AttentionBench& bench, SpMode mode, Topology topology);

}  // namespace braid::attention_modes
