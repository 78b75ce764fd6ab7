#include "braid/kernels/cpu/register.h"

namespace braid::cpu {

// Each bind_*.cc binds a family of ops to its kernels.
void add_linear_kernels(KernelTable& table, Isa cap);
void add_attention_kernels(KernelTable& table, Isa cap);
void add_expert_kernels(KernelTable& table, Isa cap);
void add_expert_exchange_kernels(KernelTable& table, Isa cap);
void add_latent_kernels(KernelTable& table, Isa cap);
void add_pointwise_kernels(KernelTable& table, Isa cap);
void add_segment_attention_kernels(KernelTable& table, Isa cap);
void add_sequence_kernels(KernelTable& table, Isa cap);
void add_dense_kernels(KernelTable& table, Isa cap);
void add_image_kernels(KernelTable& table, Isa cap);

void add_cpu_kernels(KernelTable& table, Isa cap) {
  add_linear_kernels(table, cap);
  add_attention_kernels(table, cap);
  add_expert_kernels(table, cap);
  add_expert_exchange_kernels(table, cap);
  add_latent_kernels(table, cap);
  add_pointwise_kernels(table, cap);
  add_segment_attention_kernels(table, cap);
  add_sequence_kernels(table, cap);
  add_dense_kernels(table, cap);
  add_image_kernels(table, cap);
}

}  // namespace braid::cpu
