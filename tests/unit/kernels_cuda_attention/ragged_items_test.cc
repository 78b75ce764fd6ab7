#include "braid/kernels/cuda/attention/ragged_items.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <vector>

namespace braid::cuda {
namespace {

// Sequences of lengths that only the device knows: their tiles, and nothing of what they leave of
// the capacity, whoever asks for which.
TEST(RaggedItems, AreThoseOfTheSequencesThatThereAre) {
  const std::vector<int32_t> starts = {0, 300, 300, 301, 1024, 1024, 1024};
  alignas(16) static char data[16];
  for (int pack : {1, 3}) {
    for (int keys : {1000, 1 << 20}) {  // many: fewer heads in a pass
      AttentionDesc desc;
      desc.batch = static_cast<int>(starts.size()) - 1;
      desc.num_q_heads = 9;
      desc.num_kv_heads = 3;
      desc.head_dim_qk = desc.head_dim_v = 128;
      desc.scale = 0.1f;
      desc.window_right = 0;
      QTensor q;
      q.q = q.o = data;
      q.length = 1100;
      q.starts = starts.data();
      q.rows = 1100;
      q.kv_end = 1;
      KvTensor kv;
      kv.k = kv.v = data;
      kv.length = keys;
      const AttentionParams params{{&q, 1}, {&kv, 1}};
      AttentionConfig config;
      config.kernel = AttentionKernel::kHopper;
      config.block_m = config.block_n = 128;
      config.pack = pack;
      const AttentionPlan plan = make_plan(desc, params, config);
      ASSERT_TRUE(is_ragged(plan));
      for (int ctas : {1, 3}) {
        std::set<std::tuple<int, int, int>> seen;  // sequence, head, token
        int items = 0;
        for (int cta = 0; cta < ctas; ++cta) {
          ItemWalk walk;
          for (int i = cta;; i += ctas) {
            const WorkItem item = ragged_item(plan, i, walk);
            if (!item.any) break;
            ++items;
            for (int u = 0; u < plan.tile_units; ++u) {
              const ItemUnit unit = locate(plan, item.run, item.b, item.unit + u);
              for (int t = unit.token; t < std::min(unit.token + plan.unit_tokens, unit.length);
                   ++t) {
                EXPECT_TRUE(seen.insert({item.b, item.head, unit.row + t}).second);
              }
            }
          }
        }
        EXPECT_EQ(seen.size(), static_cast<size_t>(1024 * 9 / pack));
        const int tile = plan.unit_tokens * plan.tile_units;
        const int tiles = (300 + tile - 1) / tile + 1 + (723 + tile - 1) / tile;
        EXPECT_EQ(items, tiles * plan.num_head_items);
        EXPECT_LT(items, plan.num_items);
      }
    }
  }
}

}  // namespace
}  // namespace braid::cuda
