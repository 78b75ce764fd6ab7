#include "braid/kernels/cpu/attention/attention.h"

#include "backend/cpu/attention_batch.h"

namespace braid::cpu {
namespace {

using namespace testing;

TEST(Attention, Decode) {
  uint32_t seed = 100;
  for (int64_t kv_len : {1, 2, 15, 16, 17, 63, 64, 65, 127, 130, 500}) {
    check({.sequences = {{1, kv_len}}}, seed++);
  }
  check({.sequences = {{1, 70}, {1, 1}, {1, 300}, {1, 64}, {1, 129}}}, seed++);
}

TEST(Attention, DecodeOfLongSequences) {  // chunks of more than 64 keys
  check({.head_dim = 32, .q_heads = 2, .kv_heads = 1, .group = 2, .sequences = {{1, 4100}}}, 200);
  check({.head_dim = 16, .q_heads = 1, .kv_heads = 1, .group = 1, .sequences = {{1, 9000}, {1, 5}}},
        201);
}

TEST(Attention, Prefill) {
  uint32_t seed = 300;
  for (int64_t n : {2, 3, 7, 16, 63, 64, 65, 131}) check({.sequences = {{n, n}}}, seed++);
  check({.sequences = {{5, 200}, {64, 65}, {2, 66}, {33, 161}}}, seed++);
}

TEST(Attention, MixedBatches) {
  check({.sequences = {{1, 90}, {40, 40}, {0, 0}, {1, 200}, {9, 150}, {1, 1}, {0, 50}}}, 400);
}

TEST(Attention, HeadDims) {
  uint32_t seed = 500;
  for (int64_t D : {8, 24, 40, 64, 72, 80, 96, 120, 128, 192, 256}) {
    check({.head_dim = D,
           .q_heads = 4,
           .kv_heads = 2,
           .group = 2,
           .sequences = {{1, 75}, {20, 85}, {1, 7}}},
          seed++);
  }
}

TEST(Attention, CacheTypesAndPageSizes) {
  uint32_t seed = 600;
  for (DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (int64_t page_size : {1, 5, 32, 256}) {
      check({.head_dim = 40,
             .q_heads = 3,
             .kv_heads = 3,
             .group = 1,
             .page_size = page_size,
             .dtype = dtype,
             .sequences = {{1, 100}, {30, 70}}},
            seed++);
    }
  }
}

TEST(Attention, GroupsAndOffsets) {
  uint32_t seed = 700;
  const auto heads = [&](int64_t q, int64_t kv, int64_t group, int64_t offset) {
    check({.q_heads = q,
           .kv_heads = kv,
           .group = group,
           .head_offset = offset,
           .sequences = {{1, 80}, {12, 100}}},
          seed++);
  };
  heads(5, 2, 3, 0);  // 9 heads of 3 KV heads on two ranks: the first
  heads(4, 2, 3, 2);  // ... and the second
  heads(1, 1, 3, 1);  // a rank inside one group
  heads(8, 1, 8, 0);  // multi-query
  heads(71, 1, 71, 0);
  heads(7, 7, 1, 0);
  heads(5, 3, 4, 3);  // the last KV head has no query head here
}

TEST(Attention, Window) {
  uint32_t seed = 800;
  for (int64_t window : {1, 2, 15, 16, 63, 64, 65, 100, 1000}) {
    check({.window = window,
           .sequences = {{1, 200}, {1, 3}, {70, 70}, {3, 190}, {66, 200}, {1, 64}, {1, 65}}},
          seed++);
  }
}

TEST(Attention, Softcap) {
  check({.softcap = 0.5f, .sequences = {{1, 90}, {20, 50}}}, 900);
  check({.window = 40, .softcap = 30, .sequences = {{1, 90}, {20, 50}}}, 901);
}

// Scores far apart: the running maximum moves by much between blocks, and most weights vanish.
TEST(Attention, LargeScores) {
  check({.q_heads = 2, .kv_heads = 1, .group = 2, .scale = 3, .sequences = {{1, 300}, {50, 300}}},
        1000);
}

TEST(Attention, InPlace) {
  const Shape shape{.sequences = {{1, 90}, {40, 100}, {1, 200}}};
  for (Isa isa : usable_isas()) {
    Batch batch(shape, 1100);
    const std::vector<float> out = batch.run(isa, 2);
    AttentionParams p = batch.params(nullptr);
    p.out = const_cast<float*>(p.q);
    p.out_stride = p.q_stride;
    batch.run(isa, 3, p);
    for (int64_t t = 0; t < batch.tokens(); ++t) {
      ASSERT_EQ(std::memcmp(p.out + t * p.out_stride, &out[t * batch.out_stride()],
                            batch.out_stride() * sizeof(float)),
                0)
          << "row " << t;
    }
  }
}

}  // namespace
}  // namespace braid::cpu
