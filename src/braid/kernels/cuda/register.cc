#include "braid/kernels/cuda/register.h"

namespace braid::cuda {

// Each bind_*.cc binds a family of ops to its kernels.
void add_pointwise_kernels(KernelTable& table);
void add_linear_kernels(KernelTable& table);
void add_attention_kernels(KernelTable& table);
void add_segment_attention_kernels(KernelTable& table);
void add_token_kernels(KernelTable& table);
void add_state_kernels(KernelTable& table);
void add_thinning_kernels(KernelTable& table);
void add_paid_keys_kernels(KernelTable& table);
void add_expert_kernels(KernelTable& table);
void add_latent_kernels(KernelTable& table);
void add_dense_kernels(KernelTable& table);
void add_dense_attention_kernels(KernelTable& table);
void add_dense_fusions(KernelTable& table);
void add_image_kernels(KernelTable& table);

void add_cuda_kernels(KernelTable& table) {
  add_pointwise_kernels(table);
  add_linear_kernels(table);
  add_attention_kernels(table);
  add_segment_attention_kernels(table);
  add_token_kernels(table);
  add_state_kernels(table);
  add_thinning_kernels(table);
  add_paid_keys_kernels(table);
  add_expert_kernels(table);
  add_latent_kernels(table);
  add_dense_kernels(table);
  add_dense_attention_kernels(table);
  add_dense_fusions(table);
  add_image_kernels(table);
  add_relays(table, {});
}

}  // namespace braid::cuda
