#pragma once

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cuda/sampling/device_testing.h"
#include "braid/engine/sampling.h"
#include "braid/kernels/cuda/sampling/device/counts.h"
#include "braid/kernels/cuda/sampling/device/ring.h"

namespace braid::cuda::test {

SamplerParams to_device(const SamplingParams& p);

// Sequences that are sampled step by step on the device, next to the CPU sampler. Rows take slots
// in reverse order; the last row of the capacity is not live.
class SampleCase {
 public:
  SampleCase(int32_t vocab, const std::vector<SamplingParams>& params, const SamplingConfig& config,
             uint32_t seed, int32_t max_logprobs = 40);

  // The logits of a kind: "normal" (spread like a model's), "flat" (all nearly equal), "equal" (all
  // the same), "peaked", "steps" (few distinct values, many ties), "large".
  void fill_logits(const std::string& kind);
  std::vector<float>& logits() { return logits_; }  // [rows, V]; `upload` after changes
  void upload();

  // Runs a step on the device and checks it against the CPU. Tokens may differ only where the
  // random number lies within rounding of a boundary; then both go on with the device's token.
  void step();

  SampleCall& call() { return call_; }
  const SampleRing& ring() const { return *ring_; }
  int32_t rows() const { return rows_; }
  const std::vector<int32_t>& prompt(size_t row) const { return prompts_[row]; }
  std::mt19937& random() { return random_; }
  uint64_t steps_done() const { return step_; }
  int boundary_cases() const { return boundary_cases_; }
  std::vector<int32_t> ids() const;  // of the last step
  void launch(LaunchContext context = {});
  void next_step();  // adds 1 to the step's number

 private:
  void check_row(int32_t row, int32_t id);

  int32_t vocab_;
  int32_t rows_;
  std::vector<SamplingParams> params_;
  SamplingConfig config_;
  std::mt19937 random_;
  std::vector<float> logits_;
  std::vector<std::vector<int32_t>> prompts_;
  std::vector<std::vector<int32_t>> generated_;
  std::vector<Sampler> samplers_;
  uint64_t step_ = 0;
  int boundary_cases_ = 0;

  std::unique_ptr<SampleRing> ring_;
  DeviceArray<float> logits_d_;
  DeviceArray<int64_t> rows_d_;
  DeviceArray<int32_t> slots_d_;
  DeviceArray<SamplerParams> params_d_;
  DeviceArray<SamplerState> states_d_;
  DeviceArray<uint32_t> counts_d_;
  DeviceArray<uint64_t> step_d_;
  DeviceArray<int32_t> token_ids_d_;
  DeviceArray<float> workspace_d_;
  SampleCall call_;
};

}  // namespace braid::cuda::test
