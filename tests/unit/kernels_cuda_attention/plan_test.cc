#include "braid/kernels/cuda/attention/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>

#include "unit/kernels_cuda_attention/attention_call.h"

namespace braid::cuda {
namespace {

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

// However the segments lie in memory: which stages a tile waits for is never a question.
TEST(AttentionPlan, TilesOfKeysEndWithTheirStage) {
  Call call({64}, {64, 64, 64, 64});
  for (bool apart : {false, true}) {
    for (int j = 0; j < 4; ++j) {
      call.kv[j].k_stride = call.kv[j].v_stride = {64 * 256, 64, 64};
      call.kv[j].k = call.kv[j].v = call.data + (apart ? 0 : j * 64 * 64 * 2);
      call.kv[j].stage = j / 2;
    }
    const AttentionPlan plan = make_plan(make_desc(64, 1, 1), call.params(),
                                         {AttentionKernel::kHopper, 128, 128, 1, 1, 1, 1});
    ASSERT_EQ(plan.q[0].kv_end, 2);
    for (int r = 0; r < 2; ++r) {
      EXPECT_EQ(plan.kv_run_length[r], 128);
      EXPECT_EQ(plan.kv_stage[r], r);
    }
  }
}

TEST(AttentionPlan, QSegmentsThatAreOnePieceBecomeOne) {
  alignas(16) static char data[3 * 100 * 256];
  Call call({100, 100, 100}, {300});
  for (int i = 0; i < 3; ++i) {
    QTensor& q = call.q[i];
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

}  // namespace
}  // namespace braid::cuda
