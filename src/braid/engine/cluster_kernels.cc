#include "braid/engine/cluster_kernels.h"

#include "braid/backend/cpu/kernel_table.h"
#include "braid/backend/null/null_backend.h"
#include "braid/kernels/cpu/rank_kernels.h"
#include "braid/kernels/cpu/register.h"

namespace braid {
namespace {

// Names alone.
class NamedKernels : public KernelCatalog {
 public:
  KernelInfo find(const Program& program, const Op& op, Stream stream,
                  const Extents& capacity) const override {
    return backend_.catalog().find(program, op, stream, capacity);
  }

 private:
  const NullBackend backend_;
};

}  // namespace

std::unique_ptr<KernelCatalog> cluster_kernels(const ClusterDescription& cluster, bool one_sided) {
  const RankDescription& rank = cluster.ranks.front();
  if (rank.device != "cpu") return std::make_unique<NamedKernels>();
  if (rank.kernels != cpu::instruction_sets()) {
    fail(
        ErrorCode::kUnsupported,
        "the CPUs of the description have '{}', this machine has '{}': plan on a machine like them",
        rank.kernels, cpu::instruction_sets());
  }
  auto table = std::make_unique<cpu::KernelTable>(static_cast<int>(rank.units));
  cpu::add_rank_kernels(*table, one_sided);
  if (!cluster.communication) cpu::drop_communication(*table);
  return table;
}

}  // namespace braid
