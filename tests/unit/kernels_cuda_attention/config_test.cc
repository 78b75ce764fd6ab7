#include "braid/kernels/cuda/attention/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <tuple>

#include "braid/base/error.h"
#include "braid/kernels/cuda/attention/plan.h"
#include "braid/kernels/cuda/attention/reference.h"
#include "braid/tensor/half.h"

namespace braid::cuda {
namespace {

using testing::HasSubstr;

AttentionDesc make_desc(int d, int hq, int hkv) {
  AttentionDesc desc;
  desc.num_q_heads = hq;
  desc.num_kv_heads = hkv;
  desc.head_dim_qk = desc.head_dim_v = d;
  desc.scale = 1.f / std::sqrt(static_cast<float>(d));
  return desc;
}

struct Call {
  alignas(16) char data[16];
  std::vector<QSegment> q;
  std::vector<KvSegment> kv;

  Call(std::vector<int> q_lengths, std::vector<int> kv_lengths) {
    for (int n : q_lengths) {
      QSegment s;
      s.q = s.o = s.state_o = data;
      s.state_l = s.state_m = reinterpret_cast<float*>(data);
      s.length = n;
      s.kv_end = static_cast<int>(kv_lengths.size());
      q.push_back(s);
    }
    int offset = 0;
    for (int n : kv_lengths) {
      KvSegment s;
      s.k = s.v = data;
      s.length = n;
      s.offset = offset;
      offset += n;
      kv.push_back(s);
    }
  }
  AttentionParams params() const { return {q, kv}; }
};

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
      EXPECT_FALSE(c.staged) << to_string(c);  // nothing is carried
    }
    desc.finalize = false;
    const AttentionConfig c = choose(desc, call.params(), {90, 132});
    EXPECT_TRUE(c.staged) << to_string(c);
    EXPECT_NE(to_string(c).find(" staged"), std::string::npos);
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
  EXPECT_THAT(message([](AttentionDesc&, Call& c) { c.q.resize(13, c.q[0]); }),
              HasSubstr("13 Q segments"));
}

TEST(AttentionPlan, ItemsCoverEveryRowOnce) {
  for (bool causal : {false, true}) {
    for (int pack : {1, 3}) {
      for (int first_offset :
           {0, 40}) {  // under a mask, segments 0 and 2 follow one another or not
        AttentionDesc desc = make_desc(128, 9, 3);
        desc.batch = 2;
        if (causal) desc.window_right = 0;
        Call call({1000, 0, 130, 7}, {900, 237});
        call.q[0].offset = first_offset;
        call.q[2].offset = 1000;
        call.q[3].kv_end = 1;
        const AttentionPlan plan =
            make_plan(desc, call.params(), {AttentionKernel::kHopper, 128, 128, 1, 1, 1, pack});
        EXPECT_EQ(plan.num_runs, causal && first_offset != 0 ? 3 : 2);
        std::set<std::tuple<int, int, int, int>> seen;
        int previous_tiles = 1 << 30;
        int run = -1;
        for (int i = 0; i < plan.num_items; ++i) {
          const WorkItem item = decode_item(plan, i);
          EXPECT_TRUE(item.any);
          for (int u = 0; u < plan.tile_units; ++u) {
            const ItemUnit unit = locate(plan, item.run, item.b, item.unit + u);
            for (int t = unit.token; t < std::min(unit.token + plan.unit_tokens, unit.length);
                 ++t) {
              EXPECT_TRUE(seen.insert({plan.source[unit.segment], item.b, item.head, t}).second);
              if (causal) {
                EXPECT_LE(item.first, unit.position + t);
                EXPECT_GE(item.last, unit.position + t);
              }
            }
          }
          const int tiles = count_key_tiles(plan, item, 128);
          // All heads fit one pass: a run's heaviest tiles come first.
          if (item.run == run) {
            EXPECT_LE(tiles, previous_tiles);
          }
          run = item.run;
          previous_tiles = tiles;
        }
        EXPECT_EQ(seen.size(), static_cast<size_t>(1137 * 9 / pack * 2));
      }
    }
  }
}

