#pragma once

#include "braid/backend/cpu/kernel_table.h"
#include "braid/fabric/comm.h"
#include "braid/kernels/cpu/isa.h"

namespace braid::cpu {

// Fills the table with the CPU kernels of all ops that compute, for instruction sets up to `cap`.
void add_cpu_kernels(KernelTable& table, Isa cap = detected_isa());

// Fills in the communication ops over one mesh axis. `comm` outlives the table; its lanes are at
// least the table's threads.
void add_comm_kernels(KernelTable& table, fabric::Comm& comm);

}  // namespace braid::cpu
