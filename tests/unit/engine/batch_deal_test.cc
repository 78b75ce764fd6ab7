// Sequences dealt to groups of ranks: who computes what, and the order of the logits' rows.
#include "braid/engine/batch_deal.h"

#include <gtest/gtest.h>

#include "braid/base/error.h"

namespace braid {
namespace {

constexpr int64_t kPage = 4;

// Sequence s has the pages 8 s .. 8 s + 7.
void add(Batch& batch, int s, int64_t tokens, int64_t cached, int64_t scored, int group = -1) {
  std::vector<int32_t> pages;
  for (int32_t p = 0; p < 8; ++p) pages.push_back((s * 8) + p);
  batch.add(std::vector<int32_t>(static_cast<size_t>(tokens), s), cached, pages, scored, group);
}

std::vector<int64_t> tokens_of(const BatchDeal& deal) {
  std::vector<int64_t> tokens;
  for (const Work& work : deal.works()) tokens.push_back(work.extents.token);
  return tokens;
}

TEST(BatchDeal, EachSequenceGoesToTheGroupWithLeastWorkAndStays) {
  BatchDeal deal(3, 1, 64, kPage);
  Batch batch(kPage);
  add(batch, 0, 9, 0, 1);
  add(batch, 1, 5, 0, 1);
  add(batch, 2, 2, 0, 1);
  add(batch, 3, 2, 0, 1);  // beside sequence 2
  deal.assign(batch);
  deal.cut({{0, 9}}, "test");
  EXPECT_EQ(tokens_of(deal), (std::vector<int64_t>{9, 5, 4}));
  EXPECT_TRUE(deal.row_order().empty());
  for (const Work& work : deal.works()) EXPECT_EQ(work.extents.row, 4);
  const ContextKey key = deal.key(0);
  EXPECT_EQ(key.micro_batches[0].capacity.token, 16);
  EXPECT_EQ(key.micro_batches[0].capacity.row, 4);
  EXPECT_FALSE(key.every_row);

  batch.clear();
  add(batch, 3, 1, 2, 1);
  add(batch, 0, 1, 9, 1);
  deal.assign(batch);
  deal.cut({{0, 1}}, "test");
  EXPECT_EQ(tokens_of(deal), (std::vector<int64_t>{1, 0, 1})) << "group 1 has no token";
}

TEST(BatchDeal, ANamedGroupCounts) {
  BatchDeal deal(2, 2, 64, kPage);
  Batch batch(kPage);
  add(batch, 0, 3, 0, 1, 1);
  add(batch, 1, 4, 0, 1, 1);
  deal.assign(batch);
  deal.cut({{0, 7}}, "test");
  EXPECT_EQ(tokens_of(deal), (std::vector<int64_t>{0, 7}));
  // Keys of one group are not another's.
  batch.clear();
  add(batch, 1, 1, 4, 1, 0);
  EXPECT_THROW(deal.assign(batch), std::logic_error);
}

// Groups divide in the proportions of the busiest, and rows come by micro-batch.
TEST(BatchDeal, MicroBatchesOrderTheRows) {
  BatchDeal deal(2, 1, 64, kPage);
  Batch batch(kPage);
  add(batch, 0, 8, 0, 8, 0);
  add(batch, 1, 3, 0, 3, 1);
  deal.assign(batch);
  deal.cut({{0, 4}, {4, 8}}, "test");
  EXPECT_EQ(tokens_of(deal), (std::vector<int64_t>{4, 4, 1, 2}));
  EXPECT_EQ(deal.works()[0].extents.row, 5);
  EXPECT_EQ(deal.works()[1].extents.row, 6);
  const auto order = deal.row_order();
  EXPECT_EQ(std::vector<int32_t>(order.begin(), order.end()),
            (std::vector<int32_t>{0, 1, 2, 3, 8, 4, 5, 6, 7, 9, 10}));
  EXPECT_TRUE(deal.key(0).micro_batches[1].continues);
}

TEST(BatchDeal, RefusesASplitThatDoesNotCoverTheBusiest) {
  BatchDeal deal(2, 1, 64, kPage);
  Batch batch(kPage);
  add(batch, 0, 8, 0, 1);
  deal.assign(batch);
  EXPECT_THROW(deal.cut({{0, 4}}, "test"), Error);
}

}  // namespace
}  // namespace braid
