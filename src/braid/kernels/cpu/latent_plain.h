#pragma once

#include "braid/kernels/cpu/bind.h"
#include "braid/ops/latent_attention.h"

namespace braid::cpu {

// The plain form of latent attention. For a piece of a sequence's latents at a time, the keys and
// values of all heads are made in f32; blocks of queries meet them and keep a running softmax. A
// sequence's result depends neither on the other sequences nor on the team.
class LatentPlain {
 public:
  // Scratch for a call with room for T tokens; 0 if no sequence can take the form.
  static int64_t scratch_bytes(const ops::LatentSizes& sizes, bool transposed, int64_t T, DType k_b,
                               DType v_b, int threads);

  // `scratch` is 64-byte aligned and outlives the object.
  LatentPlain(const OpCall& call, std::byte* scratch, int threads, Isa isa);

  // For each call, before any run(); ends with a barrier.
  void begin(const Team& team) const;
  // All new tokens of a sequence; ends with a barrier.
  void run(int64_t sequence, const Team& team) const;

 private:
  struct Layout;
  void make_keys(int64_t rows, const TensorView& weight, int64_t column, const Team& team) const;
  void load_latents(int64_t sequence, Range keys, const Team& team) const;
  void attend(int64_t sequence, Range keys, const Team& team) const;
  template <class T>
  T* at(int64_t offset) const {
    return reinterpret_cast<T*>(scratch_ + offset);
  }

  const OpCall& call_;
  const ops::LatentAttentionAttrs& a_;
  const ops::LatentSizes n_;
  const std::shared_ptr<const Layout> at_;
  std::byte* const scratch_;
  const int threads_;
  const Isa isa_;
  const std::vector<double> inv_freq_;
  TensorView k_b_;  // [H, Dn, R]: the weight, or its transpose in scratch
};

}  // namespace braid::cpu
