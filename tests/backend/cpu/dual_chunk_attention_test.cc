// Dual chunk attention against the published form in f64.
#include "backend/cpu/attention_batch.h"

namespace braid::cpu {
namespace {

using namespace testing;

TEST(DualChunkAttention, IsThePublishedOne) {
  uint32_t seed = 450;
  const ops::RopeAttrs rope{.head_dim = 64, .rotary_dim = 64, .theta = 1e6};
  ops::RopeAttrs part = rope;
  part.rotary_dim = 24;
  part.pairing = ops::RopePairing::interleaved;
  for (const ops::DualChunks& dual :
       {ops::DualChunks{.chunk = 64, .reach = 128, .original = 100, .rope = rope},
        ops::DualChunks{.chunk = 19, .reach = 24, .rope = part},
        ops::DualChunks{.chunk = 1, .reach = 2, .original = 1, .rope = rope},
        ops::DualChunks{.chunk = 130, .reach = 131, .original = 140, .rope = rope},
        ops::DualChunks{.chunk = 500, .reach = 600, .rope = rope}}) {
    const auto heads = [&](int64_t heads, std::vector<Sequence> sequences) {
      check({.q_heads = heads, .kv_heads = 1, .group = heads, .dual = dual, .sequences = sequences},
            seed++);
    };
    heads(7, {{1, 300}, {1, 1}, {1, 131}, {1, dual.reach + 1}, {1, 700}});
    heads(2, {{1, 90}, {70, 70}, {9, 150}, {20, 290}});
  }
}

}  // namespace
}  // namespace braid::cpu
