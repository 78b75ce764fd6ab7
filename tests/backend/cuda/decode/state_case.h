#pragma once

#include <vector>

#include "backend/cuda/decode/decode_case.h"

// States (ops/attention_state.h) of queries over the keys that a GPU holds.
namespace braid::cuda::test {

struct StateSpec {
  int64_t kv_heads = 2;
  int64_t group = 4;
  int64_t head_dim = 128;
  DType cache = DType::bf16;
  DType q = DType::bf16;
  float softcap = 0;
  std::vector<Range> keys;  // [T] that each query sees of its sequence
  int64_t sequences = 1;    // query t is of sequence t % sequences
  bool one_query = false;   // all T have the same numbers
  int64_t page_size = 16;
  bool paged = false;  // keys lie in pages of their sequences, as for run_paged; else anywhere
  uint32_t seed = 1;
};

// Operands on the host and on the device. Only what a query may read holds numbers.
class StateCase {
 public:
  explicit StateCase(const StateSpec& spec);

  std::vector<float> reference() const;

  // config: of the decode kernel; null: the plain kernel. `late`: q, and the last key that each
  // query sees, come from the kernel before, which takes its time.
  std::vector<float> run(const DecodeConfig* config, bool late = false) const;
  // By the kernel that reads page tables.
  std::vector<float> run_paged(const DecodeConfig& config) const;

  DecodeDesc desc() const;
  DecodeDesc paged_desc() const;

  // As attention's weights are rounded to the cache's type.
  void expect_equal(const std::vector<float>& got, const std::vector<float>& want,
                    double tolerance) const;

 private:
  struct Device;

  ops::AttentionAttrs attrs() const;
  Shape cache_shape() const { return {pages_, spec_.page_size, spec_.kv_heads, spec_.head_dim}; }
  size_t elems() const { return static_cast<size_t>(T_ * heads_ * (spec_.head_dim + 2)); }

  const StateSpec spec_;
  const int64_t T_, heads_;
  int64_t K_ = 0, pages_ = 0;
  std::vector<std::byte> q_, k_, v_;
  std::vector<int32_t> slots_, rows_, begin_, end_;
};

}  // namespace braid::cuda::test
