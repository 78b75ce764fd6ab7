#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>

#include "braid/backend/cuda/cuda_backend.h"
#include "braid/backend/cuda/growing_memory.h"
#include "braid/engine/cuda/cuda_loop.h"
#include "braid/engine/cuda/cuda_step_queue.h"
#include "braid/engine/cuda/device_weights.h"
#include "braid/engine/cuda/gpu_fabric.h"
#include "braid/engine/cuda/planned_loop.h"
#include "braid/engine/cuda/sampled_step_queue.h"
#include "braid/engine/device_choice.h"
#include "braid/engine/gpu_identity.h"
#include "braid/engine/part_group.h"
#include "braid/engine/plan_agreement.h"
#include "braid/engine/world.h"
#include "braid/fabric/peer/peer_fabric.h"
#include "braid/fabric/rank_threads.h"
#include "braid/fabric/symmetric_memory.h"
#include "braid/kernels/cuda/register.h"

namespace braid {
namespace {

// Steps of the first ranks exchange rows and logits alone.
constexpr int64_t kPartLineBytes = 64 << 10;

class CudaRank : public Rank {
 public:
  CudaRank(const WeightOrigin& origin, fabric::DeviceEndpoint& endpoint, cuda::DeviceInfo device,
           const cuda::SmPartition* part, const WorldConfig& config)
      : endpoint_(endpoint),
        ranks_(endpoint.world_size()),
        table_(std::move(device)),
        backend_(
            table_, [this] { endpoint_.check(); }, part),
        weights_(origin, endpoint.rank(), backend_, config.whole_weights) {
    const cuda::DeviceScope scope(endpoint_.device());
    cuda::add_cuda_kernels(table_);
    cuda::set_decode(table_, cuda::parse_decode(config.decode));
  }

  // Joins the other ranks: collective over the world, each rank on a thread of its own. With a
  // `sequence` mesh they divide sequences, and reach into each other's values.
  void join(const WorldConfig& world) {
    const cuda::DeviceScope scope(endpoint_.device());
    cuda::DeviceCommConfig config;
    config.max_ctas = std::min(config.max_ctas, table_.device().num_sms);
    const auto make_comms = [&](std::string_view name, const fabric::Group& group) {
      cuda::StreamComms made{};
      for (Stream stream : kStreams) {
        config.name = fmt::format("{}.{}", name, to_string(stream));
        const auto& comm =
            comms_.emplace_back(std::make_unique<cuda::DeviceComm>(endpoint_, group, config));
        made[stream] = comm.get();
      }
      return made;
    };
    const cuda::StreamComms comms = make_comms("tp", fabric::Group::world(ranks_));
    std::vector<cuda::StreamComms> parts;
    config.line_bytes = kPartLineBytes;
    for (const Mesh& mesh : world.sequence) {
      if (mesh.size("world") == 1) continue;
      // Parts share a name: a fabric has few tags.
      parts.push_back(make_comms("part", part_group(mesh, endpoint_.rank(), ranks_)));
    }
    cuda::add_comm_kernels(table_, comms, parts);
    if (!world.sequence.empty()) {
      one_sided_.emplace(endpoint_, world.sequence);
      cuda::add_one_sided_kernels(table_, *one_sided_);
    }
    if (!world.communication) cuda::drop_communication(table_);
    cuda::set_decode(table_, cuda::parse_decode(world.decode));
  }

  Backend& backend() override { return backend_; }
  cuda::CudaBackend& cuda_backend() { return backend_; }
  // The sampler for steps with `logits` rows; made for the first loop with this shape.
  cuda::DeviceSampler& sampler(const Shape& logits) {
    auto& sampler = samplers_[logits[0]];
    if (!sampler) {
      const cuda::DeviceScope scope(table_.device().id);
      sampler = std::make_unique<cuda::DeviceSampler>(backend_, logits[1], logits[0]);
    }
    return *sampler;
  }
  std::unique_ptr<cuda::SlotSampler> slot_sampler(const StepQueueOptions& options) {
    const cuda::DeviceScope scope(table_.device().id);
    return std::make_unique<cuda::SlotSampler>(backend_, options.vocabulary, options.sequences,
                                               options.rows, options.context);
  }

 protected:
  TensorView weight(const Value& value, const Placement& placement) override {
    const cuda::DeviceScope scope(table_.device().id);
    return weights_.get(value, placement);
  }
  std::unique_ptr<DeviceMemory> allocate_state(int64_t bytes) override {
    return std::make_unique<cuda::GrowingMemory>(table_.device().id, bytes);
  }
  int64_t back_state(DeviceMemory& state, int64_t bytes) override {
    auto& memory = static_cast<cuda::GrowingMemory&>(state);
    memory.back(bytes);
    return std::min(memory.backed(), memory.bytes());
  }
  // Peers reach into the arena: equal offsets on all ranks, which bind in the same order.
  std::shared_ptr<DeviceMemory> allocate_arena(int64_t bytes) override {
    if (ranks_ == 1) return backend_.allocate(bytes);
    return std::make_shared<fabric::SymmetricMemory>(endpoint_, bytes, "arena");
  }

