#pragma once

#include <cmath>

#include "braid/kernels/cuda/decode_choice/decode_choice.h"

// Steps of well-known models, and the GPU of their measurements.
namespace braid::cuda::testing_steps {

// Of an H100 as it was measured.
inline FusedDevice h100() {
  return {.clusters = {0, 132, 66, 39, 30, 22, 17, 15, 15, 9, 7, 7, 7, 7, 7, 7, 7}};
}
inline DecodeRates rates() {
  return decode_rates("NVIDIA H100 80GB HBM3", 3.129e12);
}
inline DecodeRates h200_rates() {
  return absent_decode_rates("h200", 0);
}
inline FusedDevice h200() {
  return {.clusters = h200_rates().clusters};
}

inline DecodeStep step_of(int64_t C, int64_t F, int64_t kv_heads, int group, int head_dim,
                          int layers, int64_t vocab, int64_t context) {
  return {.block = {.width = C,
                    .kv_heads = kv_heads,
                    .group = group,
                    .head_dim = head_dim,
                    .page_size = 64,
                    .outputs = C},
          .layers = layers,
          .ffn_bytes = 6 * C * F,
          .down_bytes = 2 * C * F,
          .head_bytes = 2 * C * vocab,
          .context = context};
}
inline DecodeStep llama_7b(int64_t context) {
  return step_of(4096, 11008, 32, 1, 128, 32, 32000, context);
}
inline DecodeStep llama_1b(int64_t context) {
  return step_of(2048, 8192, 8, 4, 64, 16, 128256, context);
}
inline DecodeStep llama_8b(int64_t context) {
  return step_of(4096, 14336, 8, 4, 128, 32, 128256, context);
}
inline DecodeStep qwen_06b(int64_t context) {
  return step_of(1024, 3072, 8, 2, 128, 28, 151936, context);
}

inline double price_of(const DecodeStep& step, const DecodeForm& form,
                       const FusedDevice& device = h100(), const DecodeRates& its = rates()) {
  for (const DecodePrice& p : decode_prices(step, device, its, form.parts)) {
    if (p.form == form && p.why_not.empty()) return p.seconds();
  }
  return NAN;
}

// Steps of several sequences, as describe_step describes these.
inline DecodeStep together(DecodeStep step, int64_t tokens) {
  step.block.tokens = tokens;
  step.block.normed = tokens <= 4;
  step.launches = 8;
  step.norms_apart = true;
  step.no_relay = "several tokens";
  return step;
}

}  // namespace braid::cuda::testing_steps
