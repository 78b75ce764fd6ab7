#include "braid/options.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/engine/cluster_description.h"
#include "braid/engine/step_records.h"
#include "braid/io/text_file.h"
#include "braid/kernels/cuda/decode_choice/decode_form.h"
#include "braid/schedule/strategies/registry.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

// --device, unless -ngl chooses the device.
std::string device_text(const ParallelOptions& o) {
  if (!o.gpu_layers || o.device != "auto") return o.device;
  require_between("--gpu-layers", *o.gpu_layers, -1, 1 << 20);
  return *o.gpu_layers == 0 ? "cpu" : "auto";
}

// The job's values for options that the user left out.
void fit(ParallelRequest& request, const job::Job& job) {
  if (request.device == "auto") request.device = "cpu";
  int ranks = request.engine.tp * request.engine.dp;
  if (auto& sequence = request.sequence; sequence && !sequence->mode.empty()) {
    if (!sequence->ranks && sequence->machines.empty()) sequence->ranks = job.processes();
    ranks = sequence->ranks.value_or(job.processes());
  }
  if (request.engine.threads > 0) return;
  // Ranks on a host share its cores, unless the launcher has bound each rank to its own cores.
  const bool bound = cpu::usable_cores() < sysconf(_SC_NPROCESSORS_ONLN);
  const auto here = std::ranges::count(job.members(), job::host_name(), &job::Member::host);
  const int processes = bound ? 1 : std::max(1, static_cast<int>(here));
  const int sharing = std::max(1, ranks / job.processes()) * processes;
  request.engine.threads = std::max(1, cpu::usable_cores() / sharing);
}

}  // namespace

void add_parallel(CLI::App& command, ParallelOptions& o) {
  command
      .add_option("--device", o.device,
                  "where to compute: auto (GPUs if there are enough, else the CPU), cpu, cuda (the "
                  "first GPUs, one for each rank), cuda:0,1, or cuda:0,0: ranks that divide a GPU")
      ->capture_default_str();
  command
      .add_option("--gpu-layers,--n-gpu-layers", o.gpu_layers,
                  "0: --device cpu; else --device auto, which puts all layers on a GPU (-ngl)")
      ->group("");
  command.add_option("-t,--threads", o.engine.threads, "threads of each rank (0: cores / ranks)")
      ->capture_default_str();
  command
      .add_option(
          "--kv-dtype", o.kv_dtype,
          "dtype of the KV cache: f16, bf16, f32, or auto: that of the model's weights (f16 "
          "where they are quantized), on a GPU bf16")
      ->capture_default_str();
  command
      .add_option("--tp,--tensor-parallel-size", o.engine.tp, "ranks of tensor parallelism (-tp)")
      ->capture_default_str()
      ->group(kRanks);
  command
      .add_option(
          "--ep", o.engine.ep,
          "sets of ranks, of --tp times --dp, that divide the experts of a mixture by number; "
          "the ranks of a set divide each expert's width")
      ->capture_default_str()
      ->group(kRanks);
  command
      .add_option("--dp,--data-parallel-size", o.engine.dp,
                  "groups of --tp ranks, each with sequences and a KV cache of its own")
      ->capture_default_str()
      ->group(kRanks);
  command
      .add_option("--expert-memory", o.expert_mib,
                  "MiB on a rank for rows that --ep sends to experts, and all that experts make of "
                  "these; more rows travel in rounds (0: no bound)")
      ->capture_default_str()
      ->group(kRanks);
  command
      .add_option("--schedule", o.engine.schedule,
                  fmt::format("when operators run: {}, auto, or a strategy's "
                              ".so file",
                              fmt::join(all_strategy_names(), ", ")))
      ->capture_default_str()
      ->group(kSchedules);
  command
      .add_option(
          "--decode", o.decode,
          "how launches of a decode step of few tokens are fused on a GPU: auto (by price), "
          "apart, relay, or fused, behind which may follow :cluster=N, split=token|head, "
          "scope=qkv|projected, exchange=chip|memory")
      ->capture_default_str()
      ->group(kSchedules);
  command.add_flag("--explain", o.explain, "say at the end what was planned, and why")
      ->group(kSchedules);
  command.add_option("--trace", o.trace, "write a timeline of the steps here (Perfetto)")
      ->group(kSchedules);
  add_job(command, o.job);
  command
      .add_option("--link-gbps", o.link_gbps,
                  "emulate links between machines (of one machine: between ranks on the CPU): "
                  "GB/s each way (0: the speed of memory)")
      ->group(kEmulation);
  command.add_option("--link-us", o.link_us, "their latency in microseconds")->group(kEmulation);
}

void add_plot(CLI::App& command, ParallelOptions& o) {
  command
      .add_option("--describe", o.describe,
                  "write here all that plans follow from (JSON), for braid plan --cluster")
      ->group(kRanks);
  command
      .add_option("--plot", o.plot,
                  "draw a timeline of the steps here (SVG): the last step of each plan")
      ->group(kSchedules);
}