 private:
  fabric::DeviceEndpoint& endpoint_;
  const int ranks_;
  cuda::KernelTable table_;
  std::vector<std::unique_ptr<cuda::DeviceComm>> comms_;
  std::optional<cuda::OneSidedComm> one_sided_;
  cuda::CudaBackend backend_;
  cuda::DeviceWeights weights_;
  std::map<int64_t, std::unique_ptr<cuda::DeviceSampler>> samplers_;  // by rows
};

class CudaWorld : public World {
 public:
  CudaWorld(const WeightOrigin& origin, const WorldConfig& config, const std::vector<int>& devices)
      : job_(config.job),
        fabric_(make_fabric(config, devices)),
        parts_(cuda::divide_gpus(devices)),
        waits_(config.ranks > 1) {
    std::vector<cuda::DeviceInfo> infos;
    for (size_t r = 0; r < devices.size(); ++r) {
      infos.push_back(cuda::device_info(devices[r], parts_[r].get()));
    }
    // All ranks decide alike which launches wait for other CTAs, by the fewest SMs of any rank. A
    // job's GPUs have equally many.
    const int sms = std::ranges::min(infos, {}, &cuda::DeviceInfo::num_sms).num_sms;
    for (size_t r = 0; r < devices.size(); ++r) {
      infos[r].num_sms = sms;
      fabric::DeviceEndpoint& endpoint =
          device_endpoint(*fabric_, fabric_->first_rank() + static_cast<int>(r));
      ranks_.push_back(
          std::make_unique<CudaRank>(origin, endpoint, infos[r], parts_[r].get(), config));
    }
    if (config.ranks == 1) return;
    fabric::run_rank_threads(*fabric_, [&](int rank) { cuda_rank(rank).join(config); });
  }

  fabric::Fabric& fabric() override { return *fabric_; }
  Rank& rank(int rank) override { return cuda_rank(rank); }
  bool waits_on_device() const override { return waits_; }

  bool samples_on_device() const override { return true; }
  std::vector<std::string> explain() const override { return plans_; }

  std::unique_ptr<TokenLoop> loop(LoopRequest request, const BoundForward& prompt,
                                  const BoundForward& step, StepPlanner& planner) override {
    if (!planner.loops_on_device()) return planned_loop(std::move(request), prompt, planner);
    std::vector<cuda::LoopRank> ranks;
    for (size_t r = 0; r < step.executors.size(); ++r) {  // ranks that divide tokens: rank 0 alone
      Executor* const executor = step.executors[r].get();
      if (executor == nullptr) continue;  // of another process
      CudaRank& rank = cuda_rank(static_cast<int>(r));
      ranks.push_back({.rank = &rank,
                       .backend = &rank.cuda_backend(),
                       .sampler = &rank.sampler(executor->output(0).shape),
                       .prompt = prompt.executors[r].get(),
                       .step = executor});
    }
    if (ranks.empty()) return nullptr;
    return std::make_unique<cuda::CudaLoop>(std::move(ranks), *fabric_, step.ranks() > 1,
                                            std::move(request), next_step_, planner);
  }

  std::unique_ptr<StepQueue> step_queue(const StepQueueOptions& options,
                                        StepPlanner& planner) override {
    std::vector<cuda::QueueRank> ranks;
    for (const auto& rank : ranks_) {
      ranks.push_back({&rank->cuda_backend(), rank->slot_sampler(options)});
    }
    return std::make_unique<cuda::CudaStepQueue>(std::move(ranks), options, planner);
  }

  std::unique_ptr<StepQueue> step_queue(const StepQueueOptions& options, Runner& runner) override {
    CudaRank& first = cuda_rank(0);
    return std::make_unique<cuda::SampledStepQueue>(runner, first.cuda_backend(),
                                                    first.slot_sampler(options), options.sequences);
  }

 private:
  static std::unique_ptr<fabric::Fabric> make_fabric(const WorldConfig& config,
                                                     const std::vector<int>& devices) {
    const auto deadline = std::chrono::milliseconds(config.deadline_ms);
    const auto device_deadline = std::min<fabric::Duration>(std::chrono::seconds(10), deadline);
    if (config.job) return make_gpu_fabric(*config.job, config.ranks, devices.front(), deadline);
    return std::make_unique<fabric::PeerFabric>(
        fabric::PeerFabricConfig{.ranks = config.ranks,
                                 .devices = devices,
                                 .deadline = deadline,
                                 .device_deadline = device_deadline,
                                 .links = config.links,
                                 .share_devices = true});
  }

  std::unique_ptr<TokenLoop> planned_loop(LoopRequest request, const BoundForward& prompt,
                                          StepPlanner& planner) {
    const int64_t rows = row_capacity(std::ssize(request.sequences));
    const Shape logits{rows, prompt.executors[0]->output(0).cols()};
    std::vector<cuda::LoopRank> ranks;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      CudaRank& rank = *ranks_[r];
      ranks.push_back(
          {.rank = &rank,
           .backend = &rank.cuda_backend(),
           .sampler = &rank.sampler(logits),
           .prompt = r < prompt.executors.size() ? prompt.executors[r].get() : nullptr});
    }
    return std::make_unique<cuda::PlannedLoop>(std::move(ranks), *fabric_, std::move(request),
                                               next_step_, planner);
  }

