#include "braid/engine/parallel_choice.h"

#include "braid/backend/cpu/thread_pool.h"
#include "braid/engine/device_choice.h"
#include "braid/engine/limits.h"
#include "braid/engine/link_topology.h"
#include "braid/engine/profile_choice.h"
#include "braid/engine/step_planners.h"

namespace braid {
namespace {

std::optional<DType> parse_kv_dtype(const std::string& text) {
  if (text == "auto") return {};
  const std::optional<DType> dtype = parse_dtype(text);
  if (dtype && is_float(*dtype)) return dtype;
  fail(ErrorCode::kInvalidArgument, "--kv-dtype '{}': wanted auto, f16, bf16 or f32", text);
}

void set_links(const ParallelRequest& request, fabric::LinkModel& links) {
  require_link_gbps(request.link_gbps);
  if (!(request.link_us >= 0 && request.link_us <= 1e6)) {
    fail(ErrorCode::kInvalidArgument, "--link-us is {}, wanted 0 to 1e6", request.link_us);
  }
  if (request.link_us > 0 && request.link_gbps == 0) {
    fail(ErrorCode::kInvalidArgument, "--link-us needs --link-gbps");
  }
  if (request.link_gbps == 0) return;
  (links.machines > 1 ? links.cluster_link : links.machine_link) =
      Link{1e9 * request.link_gbps, 1e-6 * request.link_us};
}

std::vector<std::string> remarks_on(const EngineConfig& engine, const std::string& auto_gpu,
                                    const std::string& why_cpu) {
  std::vector<std::string> lines;
  const int threads = threads_of(engine), all = threads * engine.tp, cores = cpu::usable_cores();
  if (!auto_gpu.empty()) lines.push_back("on cuda:0, " + auto_gpu);
  if (!why_cpu.empty()) {
    lines.push_back(fmt::format("on the CPU, {} thread{}: {}", all, all == 1 ? "" : "s", why_cpu));
  }
  if (!engine.device.cuda && all > cores && engine.threads > 0) {
    const int fewer = std::max(1, cores / engine.tp);
    const std::string faster =
        fewer < threads ? fmt::format("--threads {} is", fewer) : "fewer ranks are";
    lines.push_back(fmt::format("{} threads on {} core{} take turns: {} faster", all, cores,
                                cores == 1 ? "" : "s", faster));
  }
  return lines;
}

}  // namespace

ParallelChoice choose_parallel(const ParallelRequest& request, const Notes& notes) {
  ParallelChoice choice{.engine = request.engine};
  EngineConfig& engine = choice.engine;
  engine.kv_dtype = parse_kv_dtype(request.kv_dtype);
  const GpuState gpus = request.device == "cpu" ? GpuState{} : gpu_state();
  // --sp counts its ranks by this device.
  if (request.device != "auto") engine.device = choose_device(request.device, 1, gpus).device;
  require_between("--dp", engine.dp, 1, 1024);
  if (engine.dp > 1) require_between("--tp", engine.tp, 1, 1024);
  if (engine.ep > 1 && engine.tp == 1 && engine.dp == 1) engine.tp = engine.ep;
  engine.tp *= engine.dp;
  if (engine.dp > 1 && request.sequence && !request.sequence->mode.empty()) {
    fail(ErrorCode::kUnsupported, "--dp {} does not go with --sp", engine.dp);
  }
  if (request.sequence) request.sequence->apply(engine, gpus.gpus);
  if (engine.thinning) {  // before anything is measured
    check_keep(engine.thinning, engine.sp, topology_of(engine.links, engine.tp));
  }
  const DeviceChoice device = choose_device(request.device, engine.job ? 1 : engine.tp, gpus);
  engine.device = device.device;
  if (request.sequence) request.sequence->choose_schedule(engine);
  set_links(request, engine.links);
  choose_profile(engine, notes);
  const bool auto_gpu = request.device == "auto" && engine.device.cuda;
  choice.remarks = remarks_on(engine, auto_gpu ? gpus.first : "", device.reason);
  return choice;
}

int threads_of(const EngineConfig& engine) {
  if (engine.threads > 0) return engine.threads;
  return std::max(1, cpu::usable_cores() / std::max(1, engine.tp));
}

void require_link_gbps(double gbps) {
  if (gbps == 0 || (gbps >= 1e-3 && gbps <= 1e6)) return;
  fail(ErrorCode::kInvalidArgument, "--link-gbps is {}, wanted 0.001 to 1e6, or 0: as it is", gbps);
}

}  // namespace braid
