#include "braid/kernels/cuda/attention/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "braid/base/error.h"
#include "braid/kernels/cuda/attention/plan.h"
#include "braid/kernels/cuda/attention/reference.h"
#include "braid/tensor/half.h"
#include "unit/kernels_cuda_attention/attention_call.h"

namespace braid::cuda {
namespace {

using testing::HasSubstr;

template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(AttentionConfig, EachCandidateOnce) {
  Call call({4096}, {4096});
  const auto all = candidates(make_desc(128, 24, 24), call.params(), {90, 132});
  ASSERT_GE(all.size(), 3u);
  std::set<std::string> names;
  for (const auto& c : all) names.insert(to_string(c));
  EXPECT_EQ(names.size(), all.size());
  EXPECT_TRUE(names.contains("generic 128x64 pack 1"));
  for (const auto& c : candidates(make_desc(128, 24, 24), call.params(), {80, 108})) {
    EXPECT_EQ(c.kernel, AttentionKernel::kGeneric);
  }
}

TEST(AttentionConfig, LongCallsTakeTheWideKernel) {
  for (int d : {64, 96, 128, 256}) {
    Call call({16384}, {16384});
    const AttentionConfig c = choose(make_desc(d, 24, 24), call.params(), {90, 132});
    EXPECT_EQ(c.kernel, AttentionKernel::kHopper) << d;
    EXPECT_GE(c.block_m, 128) << d;
  }
}

TEST(AttentionConfig, CarriedStatesAreStaged) {
  Call call({16384}, {4096});
  for (int d : {64, 96, 128}) {
    AttentionDesc desc = make_desc(d, 24, 24);
    for (const AttentionConfig& c : candidates(desc, call.params(), {90, 132})) {
      EXPECT_EQ(c.form, HopperForm::kWhole) << to_string(c);  // nothing is carried
    }
    desc.finalize = false;
    const AttentionConfig c = choose(desc, call.params(), {90, 132});
    EXPECT_EQ(c.form, HopperForm::kStaged) << to_string(c);
    EXPECT_NE(to_string(c).find(" staged"), std::string::npos);
  }
}

TEST(AttentionConfig, KeysThatArriveHaveTheirOwnKernels) {
  for (int d : {64, 96, 128, 256}) {
    Call call({4096}, {1024, 1024});
    call.kv[1].stage = 1;
    const AttentionDesc desc = make_desc(d, 24, 24);
    const AttentionDevice device{90, 132};
    const auto all = candidates(desc, call.params(), device);
    ASSERT_FALSE(all.empty());
    for (const AttentionConfig& c : all) {
      EXPECT_EQ(c.form, HopperForm::kArriving) << to_string(c);
      const size_t each = attention_sums_bytes(desc, c) * (device.num_sms / c.cluster);
      const size_t bytes = attention_sums_bytes(desc, call.params(), c, device);
      EXPECT_GE(bytes, 2 * each) << to_string(c);  // an SM has several of the items
      EXPECT_EQ(bytes % each, 0u) << to_string(c);
    }
    EXPECT_THAT(message_of([&] {
                  candidates(desc, call.params(), {80, 108});
                }),
                HasSubstr("keys that arrive, compute capability 80 (90)"));
  }
}

// An item of a cluster costs more to leave and to take up, and its tiles less.
TEST(AttentionConfig, ClustersTakeKeysThatArriveWhereThereAreMany) {
  for (auto [length, cluster] : {std::pair{4096, 1}, {131072, 2}}) {
    Call call({length}, {length / 2, length / 2});
    call.kv[1].stage = 1;
    const AttentionConfig c = choose(make_desc(64, 24, 24), call.params(), {90, 132});
    EXPECT_EQ(c.cluster, cluster) << to_string(c);
  }
}

TEST(AttentionConfig, FewQueriesShareTheirRows) {
  Call call({4}, {4096});
  EXPECT_EQ(choose(make_desc(128, 64, 8), call.params(), {90, 132}).pack, 8);
}

// Few rows and many keys: some of an item's keys go to CTAs that would be idle.
TEST(AttentionConfig, FewItemsSplitTheirKeys) {
  Call call({16}, {32768});
  const AttentionConfig c = choose(make_desc(128, 8, 8), call.params(), {90, 132});
  EXPECT_EQ(c.split, kMaxSplit) << to_string(c);
  Call many({16384}, {16384});
  EXPECT_EQ(choose(make_desc(128, 8, 8), many.params(), {90, 132}).split, 1);
}

TEST(AttentionConfig, OddPagesTakeTheGenericKernel) {
  Call call({512}, {512});
  AttentionDesc desc = make_desc(128, 8, 8);
  desc.page_size = 48;
  int32_t table[11] = {};
  call.kv[0].page_table = table;
  call.kv[0].page_table_stride = 11;
  call.kv[0].num_pages = 11;
  EXPECT_EQ(choose(desc, call.params(), {90, 132}).kernel, AttentionKernel::kGeneric);
}

TEST(AttentionConfig, RefusesWithTheReason) {
  Call call({64}, {64});
  const auto message = [&](auto change) {
    AttentionDesc desc = make_desc(128, 8, 2);
    Call mine = call;
    for (auto& s : mine.q) s.q = s.o = mine.data;
    for (auto& s : mine.kv) s.k = s.v = mine.data;
    change(desc, mine);
    return message_of([&] { verify(desc, mine.params()); });
  };
  EXPECT_EQ(message([](AttentionDesc&, Call&) {}), "no error");
  EXPECT_THAT(message([](AttentionDesc& d, Call&) { d.head_dim_qk = 80; }), HasSubstr("80 / 128"));
  EXPECT_THAT(message([](AttentionDesc& d, Call&) { d.num_kv_heads = 3; }), HasSubstr("8 query"));
  EXPECT_THAT(message([](AttentionDesc& d, Call&) { d.dtype = DType::f32; }), HasSubstr("f32"));
  EXPECT_THAT(message([](AttentionDesc& d, Call&) { d.page_size = 8; }), HasSubstr("page size 8"));
  EXPECT_THAT(message([](AttentionDesc& d, Call&) { d.scale = NAN; }), HasSubstr("scale nan"));
  EXPECT_THAT(message([](AttentionDesc&, Call& c) { c.q[0].kv_end = 2; }),
              HasSubstr("[0, 2) of 1"));
  EXPECT_THAT(message([](AttentionDesc&, Call& c) { c.q[0].q = c.data + 2; }),
              HasSubstr("not 16-byte aligned"));
  EXPECT_THAT(message([](AttentionDesc&, Call& c) { c.kv[0].v_stride.head = 100; }),
              HasSubstr("stride 100"));
  EXPECT_THAT(message([](AttentionDesc& d, Call& c) {
                d.load_state = true;
                c.q[0].state_o = nullptr;
              }),
              HasSubstr("state_o of segment 0 is null"));
  EXPECT_THAT(message([](AttentionDesc&, Call& c) {
                c.kv.resize(2, c.kv[0]);
                c.kv[0].stage = 2;
                c.kv[1].stage = 1;
              }),
              HasSubstr("stage 1 of KV segment 1 after stage 2"));
  EXPECT_THAT(message([](AttentionDesc& d, Call& c) {
                d.finalize = false;
                c.kv[0].stage = 1;
              }),
              HasSubstr("keys arrive in 2 stages (only in calls without a carried state"));
  EXPECT_THAT(message([](AttentionDesc&, Call& c) { c.q.resize(kMaxQSegments + 1, c.q[0]); }),
              HasSubstr("21 Q segments"));
}

// Two calls that carry the state give what one call gives.
TEST(AttentionReference, StateMerges) {
  AttentionDesc desc = make_desc(64, 1, 1);
  const int keys = 20;
  std::vector<bf16> q(64), k(keys * 64), v(keys * 64), o(64);
  uint32_t x = 1;
  for (auto* data : {&q, &k, &v}) {
    for (bf16& e : *data)
      e = to_bf16(static_cast<float>((x = x * 1664525 + 1013904223) >> 8) / (1 << 23) - 1);
  }
  QTensor qs;
  qs.q = q.data();
  qs.length = 1;
  qs.kv_end = 1;
  KvTensor whole;
  whole.k = k.data();
  whole.v = v.data();
  whole.k_stride = whole.v_stride = {0, 64, 64};
  whole.length = keys;
  const ReferenceRow want = attention_reference(desc, {{&qs, 1}, {&whole, 1}}, 0, 0, 0, 0);
  EXPECT_GT(want.l, 1);

  KvTensor first = whole, second = whole;
  first.length = 7;
  second.length = keys - 7;
  second.k = k.data() + 7 * 64;
  second.v = v.data() + 7 * 64;
  const ReferenceRow part = attention_reference(desc, {{&qs, 1}, {&first, 1}}, 0, 0, 0, 0);
  std::vector<float> state(64);
  for (int i = 0; i < 64; ++i) state[i] = static_cast<float>(part.o[i] * part.l);
  float l = static_cast<float>(part.l);
  float m = static_cast<float>(part.m);
  qs.state_o = state.data();
  qs.state_l = &l;
  qs.state_m = &m;
  desc.load_state = true;
  const ReferenceRow merged = attention_reference(desc, {{&qs, 1}, {&second, 1}}, 0, 0, 0, 0);
  EXPECT_NEAR(merged.m + std::log(merged.l), want.m + std::log(want.l), 1e-6);
  for (int i = 0; i < 64; ++i) EXPECT_NEAR(merged.o[i], want.o[i], 1e-6);
}

}  // namespace
}  // namespace braid::cuda
