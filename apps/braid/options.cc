#include "braid/options.h"

#include <unistd.h>

#include <cctype>
#include <filesystem>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/calibration.h"
#include "braid/engine/world.h"
#include "braid/schedule/strategies/registry.h"

namespace braid::app {
namespace {

// Of a rank. What --tp says is checked later.
int threads_of(const EngineConfig& engine) {
  if (engine.threads > 0) return engine.threads;
  return std::max(1, cpu::usable_cores() / std::max(1, engine.tp));
}

Profile machine_profile(const EngineConfig& engine) {
  const int threads = threads_of(engine);
  if (auto profile = find_profile(cpu_profile_name(threads))) return *std::move(profile);
  return calibrate_for_later(threads);
}

// The profile that comes with Braid for a GPU, if there is one: `braid calibrate` measures the CPU.
std::optional<Profile> gpu_profile(const std::string& gpu) {
  std::string words = " ";  // an A1000 is no A100
  for (unsigned char c : gpu) words += std::isalnum(c) ? static_cast<char>(std::tolower(c)) : ' ';
  words += ' ';
  for (std::string_view name : builtin_profile_names()) {
    if (words.find(fmt::format(" {} ", name)) != std::string::npos) {
      return load_profile(std::string(name));
    }
  }
  return {};
}

std::string gpu_of(const EngineConfig& engine) {
  return gpu_name(engine.device.first_gpu());
}

// What a strategy of the user's own may ask for (ScheduleContext::estimate), if it is there:
// nothing is measured for it.
void offer_profile(EngineConfig& engine) {
  engine.profile = engine.device.cuda ? gpu_profile(gpu_of(engine))
                                      : find_profile(cpu_profile_name(threads_of(engine)));
}

// What `auto` prices with. Without a profile strategies stay as they are written; modes of --sp
// must be named.
void add_profile(EngineConfig& engine) {
  if (!engine.device.cuda) {
    engine.profile = machine_profile(engine);
    return;
  }
  const std::string gpu = gpu_of(engine);
  engine.profile = gpu_profile(gpu);
  if (engine.profile) return;
  const std::string why = fmt::format("no profile of '{}' to price with; there are {}", gpu,
                                      fmt::join(builtin_profile_names(), ", "));
  if (engine.sp && !engine.sp->mode) fail(ErrorCode::kUnsupported, "--sp auto: {}", why);
  engine.schedule = engine.sp ? "sequence_parallel" : "sequential";
  std::fprintf(stderr, "braid: --schedule auto is %s: %s\n", engine.schedule.c_str(), why.c_str());
}

std::optional<DType> parse_kv_dtype(const std::string& text) {
  if (text == "auto") return {};
  const std::optional<DType> dtype = parse_dtype(text);
  if (dtype && is_float(*dtype)) return dtype;
  fail(ErrorCode::kInvalidArgument, "--kv-dtype '{}': wanted auto, f16, bf16 or f32", text);
}

// --device, where -ngl does not speak for it.
std::string device_text(const ParallelOptions& o) {
  if (!o.gpu_layers || o.device != "auto") return o.device;
  require_between("--gpu-layers", *o.gpu_layers, -1, 1 << 20);
  return *o.gpu_layers == 0 ? "cpu" : "auto";
}

// Steps as a trace shows them.
Timeline timeline_of(const Runner& runner, int ranks) {
  Timeline timeline{.title = "measured",
                    .ranks = {},
                    .works = {runner.last_works().begin(), runner.last_works().end()}};
  for (int r = 0; r < ranks; ++r) {
    const Runner::Step step = runner.last_step(r);
    if (step.executor == nullptr) continue;  // it had no part in it
    timeline.ranks.push_back({&step.executor->program(), &step.executor->schedule(), step.times});
  }
  return timeline;
}

// Steps that a device ran by itself, and the host beside them: the first rank's.
void add_loop(const LoopStats& stats, TraceWriter& trace) {
  std::vector<TraceSpan> host, device;
  for (size_t i = 0; i < stats.trace.size(); ++i) {
    const LoopStep& step = stats.trace[i];
    host.push_back({fmt::format("enqueue {}", i + 1), step.enqueue_begin, step.enqueue_end});
    if (step.wait_end > 0) {
      host.push_back({fmt::format("read {}", i + 1), step.wait_begin, step.wait_end});
    }
    device.push_back({fmt::format("step {}", i + 1), step.device_begin, step.device_end});
  }
  trace.add(0, "host", host);
  trace.add(0, "decode steps", device);
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
      .add_option("--schedule", o.engine.schedule,
                  fmt::format("when operators run: {}, sequence_parallel, auto, or a strategy's "
                              ".so file",
                              fmt::join(strategy_names(), ", ")))
      ->capture_default_str()
      ->group(kSchedules);
  command.add_flag("--explain", o.explain, "say at the end what was planned, and why")
      ->group(kSchedules);
  command.add_option("--trace", o.trace, "write a timeline of the steps here (Perfetto)")
      ->group(kSchedules);
  command
      .add_option("--link-gbps", o.link_gbps,
                  "emulate links between machines (of one machine: between ranks on the CPU): "
                  "GB/s each way (0: the speed of memory)")
      ->group(kEmulation);
  command.add_option("--link-us", o.link_us, "their latency in microseconds")->group(kEmulation);
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

void require_link_gbps(double gbps) {
  if (gbps == 0 || (gbps >= 1e-3 && gbps <= 1e6)) return;
  fail(ErrorCode::kInvalidArgument, "--link-gbps is {}, wanted 0.001 to 1e6, or 0: as it is", gbps);
}

DeviceChoice usable_device(const std::string& text, int ranks) {
  return choose_device(text, ranks, text == "cpu" ? GpuState{} : gpu_state());
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

ParallelRun::ParallelRun(const ParallelOptions& options, std::initializer_list<std::string> inputs)
    : options_(options), engine_(options.engine) {
  for (const std::string& input : inputs) require_apart("--trace", options.trace, input);
  engine_.kv_dtype = parse_kv_dtype(options.kv_dtype);
  const std::string device = device_text(options);
  const GpuState gpus = device == "cpu" ? GpuState{} : gpu_state();
  // What --sp counts its ranks by.
  if (device != "auto") engine_.device = choose_device(device, 1, gpus).device;
  if (options.sequence) options.sequence->apply(engine_, gpus.gpus);
  DeviceChoice choice = choose_device(device, engine_.tp, gpus);
  engine_.device = choice.device;
  why_cpu_ = std::move(choice.reason);
  if (device == "auto" && engine_.device.cuda) auto_gpu_ = gpus.first;
  if (options.sequence) options.sequence->choose_schedule(engine_);
  require_link_gbps(options.link_gbps);
  if (!(options.link_us >= 0 && options.link_us <= 1e6)) {
    fail(ErrorCode::kInvalidArgument, "--link-us is {}, wanted 0 to 1e6", options.link_us);
  }
  if (options.link_us > 0 && options.link_gbps == 0) {
    fail(ErrorCode::kInvalidArgument, "--link-us needs --link-gbps");
  }
  if (options.link_gbps > 0) {
    auto& links = engine_.links;
    (links.machines > 1 ? links.cluster_link : links.machine_link) =
        Link{1e9 * options.link_gbps, 1e-6 * options.link_us};
  }
  if (needs_profile({.device = engine_.device,
                     .tp = engine_.tp,
                     .sp = engine_.sp,
                     .schedule = engine_.schedule})) {
    add_profile(engine_);
  } else if (is_strategy_file(engine_.schedule)) {
    offer_profile(engine_);
  }
  if (options.trace.empty()) return;
  trace_ = std::make_unique<TraceWriter>(options.trace);
  interrupt_.emplace();
  engine_.on_step = [this](const Runner& runner) {
    trace_->add(timeline_of(runner, engine_.tp));
    if (interrupt_->asked()) throw Interrupted();
  };
  engine_.on_loop = [this](const LoopStats& stats) { add_loop(stats, *trace_); };
}

bool ParallelRun::report_cores() const {
  if (engine_.device.cuda) return false;
  const std::string complaint = cores_.complaint(threads_of(engine_) * engine_.tp);
  if (!complaint.empty()) std::fprintf(stderr, "braid: %s\n", complaint.c_str());
  return !complaint.empty();
}

void ParallelRun::announce() const {
  const int threads = threads_of(engine_), all = threads * engine_.tp, cores = cpu::usable_cores();
  std::fflush(stdout);
  if (!auto_gpu_.empty()) std::fprintf(stderr, "braid: on cuda:0, %s\n", auto_gpu_.c_str());
  if (!why_cpu_.empty()) {
    std::fprintf(stderr, "braid: on the CPU, %d thread%s: %s\n", all, all == 1 ? "" : "s",
                 why_cpu_.c_str());
  }
  if (!engine_.device.cuda && all > cores && engine_.threads > 0) {
    std::fprintf(stderr, "braid: %d threads on %d core%s take turns: --threads %d is faster\n", all,
                 cores, cores == 1 ? "" : "s", std::max(1, cores / engine_.tp));
  }
}

void ParallelRun::finish(Engine& engine) {
  if (trace_) trace_->finish();
  if (!options_.explain) return;
  std::fflush(stdout);
  for (const std::string& line : engine.runner().explain()) {
    std::fprintf(stderr, "%s\n", line.c_str());
  }
}

}  // namespace braid::app
