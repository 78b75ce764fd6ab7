#include "braid/options.h"

#include <unistd.h>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/calibration.h"
#include "braid/engine/world.h"

namespace braid::app {
namespace {

// Of the threads that a rank will have.
Profile machine_profile(const EngineConfig& engine) {
  const int cores = cpu::usable_cores();
  const int threads = engine.threads > 0 ? engine.threads : std::max(1, cores / engine.tp);
  if (auto profile = find_profile(cpu_profile_name(threads))) return *std::move(profile);
  return calibrate_and_save(threads, "");
}

// Steps as a trace shows them.
Timeline timeline_of(const Runner& runner, int ranks) {
  Timeline timeline{.title = "measured",
                    .ranks = {},
                    .works = {runner.last_works().begin(), runner.last_works().end()},
                    .model = runner.cost_model()};
  for (int r = 0; r < ranks; ++r) {
    const Runner::Step step = runner.last_step(r);
    timeline.ranks.push_back({&step.executor->program(), &step.executor->schedule(), step.times});
  }
  return timeline;
}

}  // namespace

void add_parallel(CLI::App& command, ParallelOptions& o) {
  command
      .add_option("--device", o.device,
                  "where to compute: cpu, cuda (the first GPUs, one for each rank), cuda:0,1")
      ->capture_default_str();
  command.add_option("--tp", o.engine.tp, "ranks of tensor parallelism")->capture_default_str();
  command.add_option("--threads", o.engine.threads, "threads of each rank (0: cores / tp)")
      ->capture_default_str();
  command
      .add_option("--schedule", o.engine.schedule,
                  "when operators run: sequential, overlap, nanoflow, gemm_collective, tokenweave, "
                  "auto, or a strategy's .so file")
      ->capture_default_str();
  command.add_flag("--explain", o.explain, "say at the end what was planned, and why");
  command.add_option("--trace", o.trace, "write a timeline of the steps here (Perfetto)");
  command.add_option("--link-gbps", o.link_gbps,
                     "emulate links between ranks: GB/s each way (0: the speed of memory)");
  command.add_option("--link-us", o.link_us, "their latency in microseconds");
}

ParallelRun::ParallelRun(const ParallelOptions& options)
    : options_(options), engine_(options.engine) {
  engine_.device = parse_device(options.device);
  if (engine_.device.cuda && engine_.device.ids.empty() && usable_gpus() == 0) {
    std::fprintf(stderr, "braid: no GPU that this build can use: running on the CPU\n");
    engine_.device = {};
  }
  if (!(options.link_gbps >= 0) || !(options.link_us >= 0)) {
    fail(ErrorCode::kInvalidArgument, "--link-gbps {} and --link-us {}: wanted at least 0",
         options.link_gbps, options.link_us);
  }
  if (options.link_us > 0 && options.link_gbps == 0) {
    fail(ErrorCode::kInvalidArgument, "--link-us needs --link-gbps");
  }
  if (options.link_gbps > 0) {
    engine_.links.machine_link = Link{1e9 * options.link_gbps, 1e-6 * options.link_us};
  }
  if (engine_.schedule == "auto" && engine_.tp > 1) engine_.profile = machine_profile(engine_);
  if (options.trace.empty()) return;
  trace_ = std::make_unique<TraceWriter>(options.trace);
  engine_.on_step = [this](const Runner& runner) { trace_->add(timeline_of(runner, engine_.tp)); };
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
