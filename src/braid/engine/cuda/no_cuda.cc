#include "braid/engine/absent_gpu.h"
#include "braid/engine/bandwidth.h"
#include "braid/engine/device_choice.h"
#include "braid/engine/gpu_identity.h"
#include "braid/engine/world.h"

namespace braid {

std::unique_ptr<World> make_cuda_world(const Model&, const WorldConfig&, const DeviceSpec&) {
  fail(ErrorCode::kUnsupported, "this build of Braid has no CUDA: only --device cpu");
}

std::unique_ptr<World> make_cuda_world(const WeightOrigin&, const WorldConfig&, const DeviceSpec&) {
  fail(ErrorCode::kUnsupported, "this build of Braid has no CUDA: only --device cpu");
}

int usable_gpus() {
  return 0;
}

std::string gpu_name(int) {
  fail(ErrorCode::kUnsupported, "this build of Braid has no CUDA");
}

GpuIdentity gpu_identity(int) {
  fail(ErrorCode::kUnsupported, "this build of Braid has no CUDA");
}

void use_gpu(int) {
  fail(ErrorCode::kUnsupported, "this build of Braid has no CUDA");
}

GpuMemory gpu_memory(int) {
  fail(ErrorCode::kUnsupported, "this build of Braid has no CUDA");
}

GpuState gpu_state() {
  return {};
}

std::string describe_gpu(int) {
  fail(ErrorCode::kUnsupported, "this build of Braid has no CUDA");
}

std::unique_ptr<KernelCatalog> kernels_of_gpu(int) {
  fail(ErrorCode::kUnsupported, "this build of Braid has no CUDA");
}

std::unique_ptr<KernelCatalog> kernels_of_absent_gpu(const Profile&) {
  return nullptr;
}

DeviceRates measure_device_rates(int) {
  return {};
}

}  // namespace braid
