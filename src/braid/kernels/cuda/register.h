#pragma once

#include "braid/backend/cuda/kernel_table.h"
#include "braid/kernels/cuda/comm/device/device_comm.h"
#include "braid/kernels/cuda/comm/device/one_sided.h"
#include "braid/kernels/cuda/decode_choice/decode_form.h"

namespace braid::cuda {

// A group's DeviceComm for each stream: collectives of two streams have no common order, so each
// stream needs a DeviceComm.
using StreamComms = PerStream<DeviceComm*>;

// Fills the table with the CUDA kernels for all ops that compute.
void add_cuda_kernels(KernelTable& table);

// Fills in the communication ops over a mesh axis, and ops fused with communication, after
// add_cuda_kernels; relays continue over the comms. `parts` have fewer ranks, each another number,
// for ops over as many. The comms and the table outlive bound launches.
void add_comm_kernels(KernelTable& table, const StreamComms& comms,
                      const std::vector<StreamComms>& parts = {});

// Replaces communication ops, including add_one_sided_kernels', by kernels without effect. Binding
// an op that is fused with communication then fails with kUnsupported.
void drop_communication(KernelTable& table);

// Joins layers in a one-token step (bind_relay.cc), over the ranks in `comms` if any. Both
// functions above call add_relays.
void add_relays(KernelTable& table, const StreamComms& comms);

// Sets the fusion for decode steps with few tokens (bind_attention_block.cc): called after all
// functions that add kernels or relays.
void set_decode(KernelTable& table, const DecodeForm& form);

// Joins push, sync and what reads few rows that came (bind_handover.cc): add_one_sided_kernels
// does.
void add_handovers(KernelTable& table, const OneSidedComm& comm);

// Fills in pull, push and sync (ops/one_sided.h), after add_cuda_kernels. Executors of such
// Programs need a fabric::SymmetricMemory for their arena. `comm` and the table outlive what is
// bound.
void add_one_sided_kernels(KernelTable& table, const OneSidedComm& comm);

}  // namespace braid::cuda
