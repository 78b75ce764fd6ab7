#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "braid/backend/cpu/kernel_table.h"
#include "braid/fabric/comm.h"
#include "braid/kernels/cpu/isa.h"
#include "braid/parallel/mesh.h"

namespace braid::cpu {

// Fills the table with the CPU kernels of all ops that compute, for instruction sets up to `cap`.
void add_cpu_kernels(KernelTable& table, Isa cap = detected_isa());

// A group's Comm for each stream: collectives of two streams have no common order, so each stream
// needs a Comm. Null for a stream without communication.
using StreamComms = PerStream<fabric::Comm*>;

// Fills in the communication ops over one mesh axis, and those fused with communication. The Comms
// outlive the table; lanes are at least the threads of the stream. `cap` as for add_cpu_kernels:
// the same for both, or fused and unfused ops may differ in their last bits.
void add_comm_kernels(KernelTable& table, const StreamComms& comms, Isa cap = detected_isa());
// The same over several mesh axes, by name and number of ranks; other axes are the first.
using AxisComms = std::vector<std::pair<std::string, StreamComms>>;
void add_comm_kernels(KernelTable& table, const AxisComms& axes, Isa cap = detected_isa());

// Replaces communication ops, including add_one_sided_kernels', by kernels without effect. Binding
// an op that is fused with communication then fails with kUnsupported.
void drop_communication(KernelTable& table);

// A rank's groups for sync ops: the world, and each axis of a mesh, on every stream. Made
// collectively, as Comm says.
class MeshComms {
 public:
  MeshComms(fabric::Endpoint& endpoint, std::span<const Mesh> meshes);
  // The Comm of these ranks' group.
  fabric::Comm& at(const std::string& axis, const std::vector<int>& ranks, Stream stream) const;

 private:
  struct Group {
    MeshGroup group;
    PerStream<std::unique_ptr<fabric::Comm>> comms;
  };
  std::vector<Group> groups_;
};

// Fills in dispatch and return_rows (ops/expert_exchange.h), which go with the kernels below; the
// second makes each rank its own peer.
void add_expert_exchange(KernelTable& table, fabric::Endpoint& endpoint);
void drop_expert_exchange(KernelTable& table);
// Fills in the ops of ops/expert_tiles.h likewise.
void add_expert_tiles(KernelTable& table, fabric::Endpoint& endpoint);

// Fills in pull, push and sync (ops/one_sided.h), and the exchange. Executors of such Programs need
// a fabric::SymmetricMemory for their arena. `endpoint` and `comms` outlive the table.
void add_one_sided_kernels(KernelTable& table, fabric::Endpoint& endpoint, const MeshComms& comms);

}  // namespace braid::cpu