void add_sequence(CLI::App& command, ParallelOptions& o) {
  o.sequence.emplace().add_to(command);
}

void require_no_options(const CLI::App& command, std::string_view subcommand) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    fail(ErrorCode::kInvalidArgument, "{} before '{}' is an option of braid {}", option->get_name(),
         subcommand, command.get_name());
  }
}

DeviceChoice usable_device(const std::string& text, int ranks) {
  return choose_device(text, ranks, text == "cpu" ? GpuState{} : gpu_state());
}

Notes terminal_notes() {
  Notes notes;
  notes.say = [](const std::string& line) { std::fprintf(stderr, "braid: %s\n", line.c_str()); };
  if (isatty(fileno(stderr)) != 0) {
    notes.progress = [](const std::string& what) {
      std::fprintf(stderr, "\r\033[K%s", what.c_str());
    };
  }
  return notes;
}

void require_apart(std::string_view option, const std::string& output, const std::string& input) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::exists(output, ignored)) return;
  const fs::path folder = fs::path(output).has_parent_path() ? fs::path(output).parent_path() : ".";
  const fs::path replaced = fs::is_directory(input, ignored) ? folder : fs::path(output);
  if (!fs::equivalent(replaced, input, ignored)) return;
  fail(ErrorCode::kInvalidArgument, "{} {} would replace what is read: {}", option, output, input);
}

ParallelRun::ParallelRun(const ParallelOptions& options, std::initializer_list<std::string> inputs,
                         job::Job* job)
    : options_(options) {
  for (const std::string& input : inputs) {
    require_apart("--trace", options.trace, input);
    require_apart("--plot", options.plot, input);
    require_apart("--describe", options.describe, input);
  }
  if (!options.plot.empty()) require_writable("--plot", options.plot);
  if (!options.describe.empty()) require_writable("--describe", options.describe);
  ParallelRequest request{.device = device_text(options),
                          .engine = options.engine,
                          .kv_dtype = options.kv_dtype,
                          .link_gbps = options.link_gbps,
                          .link_us = options.link_us};
  cuda::parse_decode(options.decode);  // refuses before anything is read
  request.engine.decode = options.decode;
  require_between("--expert-memory", options.expert_mib, 0, kMostExpertMib);
  request.engine.expert_memory = options.expert_mib << 20;
  if (options.sequence) request.sequence = options.sequence->request();
  request.engine.job = job;
  if (job) {
    fit(request, *job);
    const DeviceSpec device = parse_device(request.device);
    if (device.cuda) job->send_record(devices_record(device));
  }
  ParallelChoice choice = choose_parallel(request, terminal_notes());
  engine_ = std::move(choice.engine);
  remarks_ = std::move(choice.remarks);
  if (options.trace.empty() && options.plot.empty()) return;
  if (!options.trace.empty()) {
    trace_ = std::make_unique<StepTrace>(options.trace);
    engine_.count_experts = true;
  }
  if (!options.plot.empty()) plot_ = std::make_unique<StepPlot>();
  interrupt_.emplace();
  engine_.on_step = [this](const Runner& runner) {
    if (trace_) trace_->add(runner, engine_.tp);
    if (plot_) plot_->add(runner, engine_.tp);
    if (interrupt_->asked()) throw Interrupted();
  };
  engine_.on_loop = [this](const LoopStats& stats) {
    if (trace_) trace_->add(stats);
    if (plot_) plot_->add(stats);
  };
}

bool ParallelRun::report_cores() const {
  if (engine_.device.cuda) return false;
  const std::string complaint = cores_.complaint(threads_of(engine_) * engine_.tp);
  if (!complaint.empty()) std::fprintf(stderr, "braid: %s\n", complaint.c_str());
  return !complaint.empty();
}

void ParallelRun::announce() const {
  std::fflush(stdout);
  for (const std::string& line : remarks_) std::fprintf(stderr, "braid: %s\n", line.c_str());
}

void ParallelRun::report_approximation(const Generator& generator) {
  const std::optional<Approximation> made = generator.runner().approximation();
  if (!made || std::exchange(approximation_said_, true)) return;
  std::fprintf(stderr, "braid: approximate: %s\n", to_string(*made).c_str());
}

void ParallelRun::finish(Generator& generator) {
  report_approximation(generator);
  if (trace_) trace_->finish(generator.runner());
  if (!options_.describe.empty()) {
    write_file(options_.describe, to_json(generator.runner().cluster()));
  }
  if (plot_ && plot_->empty()) {
    std::fprintf(stderr, "braid: no step ran: --plot %s is not drawn\n", options_.plot.c_str());
  } else if (plot_) {
    write_file(options_.plot, plot_->svg());
  }
  if (!options_.explain) return;
  std::fflush(stdout);
  for (const std::string& line : generator.runner().explain()) {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

}  // namespace braid::app