// Keys of two heads fit the L2 cache together: passes of two heads and of the one that is left.
TEST(AttentionPlan, PassesThatAreNotWholeCoverEveryItem) {
  for (int batch : {1, 2}) {
    AttentionDesc desc = make_desc(64, 6, 3);
    desc.batch = batch;
    desc.window_right = 0;
    Call call({32768}, {40000});
    const AttentionPlan plan =
        make_plan(desc, call.params(), {AttentionKernel::kHopper, 128, 128, 1, 1, 1, 1});
    ASSERT_EQ(plan.heads_per_pass, 4);
    std::set<std::tuple<int, int, int>> seen;
    for (int i = 0; i < plan.num_items; ++i) {
      const WorkItem item = decode_item(plan, i);
      EXPECT_TRUE(item.any);
      EXPECT_TRUE(seen.insert({item.b, item.head, item.unit}).second);
      EXPECT_LT(item.b, batch);
      EXPECT_LT(item.head, 6);
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(256 * 6 * batch));
  }
}

// Half a tile is left of each segment: a tile takes it up together with the next one's first half.
TEST(AttentionPlan, TilesGoOnIntoTheNextSegment) {
  Call call({64, 64, 64, 64}, {500});
  const AttentionPlan plan = make_plan(make_desc(64, 1, 1), call.params(),
                                       {AttentionKernel::kHopper, 128, 128, 1, 1, 1, 1});
  EXPECT_EQ(plan.num_items, 2);
  call.q[1].kv_end = 0;  // other keys: tiles of its own
  EXPECT_EQ(make_plan(make_desc(64, 1, 1), call.params(),
                      {AttentionKernel::kHopper, 128, 128, 1, 1, 1, 1})
                .num_items,
            3);
}

TEST(AttentionPlan, KvSegmentsThatAreOnePieceBecomeOne) {
  alignas(16) static char data[3 * 100 * 128];
  Call call({64, 64}, {100, 100, 100});
  for (int j = 0; j < 3; ++j) {
    call.kv[j].k = call.kv[j].v = data + j * 100 * 128;
    call.kv[j].k_stride = call.kv[j].v_stride = {0, 64, 64};
  }
  const auto plan = [&] {
    return make_plan(make_desc(64, 1, 1), call.params(),
                     {AttentionKernel::kHopper, 128, 128, 1, 1, 1, 1});
  };
  EXPECT_EQ(plan().q[0].kv_end, 1);
  EXPECT_EQ(plan().kv[0].length, 300);
  call.q[1].kv_begin = 2;  // the second sees the last segment alone
  EXPECT_EQ(plan().kv[0].length, 200);
  EXPECT_EQ(plan().kv[1].length, 100);
  EXPECT_EQ(plan().q[0].kv_end, 2);
  EXPECT_EQ(plan().q[1].kv_begin, 1);
  call.kv[1].offset += 1;  // a gap in position
  EXPECT_EQ(plan().q[0].kv_end, 3);
}

TEST(AttentionPlan, KvSegmentsShareTilesWhereTheyMeetInWholePieces) {
  Call call({64, 64}, {48, 8, 100, 40, 0, 56, 30});
  alignas(16) static char data[7][16];
  for (int j = 0; j < 7; ++j) call.kv[j].k = call.kv[j].v = data[j];  // apart in memory
  const AttentionDesc desc = make_desc(64, 1, 1);
  const auto runs = [&](AttentionDesc d, AttentionKernel kernel = AttentionKernel::kHopper) {
    const AttentionPlan plan = make_plan(d, call.params(), {kernel, 128, 128, 1, 1, 1, 1});
    std::vector<int> lengths;
    int keys = 0;
    for (int r = 0; r < plan.q[0].kv_end; ++r) {
      lengths.push_back(plan.kv_run_length[r]);
      for (int j = plan.kv_run_begin[r]; j < plan.kv_run_begin[r + 1]; ++j) {
        EXPECT_EQ(plan.kv_first[j], j == plan.kv_run_begin[r] ? 0 : keys);
        keys = plan.kv_first[j] + plan.kv[j].length;
      }
    }
    return lengths;
  };
  EXPECT_THAT(runs(desc), testing::ElementsAre(156, 126));  // 100 is no multiple of 8
  EXPECT_THAT(runs(desc, AttentionKernel::kGeneric),
              testing::ElementsAre(48, 8, 100, 40, 0, 56, 30));
  AttentionDesc causal = desc;
  causal.window_right = 0;
  EXPECT_THAT(runs(causal), testing::ElementsAre(156, 126));
  call.kv[1].offset += 1;  // under a mask, positions must go on
  EXPECT_THAT(runs(causal), testing::ElementsAre(48, 8, 100, 126));
  EXPECT_THAT(runs(desc), testing::ElementsAre(156, 126));
  call.q[1].kv_begin = 1;  // one query segment begins where others go on
  EXPECT_THAT(runs(desc), testing::ElementsAre(48, 108, 126));
  int32_t lengths = 0;
  call.kv[5].lengths = &lengths;
  EXPECT_THAT(runs(desc), testing::ElementsAre(48, 108, 40, 56, 30));
}

