// Prices of forms beside measurements: without a GPU.
#include <gtest/gtest.h>

#include "unit/kernels_cuda_decode_choice/model_steps.h"

namespace braid::cuda {
namespace {

using namespace testing_steps;

// What whole models took as relays on an H100, in milliseconds.
TEST(DecodePrice, OfRelaysIsWithinATwentiethOfWhatWasMeasured) {
  const DecodeForm relay{.kind = DecodeKind::relay};
  const auto near = [&](const DecodeStep& step, double ms) {
    EXPECT_NEAR(1e3 * price_of(step, relay), ms, .05 * ms);
  };
  near(llama_7b(1024), 4.558);
  near(llama_7b(4096), 5.069);
  near(llama_1b(1024), .935);
  near(llama_1b(4096), .956);
  near(qwen_06b(1024), .809);
  near(qwen_06b(4096), .879);
}

// Blocks alone, in microseconds a layer: without feed-forward, head and other launches.
TEST(DecodePrice, OfBlocksIsNearWhatWasMeasured) {
  const auto near = [&](DecodeStep step, int cluster, FusedScope scope, double us,
                        FusedSplit split = FusedSplit::token, int parts = 1) {
    step.layers = 1;
    step.ffn_bytes = step.down_bytes = step.head_bytes = 0;
    step.launches = scope == FusedScope::qkv ? 3 : 4;
    const double out = scope == FusedScope::qkv
                           ? 2. * step.block.kv_heads * step.block.group * step.block.head_dim *
                                 step.block.outputs / rates().stream
                           : 0;
    const DecodeForm form{.kind = DecodeKind::fused,
                          .cluster = cluster,
                          .parts = parts,
                          .split = split,
                          .scope = scope};
    EXPECT_NEAR(1e6 * (price_of(step, form) - out), us, .15 * us) << to_string(form);
  };
  near(llama_7b(1024), 3, FusedScope::qkv, 44.1);
  near(llama_7b(16384), 3, FusedScope::qkv, 123.7);
  near(llama_7b(1024), 1, FusedScope::qkv, 78.3);
  near(llama_7b(1024), 3, FusedScope::projected, 56.7);
  near(llama_7b(4096), 3, FusedScope::projected, 72.1);
  near(llama_7b(16384), 2, FusedScope::projected, 144.6);
  near(llama_1b(1024), 8, FusedScope::qkv, 14.4);
  near(llama_1b(16384), 8, FusedScope::qkv, 31.1);
  near(llama_1b(1024), 6, FusedScope::projected, 19.5);
  near(qwen_06b(1024), 8, FusedScope::qkv, 13.3);
  near(qwen_06b(4096), 8, FusedScope::qkv, 18.0);
  // Clusters in waves.
  near(llama_7b(1024), 4, FusedScope::qkv, 64.0);
  near(llama_7b(1024), 8, FusedScope::qkv, 63.9);
  near(llama_7b(4096), 6, FusedScope::qkv, 66.2);
  near(llama_7b(16384), 10, FusedScope::qkv, 172.1);
  near(llama_7b(16384), 16, FusedScope::qkv, 153.9);
  // Divided heads.
  near(llama_7b(1024), 2, FusedScope::qkv, 47.5, FusedSplit::head);
  near(llama_7b(16384), 2, FusedScope::qkv, 144.0, FusedSplit::head);
  near(llama_7b(16384), 4, FusedScope::qkv, 193.9, FusedSplit::head);
  near(llama_7b(16384), 2, FusedScope::projected, 154.3, FusedSplit::head);
  near(qwen_06b(16384), 4, FusedScope::qkv, 129.8, FusedSplit::head);
  near(llama_1b(16384), 2, FusedScope::qkv, 134.1, FusedSplit::head);
  // Several clusters of a KV head.
  const auto near_parts = [&](const DecodeStep& step, int cluster, int parts, double us) {
    near(step, cluster, FusedScope::qkv, us, FusedSplit::token, parts);
  };
  near_parts(qwen_06b(1024), 3, 4, 14.3);
  near_parts(qwen_06b(4096), 2, 8, 17.5);
  near_parts(qwen_06b(16384), 2, 8, 32.4);
  near_parts(llama_1b(1024), 2, 8, 15.6);
  near_parts(llama_1b(4096), 3, 4, 16.6);
  near_parts(llama_1b(16384), 2, 8, 23.9);
  near_parts(llama_8b(1024), 3, 4, 29.0);
  near_parts(llama_8b(4096), 2, 8, 32.8);
  near_parts(llama_8b(16384), 1, 16, 48.3);
  near(llama_8b(16384), 1, FusedScope::projected, 60.8, FusedSplit::token, 16);
  near(qwen_06b(1024), 2, FusedScope::projected, 19.1, FusedSplit::token, 8);
}

// The table of docs/log/cluster-fusion.md: whole models of one sequence, in milliseconds.
TEST(DecodePrice, OfEveryFormIsNearWhatWasMeasured) {
  const struct {
    int64_t context;
    double apart, relay, fused, projected, memory, by_heads;
  } rows[] = {{1024, 5.285, 4.571, 5.164, 5.085, 5.316, 5.395},
              {2048, 5.480, 4.744, 5.290, 5.254, 5.498, 5.595},
              {4096, 5.855, 5.103, 5.641, 5.601, 5.864, 6.020},
              {8192, 6.565, 5.808, 6.332, 6.295, 6.575, 6.841},
              {16384, 7.972, 7.217, 7.721, 7.666, 8.007, 8.521}};
  for (const auto& row : rows) {
    const auto near = [&](const char* form, double ms, double off) {
      EXPECT_NEAR(1e3 * price_of(llama_7b(row.context), parse_decode(form)), ms, off * ms)
          << form << " at " << row.context;
    };
    near("apart", row.apart, .05);
    near("relay", row.relay, .05);
    near("fused:cluster=3", row.fused, .05);
    near("fused:cluster=3,scope=projected", row.projected, .05);
    near("fused:cluster=2,exchange=memory", row.memory, .1);
    near("fused:cluster=2,split=head", row.by_heads, .1);
  }
}

// The run of tools/fit_decode_rates.py on another H100, whose stream is 2% faster.
TEST(DecodePrice, OfSmallModelsIsNearWhatWasMeasured) {
  const auto near = [](const DecodeStep& step, const char* form, double ms) {
    EXPECT_NEAR(1e3 * price_of(step, parse_decode(form)), ms, .06 * ms) << form;
  };
  constexpr int64_t kKeys = 4096 + 32;  // mid-way of 64 tokens
  near(llama_1b(kKeys), "relay", .946);
  near(llama_1b(kKeys), "apart", 1.195);
  near(llama_1b(kKeys), "fused:cluster=9", 1.170);
  near(llama_1b(kKeys), "fused:cluster=2", 1.626);
  near(llama_1b(kKeys), "fused:cluster=2,split=head", 1.820);
  near(qwen_06b(kKeys), "relay", .895);
  near(qwen_06b(kKeys), "apart", 1.187);
  near(qwen_06b(kKeys), "fused:cluster=9", 1.161);
  near(qwen_06b(kKeys), "fused:cluster=4", 1.396);
  near(qwen_06b(kKeys), "fused:cluster=4,split=head", 2.009);
}

// Whole models on an H100, in milliseconds.
TEST(DecodePrice, OfSeveralTokensIsNearWhatWasMeasured) {
  const DecodeForm apart{.kind = DecodeKind::apart};
  const auto near = [](const DecodeStep& step, const DecodeForm& form, double ms, double off) {
    EXPECT_NEAR(1e3 * price_of(step, form), ms, off * ms) << step.block.tokens;
  };
  near(together(llama_7b(1024), 3), apart, 5.514, .05);
  near(together(llama_7b(1024), 4), apart, 5.606, .05);
  near(together(llama_7b(4096), 4), apart, 7.633, .05);
  near(together(llama_7b(1024), 8), apart, 6.309, .05);
  near(together(llama_7b(4096), 8), apart, 10.398, .05);
  near(together(llama_7b(1024), 16), apart, 7.763, .05);
  near(together(llama_7b(4096), 16), apart, 16.158, .05);
  near(together(llama_1b(1024), 4), apart, 1.162, .05);
  near(together(llama_1b(4096), 4), apart, 1.320, .05);
  const auto fused = [&](const DecodeStep& step, double ms) {
    near(step, choose_decode(parse_decode("fused"), step, h100(), rates()), ms, .15);
  };
  fused(together(llama_7b(1024), 3), 5.679);
  fused(together(llama_7b(1024), 4), 5.880);
  fused(together(llama_7b(4096), 4), 7.972);
  fused(together(llama_7b(1024), 8), 6.552);
  fused(together(llama_7b(1024), 16), 8.745);
  fused(together(llama_7b(4096), 16), 17.566);
  fused(together(llama_1b(1024), 4), 1.310);
  fused(together(llama_1b(4096), 4), 1.491);
}

// The run of tools/fit_decode_rates.py on an H200, and forms near the best by price.
TEST(DecodePrice, OfAnH200IsNearWhatWasMeasured) {
  const auto near = [](const DecodeStep& step, const char* form, double ms, double off) {
    EXPECT_NEAR(1e3 * price_of(step, parse_decode(form), h200(), h200_rates()), ms, off * ms)
        << form << ", " << step.block.tokens;
  };
  constexpr int64_t kKeys = 4096 + 32, kLong = 16384 + 32;  // mid-way of 64 tokens
  near(llama_7b(kKeys), "relay", 3.559, .05);
  near(llama_7b(kKeys), "apart", 4.314, .05);
  near(llama_7b(kKeys), "fused:cluster=1", 6.502, .05);
  near(llama_7b(kLong), "fused:cluster=1", 10.789, .05);
  near(llama_7b(kKeys), "fused:cluster=2", 4.780, .05);
  near(llama_7b(kKeys), "fused:cluster=3", 4.238, .05);
  near(llama_7b(kKeys), "fused:cluster=6", 4.623, .05);
  near(llama_7b(kKeys), "fused:cluster=2,exchange=memory", 4.822, .05);
  near(llama_7b(kKeys), "fused:cluster=2,scope=projected", 4.773, .05);
  near(llama_7b(kLong), "fused:cluster=2", 6.919, .05);
  near(llama_7b(kLong), "fused:cluster=2,split=head", 7.463, .05);
  near(together(llama_7b(kKeys), 16), "apart", 11.385, .05);
  near(llama_7b(1024 + 32), "relay", 3.193, .05);
  near(llama_7b(kLong), "relay", 5.131, .05);
  near(llama_7b(kLong), "apart", 5.824, .05);
  near(llama_7b(1024 + 32), "fused:cluster=3,scope=projected", 3.798, .05);
  near(llama_7b(kLong), "fused:cluster=3,scope=projected,exchange=memory", 5.741, .05);
  near(llama_7b(kKeys), "fused:cluster=1,parts=4,scope=projected", 4.077, .05);
  near(together(llama_7b(kKeys), 4), "apart", 5.417, .05);
  near(together(llama_7b(kKeys), 4), "fused:cluster=3", 6.280, .1);
  near(together(llama_7b(kKeys), 8), "fused:cluster=3", 8.400, .1);
  near(together(llama_7b(1024 + 32), 16), "fused:cluster=3", 7.165, .1);
  near(together(llama_7b(kKeys), 16), "fused:cluster=3", 14.498, .1);
  near(llama_8b(1024 + 32), "relay", 3.612, .05);
  near(llama_8b(kLong), "relay", 4.070, .05);
  near(llama_8b(kKeys), "apart", 4.469, .05);
  near(llama_8b(kKeys), "fused:cluster=1,parts=16,scope=projected", 4.441, .08);
  near(llama_8b(kLong), "fused:cluster=3,parts=4,scope=projected", 4.997, .05);
  near(llama_1b(kKeys), "relay", .760, .05);
  near(llama_1b(kKeys), "apart", .991, .05);
  near(llama_1b(kKeys), "fused:cluster=2", 1.448, .06);
  near(llama_1b(kLong), "fused:cluster=2,split=head", 2.983, .08);
  near(llama_1b(kKeys), "fused:cluster=9", .994, .05);
  near(llama_1b(kKeys), "fused:cluster=2,parts=8", .974, .05);
  near(together(llama_1b(kKeys), 4), "apart", 1.032, .05);
  near(together(llama_1b(kKeys), 4), "fused:cluster=9", 1.327, .1);
  near(qwen_06b(kKeys), "relay", .787, .05);
  near(qwen_06b(kKeys), "apart", 1.074, .05);
  near(qwen_06b(kKeys), "fused:cluster=2", 1.918, .06);
  near(qwen_06b(kKeys), "fused:cluster=9", 1.166, .05);
  near(qwen_06b(kLong), "fused:cluster=4", 2.515, .06);
  near(qwen_06b(kLong), "fused:cluster=4,split=head", 4.402, .06);
}

}  // namespace
}  // namespace braid::cuda