  void compare(const PlannedForward& planned) override {
    if (job_) plans_.push_back(agree_on_plan(*job_, planned));
  }

  CudaRank& cuda_rank(int rank) { return *ranks_.at(rank - fabric_->first_rank()); }

  job::Job* const job_;
  std::vector<std::string> plans_;  // that all processes have agreed on
  const std::unique_ptr<fabric::Fabric> fabric_;
  const std::vector<cuda::OwnedPartition> parts_;  // [ranks of this process]
  const bool waits_;
  std::vector<std::unique_ptr<CudaRank>> ranks_;  // of this process
  uint64_t next_step_ = 0;                        // of the samplers
};

}  // namespace

std::unique_ptr<World> make_cuda_world(const Model& model, const WorldConfig& config,
                                       const DeviceSpec& device) {
  return make_cuda_world({.weight = [&model](std::string_view name) { return model.weight(name); },
                          .random = model.random()},
                         config, device);
}

std::unique_ptr<World> make_cuda_world(const WeightOrigin& origin, const WorldConfig& config,
                                       const DeviceSpec& device) {
  std::vector<int> ids = device.ids;
  if (ids.empty()) {
    for (int id = 0; id < config.ranks; ++id) ids.push_back(id);
  }
  const int here = config.job ? 1 : config.ranks;
  if (std::ssize(ids) != here) {
    fail(ErrorCode::kInvalidArgument, "{} rank{}, and the device has places for {}", here,
         here == 1 ? "" : "s", ids.size());
  }
  return std::make_unique<CudaWorld>(origin, config, ids);
}

int usable_gpus() {
  return cuda::device_count();
}

std::string gpu_name(int id) {
  return cuda::device_info(id).name;
}

void use_gpu(int id) {
  cuda::check_cuda(cudaSetDevice(id), "choice of a GPU");
  cuda::check_cuda(cudaFree(nullptr), "a GPU's context");
}

GpuIdentity gpu_identity(int id) {
  const cuda::DeviceInfo info = cuda::device_info(id);
  cudaDeviceProp properties{};
  cuda::check_cuda(cudaGetDeviceProperties(&properties, id), "a GPU's identity");
  int driver = 0;
  cuda::check_cuda(cudaDriverGetVersion(&driver), "the driver's version");
  std::string uuid;
  for (const char byte : properties.uuid.bytes) {
    uuid += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  }
  std::string pci(32, '\0');
  cuda::check_cuda(cudaDeviceGetPCIBusId(pci.data(), static_cast<int>(pci.size()), id),
                   "a GPU's place");
  pci.resize(pci.find('\0'));
  std::ranges::transform(pci, pci.begin(), [](unsigned char c) { return std::tolower(c); });
  return {info.name,
          fmt::format("sm_{}, driver {}", info.compute_capability, cuda_version(driver)),
          uuid,
          info.num_sms,
          info.memory_bytes,
          pci};
}

GpuMemory gpu_memory(int id) {
  const cuda::DeviceScope scope(cuda::device_info(id).id);
  size_t free = 0, total = 0;
  cuda::check_cuda(cudaMemGetInfo(&free, &total), "free memory");
  return {static_cast<int64_t>(free), static_cast<int64_t>(total)};
}

GpuState gpu_state() {
  GpuState state{.built = true};
  if (cudaRuntimeGetVersion(&state.runtime_version) != cudaSuccess) state.runtime_version = 0;
  if (cudaDriverGetVersion(&state.driver_version) != cudaSuccess) state.driver_version = 0;
  const cudaError_t error = cudaGetDeviceCount(&state.gpus);
  if (error != cudaSuccess) {
    state.gpus = 0;
    if (error != cudaErrorNoDevice) state.error = cudaGetErrorString(error);
    cudaGetLastError();
  }
  state.hidden = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
  if (state.gpus == 0) return state;
  try {
    state.first = cuda::device_info(0).name;
  } catch (const Error& unusable) {  // too old for the kernels of this build
    state.gpus = 0;
    state.error = unusable.what();
  }
  return state;
}

std::string describe_gpu(int id) {
  try {
    const cuda::DeviceInfo info = cuda::device_info(id);
    return fmt::format("cuda:{}  {}, {:.1f} GiB, {} SMs", id, info.name,
                       static_cast<double>(info.memory_bytes) / (1 << 30), info.num_sms);
  } catch (const Error& unusable) {
    return unusable.what();
  }
}

std::unique_ptr<KernelCatalog> kernels_of_gpu(int id) {
  auto table = std::make_unique<cuda::KernelTable>(cuda::device_info(id));
  cuda::add_cuda_kernels(*table);
  return table;
}

}  // namespace braid
