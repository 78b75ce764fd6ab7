#include "braid/backend/cpu/cpu_backend.h"
#include "braid/engine/part_group.h"
#include "braid/engine/plan_agreement.h"
#include "braid/engine/world.h"
#include "braid/fabric/comm.h"
#include "braid/fabric/local/local_fabric.h"
#include "braid/fabric/symmetric_memory.h"
#include "braid/kernels/cpu/register.h"

namespace braid {
namespace {

class CpuRank : public Rank {
 public:
  // An error of this rank ends the job at once.
  CpuRank(const WeightOf& weight, fabric::Fabric& fabric, int rank, const WorldConfig& config)
      : weight_(weight),
        rank_(rank),
        endpoint_(fabric.endpoint(rank)),
        pool_(config.threads, config.ranks * config.threads),
        table_(config.threads),
        backend_(table_, pool_,
                 [&fabric, rank](std::exception_ptr error) { fabric.abort(rank, error); }) {
    cpu::add_cpu_kernels(table_);
    if (config.ranks == 1) return;
    const int tp = config.ranks / config.groups;
    cpu::AxisComms axes;
    const auto add_axis = [&](const char* axis, const fabric::Group& group) {
      if (group.size() > 1) axes.emplace_back(axis, make_comms(axis, group));
    };
    if (config.groups > 1) {
      add_axis("world", fabric::Group::world(config.ranks));
      add_axis("dp", fabric::Group::strided(rank % tp, config.groups, tp));
    }
    add_axis("tp", fabric::Group::strided(rank / tp * tp, tp, 1));
    for (const Mesh& mesh : config.sequence) {
      if (mesh.size("world") == 1) continue;
      // Parts share a name: a fabric has few tags.
      axes.emplace_back("world", make_comms("part", part_group(mesh, rank, config.ranks)));
    }
    cpu::add_comm_kernels(table_, axes);
    if (!config.sequence.empty()) {
      groups_.emplace(endpoint_, config.sequence);
      cpu::add_one_sided_kernels(table_, endpoint_, *groups_);
    }
    if (!config.communication) cpu::drop_communication(table_);
  }

  Backend& backend() override { return backend_; }

 protected:
  TensorView weight(const Value& value, const Placement& placement) override {
    return cut(weight_(value.name), placement, rank_);
  }
  // Sequence-parallel attention reaches into other ranks' values.
  std::shared_ptr<DeviceMemory> allocate_arena(int64_t bytes) override {
    if (!groups_) return backend_.allocate(bytes);
    return std::make_shared<fabric::SymmetricMemory>(endpoint_, bytes, "arena");
  }

 private:
  // Of each stream.
  cpu::StreamComms make_comms(std::string_view axis, const fabric::Group& group) {
    cpu::StreamComms comms{};
    for (Stream stream : kStreams) {
      const auto& made = comms_.emplace_back(std::make_unique<fabric::Comm>(
          endpoint_, group,
          fabric::CommConfig{.name = fmt::format("{}.{}", axis, to_string(stream)),
                             .lanes = table_.threads(stream)}));
      comms[stream] = made.get();
    }
    return comms;
  }

  const WeightOf& weight_;
  const int rank_;
  fabric::Endpoint& endpoint_;
  cpu::ThreadPool pool_;
  cpu::KernelTable table_;
  std::vector<std::unique_ptr<fabric::Comm>> comms_;
  std::optional<cpu::MeshComms> groups_;
  cpu::CpuBackend backend_;
};

class CpuWorld : public World {
 public:
  CpuWorld(WeightOf weight, const WorldConfig& config)
      : weight_(std::move(weight)),
        job_(config.job),
        catalog_(config.catalog),
        fabric_(make_fabric(config)) {
    const int first = fabric_->first_rank();
    for (int r = first; r < first + fabric_->ranks_here(); ++r) {
      ranks_.push_back(std::make_unique<CpuRank>(weight_, *fabric_, r, config));
    }
  }

  fabric::Fabric& fabric() override { return *fabric_; }
  Rank& rank(int rank) override { return *ranks_.at(rank - fabric_->first_rank()); }
  std::vector<const KernelCatalog*> catalogs(int ranks) override {
    if (catalog_ == nullptr) return World::catalogs(ranks);
    return std::vector<const KernelCatalog*>(ranks, catalog_);
  }
  std::vector<std::string> explain() const override { return plans_; }

 private:
  static std::unique_ptr<fabric::Fabric> make_fabric(const WorldConfig& config) {
    const int threads = config.threads + (config.sequence.empty() ? 0 : kNumStreams - 1);
    const auto deadline = std::chrono::milliseconds(config.deadline_ms);
    if (config.job) {
      return config.job->make_fabric({.ranks = config.ranks,
                                      .threads_per_rank = threads,
                                      .deadline = deadline,
                                      .machines = config.links.machines});
    }
    return std::make_unique<fabric::LocalFabric>(
        fabric::LocalFabricConfig{.ranks = config.ranks,
                                  .threads_per_rank = threads,
                                  .deadline = deadline,
                                  .links = config.links});
  }
  void compare(const PlannedForward& planned) override {
    if (job_) plans_.push_back(agree_on_plan(*job_, planned));
  }

  const WeightOf weight_;
  job::Job* const job_;
  const KernelCatalog* const catalog_;
  std::vector<std::string> plans_;  // that all processes have agreed on
  const std::unique_ptr<fabric::Fabric> fabric_;
  std::vector<std::unique_ptr<CpuRank>> ranks_;  // of this process
};

}  // namespace

std::unique_ptr<World> make_cpu_world(const Model& model, const WorldConfig& config) {
  return make_cpu_world([&model](std::string_view name) { return model.weight(name); }, config);
}

std::unique_ptr<World> make_cpu_world(WeightOf weight, const WorldConfig& config) {
  return std::make_unique<CpuWorld>(std::move(weight), config);
}

}  // namespace braid
