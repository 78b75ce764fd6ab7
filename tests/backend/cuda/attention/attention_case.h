#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "braid/kernels/cuda/attention/launch.h"
#include "braid/kernels/cuda/attention/reference.h"

// Segment-attention problems for the backend tests: the tensors of a call in one arena that is
// poisoned with NaN, mirrored on the device, with the f64 reference to check against.
namespace braid::cuda::test {

enum class Inputs {
  kNormal,       // N(0, 1)
  kLargeLogits,  // q and k times 8: logits of +-500 and more
  kDominantKey,  // one key whose logit is far above the rest
};

struct CaseSpec {
  AttentionDesc desc;
  std::vector<int> q_lengths;
  std::vector<int> q_offsets;  // empty: zeros
  std::vector<int> kv_lengths;
  std::vector<int> kv_offsets;            // empty: one after the other from 0
  std::vector<std::pair<int, int>> sees;  // KV segments of each Q segment; empty: all
  bool head_strided = false;              // [B, H, L, D] in place of [B, L, H, D]
  bool device_lengths = false;            // KV lengths are read from device memory and vary with b
  bool ragged = false;                    // Q rows are packed [T, H, D] with starts
  bool empty_state = false;               // with desc.load_state: m is -inf, the rest stays poison
  Inputs inputs = Inputs::kNormal;
  uint64_t seed = 1;
};

class Case {
 public:
  explicit Case(const CaseSpec& spec);
  ~Case();

  const AttentionDesc& desc() const { return spec_.desc; }
  AttentionParams device_params() const { return {device_q_, device_kv_}; }

  // Runs the call with fresh (poisoned or carried) outputs and fetches them.
  void run(const AttentionConfig& config);
  // Splits the KV segments into `calls` calls that carry the state; if `linked` as a chain whose
  // calls may run into each other. Then the result is what is left of the chain's counts: zeros.
  // Call i is computed as configs[i % n].
  int64_t run_chain(const std::vector<AttentionConfig>& configs, int calls, bool linked = false);

  // First violation of: outputs within the error that the arithmetic allows of the f64 reference
  // on at most `max_rows` rows, and not a byte written elsewhere. Empty: none.
  std::string check(int max_rows) const;
  // The whole arena after the last run: equal bytes are equal results.
  const std::vector<uint8_t>& result() const { return result_; }
  // Largest |difference| of o between the last runs of two cases of one spec, over all rows,
  // in units of the dtype's rounding of the largest |o|.
  double distance(const std::vector<uint8_t>& other) const;

 private:
  friend struct CaseBuilder;
  void launch(const AttentionDesc& desc, const AttentionParams& params,
              const AttentionConfig& config, AttentionChain* chain = nullptr);
  std::string check_row(int segment, int b, int t, int h) const;
  template <class F>
  void for_each_row(F f) const;

  CaseSpec spec_;
  std::vector<uint8_t> arena_;   // inputs, and poison where outputs go
  std::vector<uint8_t> result_;  // the arena after a run
  std::vector<QSegment> q_, device_q_;
  std::vector<KvSegment> kv_, device_kv_;
  uint8_t* device_ = nullptr;
  void* workspace_ = nullptr;
  int chain_ = 1;  // calls of the last run
};

}  // namespace braid::cuda::test
