#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "braid/kernels/cuda/attention/device/launch.h"
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
  std::vector<int> q_stages;   // empty: zeros
  std::vector<int> q_early;    // empty: zeros
  std::vector<int> kv_lengths;
  std::vector<int> kv_offsets;            // empty: one after the other from 0
  std::vector<int> kv_stages;             // empty: zeros
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
  // Splits the KV segments into `calls` calls that carry the state.
  void run_chain(const AttentionConfig& config, int calls);
  // A call whose keys and queries arrive (kv_stages, q_stages): NaN until they do, after a random
  // time each, and with a random number of places for sums. What is left of
  // AttentionArrivals::arrived: zeros, unless the last stage is `withheld`.
  std::pair<uint32_t, uint32_t> run_arriving(const AttentionConfig& config, uint64_t seed,
                                             bool withheld = false);
  // Early rows of the last such run that were not there when it said that all were; -1: it did not.
  int early_rows_missing() const { return early_missing_; }

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
              const AttentionConfig& config, const AttentionArrivals* arrivals = nullptr);
  void fetch();
  std::string check_row(int segment, int b, int t, int h) const;
  int early_rows_that_differ(const std::vector<uint8_t>& seen) const;
  template <class F>
  void for_each_row(F f) const;
  template <class F>
  void for_each_arriving(F f) const;

  CaseSpec spec_;
  std::vector<uint8_t> arena_;   // inputs, and poison where outputs go
  std::vector<uint8_t> result_;  // the arena after a run
  std::vector<QTensor> q_, device_q_;
  std::vector<KvTensor> kv_, device_kv_;
  uint8_t* device_ = nullptr;
  void* workspace_ = nullptr;
  int chain_ = 1;  // calls of the last run
  int early_missing_ = 0;
};

inline bool has_device() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

#define REQUIRE_DEVICE() \
  if (!has_device()) GTEST_SKIP() << "no CUDA device"

inline AttentionDesc make_desc(int qk, int v, int hq, int hkv, DType dtype = DType::bf16,
                               int batch = 1) {
  AttentionDesc d;
  d.dtype = dtype;
  d.batch = batch;
  d.num_q_heads = hq;
  d.num_kv_heads = hkv;
  d.head_dim_qk = qk;
  d.head_dim_v = v;
  d.scale = 1.f / std::sqrt(static_cast<float>(qk));
  return d;
}

struct Dims {
  int qk, v;
};
constexpr Dims kDims[] = {{64, 64}, {96, 96}, {128, 128}, {192, 128}, {256, 256}};

}  // namespace braid::cuda::test
