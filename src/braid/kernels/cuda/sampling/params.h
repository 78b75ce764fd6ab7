#pragma once

#include <cstdint>
#include <limits>

// Data shared by sampler kernels and the host: plain memory, no CUDA types. A *slot* is a
// sequence's place in the state beyond a step; a *row* is a place in the step's batch.
namespace braid::cuda {

constexpr int kMaxVocab = 1 << 20;
constexpr int kMaxLogprobs = 1000;
constexpr int kMaxBiases = 2048;  // per sequence

// Sampling parameters of a sequence; in device memory, [slots], set while the sequence is in no
// step. The defaults are greedy. The writer checks values.
struct SamplerParams {
  float temperature = 0;                                      // 0: the most likely token
  int32_t top_k = 0;                                          // 0: all
  float top_p = 1;                                            // (0, 1]
  float log_min_p = -std::numeric_limits<float>::infinity();  // ln of min-p; -inf: none
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  int32_t logprobs = -1;  // alternatives to report; -1: no log-probabilities
  // How long a step waits for the host's mask of allowed tokens, in microseconds; 0: no mask.
  uint32_t mask_wait_us = 0;
  int32_t num_biases = 0;  // in the slot's row of SampleCall::biases
};

// An addend to an id's logit, before penalties, while the sequence has generated fewer
// than `until` tokens. -inf forbids the id.
struct SampleBias {
  int32_t id = 0;
  float add = 0;
  uint32_t until = std::numeric_limits<uint32_t>::max();
};

// A sequence's state from token to token; in device memory, [slots].
struct SamplerState {
  uint64_t random = 0;     // SplitMix64; starts as the seed, one step per drawn (not greedy) token
  uint32_t generated = 0;  // tokens
};
constexpr uint64_t kRandomStep = 0x9e3779b97f4a7c15u;  // of SamplerState::random

// counts [slots, V] u32: how often an id was generated, and whether it stands in the prompt.
constexpr uint32_t kSeenInPrompt = 1u << 31;
constexpr uint32_t kTimesGenerated = kSeenInPrompt - 1;

enum SampleStatus : uint32_t {
  kSampleOk = 0,
  kSampleMaskLate = 1,   // the mask did not come before the deadline: drawn as if all were allowed
  kSampleNotFinite = 2,  // NaN (taken as -inf) or +inf (taken as the largest f32) among the logits
  kSampleNoToken = 4,    // no token is allowed or has probability: the id is 0
};

// A sampled token, in pinned host memory, written by a single store of 16 bytes after related data:
// a reader of step + 1 in `ready` (acquire) sees the rest.
struct alignas(16) SampleRecord {
  int32_t id;
  float logprob;     // natural log, of the model's own distribution; 0 if not asked for
  uint16_t num_top;  // alternatives in the SampleTop array
  uint16_t status;   // SampleStatus bits
  uint32_t ready;    // the low bits of step + 1
};
static_assert(sizeof(SampleRecord) == 16);

struct SampleTop {
  int32_t id;
  float logprob;
};

}  // namespace braid::cuda
