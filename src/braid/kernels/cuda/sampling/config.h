#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Choice of a step's tokens: a cluster of CTAs takes a row of logits, each CTA a slice of the
// vocabulary in shared memory. Pure host code.
namespace braid::cuda {

struct SamplingDesc {
  int32_t vocab = 0;     // V, 1 to kMaxVocab
  int32_t capacity = 0;  // rows that a step can have
};

struct SamplingDevice {
  int compute_capability = 90;  // 10 * major + minor
  int num_sms = 132;
  int shared_bytes = 227 << 10;  // that a CTA can have
};

struct SamplingConfig {
  int cluster = 1;      // CTAs for a row: 1, 2, 4, 8 or 16; above 1 from sm_90
  bool staged = false;  // slices in shared memory; else in the workspace
  double cost_us = 0;   // the estimate that `choose` compares
  bool operator==(const SamplingConfig&) const = default;
};

constexpr int kSampleThreads = 512;
constexpr size_t kSampleSharedBytes = 42 << 10;  // per CTA, besides the slice

// Vocabulary values per CTA: a multiple of 32.
int32_t slice_of(const SamplingDesc& desc, const SamplingConfig& config);

// All possible configs, in a fixed order; a CTA per row over the workspace is always possible.
// Fails with kInvalidArgument naming the field if `desc` is out of its limits.
std::vector<SamplingConfig> candidates(const SamplingDesc& desc, const SamplingDevice& device);

// The candidate with the least estimated cost.
SamplingConfig choose(const SamplingDesc& desc, const SamplingDevice& device);

// The call's device memory, 16-byte aligned: f32 rows with V numbers, padded to 16 bytes, unless
// staged.
size_t workspace_bytes(const SamplingDesc& desc, const SamplingConfig& config);

// "cluster 8 staged"
std::string to_string(const SamplingConfig& config);

}  // namespace braid::cuda
