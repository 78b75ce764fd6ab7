#include "braid/version.h"

#include <fmt/format.h>

#include <fstream>

#include "braid/backend/cpu/thread_pool.h"
#include "braid/commit.h"
#include "braid/engine/device_choice.h"
#include "braid/grammar/compiled_grammar.h"
#include "braid/job/job.h"
#include "braid/kernels/cpu/rank_kernels.h"

namespace braid::app {
namespace {

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t at = line.find(':');
    if (at != std::string::npos && at + 2 < line.size()) return line.substr(at + 2);
  }
  return "CPU";
}

}  // namespace

std::string version_line() {
  const std::string commit = BRAID_COMMIT;
  return "braid " BRAID_VERSION + (commit.empty() ? "" : " (" + commit + ")");
}

std::string version_text() {
  const GpuState gpus = gpu_state();
  std::string cuda = "none in this build";
  if (gpus.built) {
    cuda = cuda_version(gpus.runtime_version);
    if (gpus.driver_version > 0) cuda += ", driver serves " + cuda_version(gpus.driver_version);
  }
  const std::string_view grammars = GrammarLibrary::version();
  return fmt::format(
      "{}\nCUDA: {}\njobs of several processes: {}{}\nstructured output: {}\ninstruction sets: "
      "{}\n{}",
      version_line(), cuda, job::job_libraries(),
      gpus.built ? ", on GPUs NVSHMEM 3 (loaded by the job)" : "",
      grammars.empty() ? "none in this build" : grammars, cpu::instruction_sets(), device_list());
}

std::string cpu_line() {
  const int cores = cpu::usable_cores();
  return fmt::format("{}, {} core{}", cpu_model(), cores, cores == 1 ? "" : "s");
}

std::string device_list() {
  std::string out = fmt::format("cpu     {}\n", cpu_line());
  const GpuState gpus = gpu_state();
  for (int id = 0; id < gpus.gpus; ++id) out += describe_gpu(id) + "\n";
  if (gpus.gpus == 0) out += fmt::format("no GPU: {}\n", why_no_gpu(gpus));
  return out;
}

}  // namespace braid::app
