#include "braid/backend/cpu/cpu_backend.h"

#include "braid/backend/cpu/cpu_replay.h"
#include "braid/backend/host_memory.h"

namespace braid::cpu {

std::unique_ptr<DeviceMemory> CpuBackend::allocate(int64_t bytes) {
  return std::make_unique<HostMemory>(bytes);
}

std::unique_ptr<Replay> CpuBackend::bind(BoundStep step) {
  // Between steps a stream's thread sleeps.
  constexpr WaitPolicy kIdle{std::chrono::microseconds(1), 50};
  CpuReplay::Threads threads{};
  for (const BoundOp& launch : step.launches) {
    if (launch.stream == Stream::compute) continue;
    auto& thread = threads_[launch.stream];
    if (!thread) thread = std::make_unique<StreamThread>(kIdle);
    threads[launch.stream] = thread.get();
  }
  return std::make_unique<CpuReplay>(std::move(step.launches), table_, pool_, threads, on_error_);
}

}  // namespace braid::cpu
