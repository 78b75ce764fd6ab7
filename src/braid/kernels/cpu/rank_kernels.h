#pragma once

#include <string>

#include "braid/backend/cpu/kernel_table.h"

namespace braid::cpu {

// This machine's instruction sets: "avx512, avx512-vnni". Ranks with equal text have equal kernels.
std::string instruction_sets();

// Fills the table with the kernels of a rank among several, for plans alone: communication cannot
// be bound. `one_sided`: with pull, push and sync, too. Names and sizes equal those in
// add_cpu_kernels, add_comm_kernels and add_one_sided_kernels.
void add_rank_kernels(KernelTable& table, bool one_sided);

// Parts of the same: pull, push and sync with the exchange of expert rows, and this exchange.
void add_unbound_one_sided_kernels(KernelTable& table);
void add_unbound_expert_exchange(KernelTable& table);
void add_unbound_expert_tiles(KernelTable& table);

}  // namespace braid::cpu
