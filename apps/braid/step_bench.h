#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "braid/engine/diffusion/network.h"
#include "braid/engine/profile_choice.h"
#include "braid/figures.h"
#include "braid/job_options.h"
#include "braid/sequence_options.h"

// Times a network's steps on a single rank and over ranks, beside the simulator's prediction.
namespace braid::app {

// Options for all benchmarks of steps.
struct StepBenchOptions {
  std::string weights, device = "auto", modes = "all", machines, schedule = "sequence_parallel";
  std::string profile;  // simulates, with no device
  int ranks = 0, threads = 0, repetitions = 5, warm_ups = 2, blocks = 0, figure = 0;
  std::vector<int64_t> tokens;  // of figures 9 and 12
  double link_gbps = 0, link_us = 0;
  bool launches = false, phases = false, simulate_one = false, decode = false, decode_only = false;
  bool json = false;
  int cfg_ranks = 0;  // of a simulation: groups that compute both passes of guidance; 0: one pass
  DegreeOptions degrees;
  JobOptions job;

  // `example` is a file of weights' shapes.
  void add_to(CLI::App& command, const std::string& example);
  // Fails with kInvalidArgument, naming the option.
  void check();
};

// A step of some sizes with random inputs on some ranks.
class BenchedStep {
 public:
  virtual ~BenchedStep() = default;
  // Prepares the step of size i; run() then computes the step.
  virtual void begin(size_t i) = 0;
  virtual void run() = 0;
  virtual BoundNetwork& network() = 0;
  // As Network's; the next begin() plans anew.
  virtual void divide_by(const SequenceMesh& mesh, const std::string& schedule) = 0;
};

// What a family brings to the benchmark.
struct StepFamily {
  std::string title;
  std::vector<std::string> sizes;
  int64_t heads = 0;
  const RandomWeights* random = nullptr;  // of the step
  std::function<std::unique_ptr<BenchedStep>(const NetworkConfig&)> make;
  std::function<Program(size_t i)> step;  // of size i
  // A part of the step with size i that costs ranks alike, and its inputs as in row_parallel.
  std::function<Program(size_t i)> part;
  std::vector<std::vector<std::string>> rows;
};

// Devices, ranks and links of a benchmark.
class BenchPlace {
 public:
  explicit BenchPlace(const StepBenchOptions& options);

  // From a profile, with no device.
  bool simulated() const { return simulated_; }
  DType dtype() const;
  int ranks() const { return engine_.tp; }
  const Topology& topology() const { return topology_; }
  const std::optional<Profile>& profile() const { return profile_; }
  // Kernels like those of the devices, for plans; null: names alone.
  std::unique_ptr<KernelCatalog> kernels() const;
  NetworkConfig one(const RandomWeights* random) const;  // one rank
  NetworkConfig all(const RandomWeights* random) const;  // all ranks, without a mesh
  std::string description() const;

 private:
  bool simulated_ = false;
  EngineConfig engine_;
  Topology topology_;
  std::optional<Profile> profile_;
};

// Prints a family's table, each row when measured: a single rank, then rows with several ranks, for
// each size.
void print_steps(const StepFamily& family, const StepBenchOptions& options,
                 const BenchPlace& place);

// Rank 0's time by kind of op, launch by launch.
std::string kinds_of(BoundNetwork& network);

// A decoder of some sizes with random latents on some ranks.
class BenchedDecoder {
 public:
  virtual ~BenchedDecoder() = default;
  // Size i, its pixels on the host.
  virtual void decode(size_t i) = 0;
  virtual BoundNetwork& bound(size_t i) = 0;
};
using MakeDecoder = std::function<std::unique_ptr<BenchedDecoder>(const NetworkConfig&)>;
// Prints decoding on a single rank, then over all. `random`: the decoder's weights.
void print_decodes(const std::vector<std::string>& sizes, const StepBenchOptions& options,
                   const BenchPlace& place, const RandomWeights* random, const MakeDecoder& make);

// Attention alone: queries, keys and values are products of 64 numbers for each token.
StepFamily attention_family(int64_t heads, const std::vector<AttentionSize>& sizes,
                            const BenchPlace& place);

// Random inputs.
std::vector<float> normals(uint64_t seed, int64_t n);

}  // namespace braid::app
