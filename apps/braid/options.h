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

// Fails with kInvalidArgument where an option of `command` was given before its subcommand.
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
  std::optional<SequenceOptions> sequence;  // of commands that have them
  JobOptions job;
};

// Groups of options in help texts, after the common ones.
inline constexpr const char* kRanks = "Several ranks";
inline constexpr const char* kSchedules = "Schedules";
inline constexpr const char* kEmulation = "Emulated machines and links";

// --tp, --threads, --kv-dtype, --schedule and what goes with them. Ranges are checked by the
// engine, which knows the limits.
void add_parallel(CLI::App& command, ParallelOptions& options);
// --plot and --describe, of commands that call finish().
void add_plot(CLI::App& command, ParallelOptions& options);
// --sp, --ranks and what goes with them; after add_parallel.
void add_sequence(CLI::App& command, ParallelOptions& options);

// Fails with kInvalidArgument where a file to write, `option`'s, is there and is the input, or is
// in the folder that is.
void require_apart(std::string_view option, const std::string& output, const std::string& input);

// choose_device() on this machine.
DeviceChoice usable_device(const std::string& text, int ranks);

// Lines on standard error; progress on a terminal.
Notes terminal_notes();

// What the options ask for around an engine's work.
class ParallelRun {
 public:
  // Opens the trace and the plot, which may be none of the files that are read (`inputs`). Measures
  // this machine where `auto` needs its profile and there is none yet. In a job, of process 0:
  // ranks are those of the job.
  ParallelRun(const ParallelOptions& options, std::initializer_list<std::string> inputs,
              job::Job* job = nullptr);
  ParallelRun(const ParallelRun&) = delete;
  ParallelRun& operator=(const ParallelRun&) = delete;

  // For engines that live no longer than this.
  const EngineConfig& engine_config() const { return engine_; }
  // "cpu", "cuda".
  const char* device_name() const { return engine_.device.cuda ? "cuda" : "cpu"; }
  // Says where it runs, where a user did not, and what will be slow; before the work, after what
  // may refuse it.
  void announce() const;
  // Around work on the CPU: says whether other programs used the cores meanwhile. False: they did
  // not, or it is on GPUs.
  void watch_cores() { cores_ = cpu::CoreWatch(); }
  bool report_cores() const;
  // Completes the trace and the plot, and prints what --explain asks for.
  void finish(Generator& generator);

 private:
  const ParallelOptions& options_;
  EngineConfig engine_;
  std::vector<std::string> remarks_;
  cpu::CoreWatch cores_;
  std::unique_ptr<StepTrace> trace_;
  std::unique_ptr<StepPlot> plot_;
  std::optional<Interrupt> interrupt_;  // that a trace survives
};

}  // namespace braid::app
