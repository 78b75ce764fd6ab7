#pragma once

#include <CLI/CLI.hpp>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>

#include "braid/backend/cpu/core_watch.h"
#include "braid/engine/device_choice.h"
#include "braid/engine/limits.h"
#include "braid/engine/parallel_choice.h"
#include "braid/engine/step_plot.h"
#include "braid/engine/step_trace.h"
#include "braid/interrupt.h"
#include "braid/job_options.h"
#include "braid/sequence_options.h"

namespace braid::app {

// Fails with kInvalidArgument if an option of `command` stands before the subcommand.
void require_no_options(const CLI::App& command, std::string_view subcommand);

// How a forward pass is spread over ranks and time.
struct ParallelOptions {
  std::string device = "auto";
  std::optional<int> gpu_layers;
  EngineConfig engine;
  std::string kv_dtype = "auto";
  std::string decode = "auto";
  double link_gbps = 0;  // GB/s; 0: the speed of memory
  double link_us = 0;
  bool explain = false;
  std::string trace, plot, describe;
  int64_t expert_mib = kExpertMemory >> 20;
  std::optional<SequenceOptions> sequence;  // for commands with add_sequence
  JobOptions job;
};

// Groups of options in help texts, after the common ones.
inline constexpr const char* kRanks = "Several ranks";
inline constexpr const char* kSchedules = "Schedules";
inline constexpr const char* kEmulation = "Emulated machines and links";

// Adds --tp, --threads, --kv-dtype, --schedule and related options. The engine checks ranges.
void add_parallel(CLI::App& command, ParallelOptions& options);
// Adds --plot and --describe, for commands with a call of finish().
void add_plot(CLI::App& command, ParallelOptions& options);
// Adds --sp, --ranks and related options; call after add_parallel.
void add_sequence(CLI::App& command, ParallelOptions& options);

// Fails with kInvalidArgument if `option` would overwrite the input, or a file in an input folder.
void require_apart(std::string_view option, const std::string& output, const std::string& input);

// choose_device() on this machine.
DeviceChoice usable_device(const std::string& text, int ranks);

// Lines on standard error; progress on a terminal.
Notes terminal_notes();

// Applies ParallelOptions around an engine's work: trace, plot, profile, remarks.
class ParallelRun {
 public:
  // Opens the trace and the plot; neither may be among the `inputs`. Measures this machine if
  // `auto` needs a profile and none exists. In a job, process 0 creates a ParallelRun with the
  // job's ranks.
  ParallelRun(const ParallelOptions& options, std::initializer_list<std::string> inputs,
              job::Job* job = nullptr);
  ParallelRun(const ParallelRun&) = delete;
  ParallelRun& operator=(const ParallelRun&) = delete;

  // Valid for engines within the lifetime of this object.
  const EngineConfig& engine_config() const { return engine_; }
  // "cpu", "cuda".
  const char* device_name() const { return engine_.device.cuda ? "cuda" : "cpu"; }
  // Prints the chosen device and warnings of slow settings. Call before the work, after all checks.
  void announce() const;
  // Around work on the CPU: report_cores() prints whether other programs used the cores meanwhile.
  // False: no other program did, or the work ran on GPUs.
  void watch_cores() { cores_ = cpu::CoreWatch(); }
  bool report_cores() const;
  // Says once that prompts left keys out, where some did.
  void report_approximation(const Generator& generator);
  // Completes the trace and the plot, and prints the lines of --explain.
  void finish(Generator& generator);

 private:
  const ParallelOptions& options_;
  EngineConfig engine_;
  std::vector<std::string> remarks_;
  bool approximation_said_ = false;
  cpu::CoreWatch cores_;
  std::unique_ptr<StepTrace> trace_;
  std::unique_ptr<StepPlot> plot_;
  std::optional<Interrupt> interrupt_;  // a trace is complete after Ctrl-C
};

}  // namespace braid::app