TEST(AttentionPlan, QSegmentsThatAreOnePieceBecomeOne) {
  alignas(16) static char data[3 * 100 * 256];
  Call call({100, 100, 100}, {300});
  for (int i = 0; i < 3; ++i) {
    QSegment& q = call.q[i];
    q.q = q.o = q.state_o = data + i * 100 * 128;
    q.state_l = q.state_m = reinterpret_cast<float*>(data) + i * 100;
    q.q_stride = q.o_stride = {0, 64, 64};
    q.state_stride = {0, 64, 64};
    q.row_stride = {0, 1, 300};
    q.offset = i * 100;
  }
  const auto plan = [&](AttentionDesc desc) {
    return make_plan(desc, call.params(), {AttentionKernel::kHopper, 64, 64, 1, 1, 1, 1});
  };
  AttentionDesc desc = make_desc(64, 1, 1);
  EXPECT_EQ(plan(desc).num_q, 1);
  EXPECT_EQ(plan(desc).q[0].length, 300);
  EXPECT_EQ(plan(desc).num_items, 5);  // and not 6, two for each
  desc.finalize = false;  // what is carried has twice the bytes, and so does not follow
  EXPECT_EQ(plan(desc).num_q, 3);
  desc.state_dtype = DType::bf16;
  EXPECT_EQ(plan(desc).num_q, 1);
  call.q[2].offset += 1;
  EXPECT_EQ(plan(desc).num_q, 2);
  call.q[1].lse = reinterpret_cast<float*>(data);  // one has it, one has not
  desc.finalize = true;
  EXPECT_EQ(plan(desc).num_q, 3);
}

TEST(AttentionPlan, KeyTilesHoldExactlyTheVisibleKeys) {
  for (int left : {-1, 0, 50}) {
    for (int right : {-1, 0, 70}) {
      AttentionDesc desc = make_desc(64, 1, 1);
      desc.window_left = left;
      desc.window_right = right;
      Call call({500}, {300, 0, 333});
      call.q[0].offset = 90;
      const AttentionPlan plan =
          make_plan(desc, call.params(), {AttentionKernel::kHopper, 128, 64, 1, 1, 1, 1});
      EXPECT_EQ(plan.q[0].kv_end, 2);  // the empty segment begins a run that the third goes on
      for (int i = 0; i < plan.num_items; ++i) {
        const WorkItem item = decode_item(plan, i);
        for (int run = 0; run < 2; ++run) {
          const KeyTiles tiles = key_tiles(plan, item, run, 64);
          const int j = 2 * run;
          for (int tile = 0; tile * 64 < plan.kv[j].length; ++tile) {
            bool any = false;
            bool all = true;
            for (int t = item.unit * 64; t < std::min(item.unit * 64 + 128, 500); ++t) {
              for (int k = tile * 64; k < tile * 64 + 64; ++k) {
                const int distance = plan.kv[j].offset + k - (90 + t);
                const bool sees = k < plan.kv[j].length && (right < 0 || distance <= right) &&
                                  (left < 0 || -distance <= left);
                any |= sees;
                all &= sees;
              }
            }
            EXPECT_EQ(any, tile >= tiles.begin && tile < tiles.end)
                << i << " " << run << " " << tile;
            if (any) {
              EXPECT_EQ(!all, needs_mask(plan, item, plan.kv[j].offset + tile * 64,
                                         tiles.length - tile * 64, 64));
            }
          }
        }
      }
    }
  }
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
  QSegment qs;
  qs.q = q.data();
  qs.length = 1;
  qs.kv_end = 1;
  KvSegment whole;
  whole.k = k.data();
  whole.v = v.data();
  whole.k_stride = whole.v_stride = {0, 64, 64};
  whole.length = keys;
  const ReferenceRow want = attention_reference(desc, {{&qs, 1}, {&whole, 1}}, 0, 0, 0, 0);
  EXPECT_GT(want.l, 1);

  KvSegment first = whole, second = whole;
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
