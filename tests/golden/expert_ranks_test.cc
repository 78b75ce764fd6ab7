// Mixtures over ranks: rounds of the exchange, and the counted rows of experts.
#include <gtest/gtest.h>

#include <numeric>

#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"

namespace braid::golden {
namespace {

// Every division of ranks has the logits, to the last bit where rows come in rounds, and counts the
// rows that a rank alone has for each expert.
TEST(ExpertRanks, RoundsHaveTheBitsOfOneAndEveryDivisionCountsTheSameRows) {
  constexpr int64_t kOneRow = 1;  // bytes: less than a row, so a row in each round
  for (const char* name : {"mixtral", "deepseek_v3"}) {
    const Folder folder("expert_ranks");
    write_hf_folder(load_random_model(name), folder.path());
    const Model model(folder.path().string());
    std::vector<int32_t> prompt(37), page = {0};
    for (size_t t = 0; t < prompt.size(); ++t) prompt[t] = static_cast<int32_t>(1 + t * 5 % 50);
    std::vector<ExpertLoad> loads;
    const auto logits = [&](int ranks, int ep, int dp, const char* schedule, int64_t memory) {
      SCOPED_TRACE(fmt::format("{} on {} ranks, ep {}, dp {}, {}, {} bytes", name, ranks, ep, dp,
                               schedule, memory));
      Runner runner(
          model,
          {.tp = ranks,
           .ep = ep,
           .dp = dp,
           .expert_memory = memory,
           .cache = {.pages = 2, .page_size = 64, .pages_per_sequence = 1, .kv_dtype = DType::f32},
           .schedule = schedule,
           .count_experts = true});
      Batch batch(64);
      batch.add(prompt, 0, page, std::ssize(prompt));
      Rows rows;
      append_rows(runner.run(batch), rows);
      batch.clear();
      batch.add(std::span(prompt).first(1), std::ssize(prompt), page, 1);
      append_rows(runner.run(batch), rows);
      const auto counted = runner.expert_loads();
      const auto same = [](const ExpertLoad& a, const ExpertLoad& b) {
        return a.layer == b.layer && a.rows == b.rows;
      };
      if (loads.empty()) loads.assign(counted.begin(), counted.end());
      EXPECT_TRUE(std::ranges::equal(counted, loads, same));
      return rows;
    };
    logits(1, 1, 1, "sequential", 0);
    ASSERT_FALSE(loads.empty());
    const auto& experts = *model.config().experts;
    for (const ExpertLoad& load : loads) {
      EXPECT_EQ(std::ssize(load.rows), experts.E);
      EXPECT_EQ(std::accumulate(load.rows.begin(), load.rows.end(), int64_t{0}),
                (std::ssize(prompt) + 1) * experts.route.top_k);
    }
    logits(2, 1, 1, "sequential", 0);
    logits(3, 2, 1, "sequential", 0);
    logits(2, 1, 2, "sequential", 0);
    for (const auto& [ranks, ep, dp, schedule] : {std::tuple{2, 2, 1, "sbo"},
                                                  {2, 2, 1, "dbo"},
                                                  {3, 3, 1, "comet"},
                                                  {3, 2, 1, "sbo"},
                                                  {2, 2, 2, "sequential"},
                                                  {4, 2, 2, "comet"}}) {
      EXPECT_EQ(logits(ranks, ep, dp, schedule, kOneRow), logits(ranks, ep, dp, schedule, 0));
    }
  }
}

}  // namespace
}  // namespace braid::golden
