// Every family over one to eight ranks: prompts whose lengths do not divide, behind none, one and
// many cached tokens, in several steps, give what one rank gives in one step; then so do tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>

#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"
#include "golden/support/sequences.h"

namespace braid::golden {
namespace {

constexpr double kTolerance = 1e-4;  // as logits_test.cc has it, f32

constexpr CacheShape kCache = {
    .pages = kPages, .page_size = kPageSize, .pages_per_sequence = kPages, .kv_dtype = DType::f32};

// A random model with other keys in its configuration.
struct Variant {
  const char* name;
  const char* model;
  const char* config;
  int64_t context = 0;  // that the model is stretched to, if any
};

const Variant kVariants[] = {
    {"llama_1m", "llama2_mha",
     R"({"rope_theta": 3580165449.0, "max_position_embeddings": 1048576})"},
    {"internlm2_dynamic", "internlm2", R"({"rope_scaling": {"type": "dynamic", "factor": 2.5}})",
     1024},
    {"qwen2_dual_chunk", "qwen2_untied",
     R"({"max_position_embeddings": 24, "dual_chunk_attention_config":
         {"chunk_size": 24, "local_size": 5, "original_max_position_embeddings": 24}})",
     1024},
};

// How ranks share the work.
struct Sharing {
  std::string name;
  int ranks;
  std::optional<SequenceParallel> sp;  // none: weights are divided
  int machines = 1;
};

class RankCounts : public testing::TestWithParam<std::string> {
 protected:
  RankCounts() : folder_(GetParam() + "_rank_counts") {
    const auto variant = std::ranges::find(kVariants, GetParam(), &Variant::name);
    const bool varies = variant != std::end(kVariants);
    write_hf_folder(load_random_model(varies ? variant->model : GetParam()), folder_.path());
    if (varies) {
      const std::filesystem::path file = folder_.path() / "config.json";
      nlohmann::json config = nlohmann::json::parse(std::ifstream(file));
      config.update(nlohmann::json::parse(variant->config));
      std::ofstream(file) << config;
    }
    model_.emplace(folder_.path().string());
    if (varies && variant->context > 0) model_->stretch(variant->context);
  }

  // A ring, and another way to share the work over as many ranks. Latent attention divides weights
  // alone.
  std::vector<Sharing> sharings(int P, std::mt19937& random) const {
    const int64_t heads = model_->config().Hq;
    std::vector<Sharing> others;
    if (P <= heads) {
      others.push_back({"ulysses", P, SequenceParallel{SpMode::ulysses, {}}});
      others.push_back({"weights", P, {}});
    }
    for (int machines = 2; machines <= P; ++machines) {
      const int devices = P / machines;
      if (P % machines != 0) continue;
      if (machines <= heads) {
        others.push_back({fmt::format("torus on {}x{}", machines, devices), P,
                          SequenceParallel{SpMode::torus, {.torus = machines, .ulysses = 1}},
                          machines});
      }
      if (devices > heads) continue;
      for (SpMode mode : {SpMode::usp, SpMode::tas}) {
        others.push_back({fmt::format("{} on {}x{}", to_string(mode), machines, devices), P,
                          SequenceParallel{mode, {.ulysses = devices}}, machines});
      }
    }
    std::vector<Sharing> all;
    if (model_->config().latent) {
      std::erase_if(others, [](const Sharing& s) { return s.sp.has_value(); });
    } else {
      all.push_back({"ring", P, SequenceParallel{SpMode::ring, {}}});
    }
    if (!others.empty()) all.push_back(others[random() % others.size()]);
    return all;
  }

  const Folder folder_;
  std::optional<Model> model_;
};

// All rows' logits after `tokens` at the sequence's end.
Rows feed(Runner& runner, const std::vector<int32_t>& pages, std::span<const int32_t> tokens,
          int64_t cached) {
  Batch batch(kPageSize);
  batch.add(tokens, cached, pages, std::ssize(tokens));
  Rows rows;
  append_rows(runner.run(batch), rows);
  return rows;
}

// The best token, and how far its logit is above the second.
std::pair<int32_t, double> best_of(const std::vector<float>& logits) {
  std::vector<float> two(2);
  std::ranges::partial_sort_copy(logits, two, std::greater());
  const auto best = std::ranges::max_element(logits) - logits.begin();
  return {static_cast<int32_t>(best), static_cast<double>(two[0]) - two[1]};
}

bool divides(const Runner& ranks, int P) {
  return std::ranges::any_of(ranks.explain(), [&](const std::string& line) {
    return line.find(fmt::format("tokens over {} ranks", P)) < line.size();
  });
}

TEST_P(RankCounts, StepsAndTokensAreThoseOfOneRank) {
  const unsigned seed = std::random_device{}();
  std::mt19937 random(seed);
  SCOPED_TRACE(fmt::format("seed {}", seed));
  const std::vector<int32_t> pages = {7, 33, 2, 12, 40, 41, 5};
  Runner one(*model_, {.cache = kCache});
  int compared = 0;
  for (int P = 1; P <= 8; ++P) {
    // Odd pieces, each with a token for each rank at least.
    const auto piece = [&] { return P + 1 + static_cast<int64_t>(random() % (P + 4)); };
    const auto uneven = [&](int64_t n) { return P > 1 && n % P == 0 ? n + 1 : n; };
    const int64_t first = uneven(piece()), second = uneven(piece());
    const int64_t many = 4 * P + 1;
    for (const Sharing& s : sharings(P, random)) {
      SCOPED_TRACE(fmt::format("{} ranks, {}, pieces of {}, {}", P, s.name, first, second));
      Runner ranks(*model_, {.tp = P,
                             .sp = s.sp,
                             .cache = kCache,
                             .schedule = P % 2 == 0 ? "sequential" : "overlap",
                             .links = {.machines = s.machines}});
      for (const std::vector<int64_t>& pieces :
           {std::vector<int64_t>{first, second}, {1, first, many, second}}) {
        std::vector<int32_t> prompt;
        Rows got;
        for (const int64_t n : pieces) {
          const std::vector<int32_t> tokens = ids(n, static_cast<int32_t>(n));
          const Rows rows = feed(ranks, pages, tokens, std::ssize(prompt));
          got.insert(got.end(), rows.begin(), rows.end());
          prompt.insert(prompt.end(), tokens.begin(), tokens.end());
        }
        Rows want = feed(one, pages, prompt, 0);
        ASSERT_EQ(got.size(), want.size());
        for (size_t r = 0; r < got.size(); ++r) {
          ASSERT_LT(relative_distance(got[r], want[r]), kTolerance) << "row " << r;
        }
        for (int i = 0; i < 4; ++i) {
          const auto [token, gap] = best_of(want.back());
          const double noise = 2 * kTolerance * std::abs(*std::ranges::max_element(want.back()));
          if (gap > noise) {
            ASSERT_EQ(best_of(got.back()).first, token) << "token " << i;
            ++compared;
          }
          const auto cached = std::ssize(prompt);
          prompt.push_back(token);
          got = feed(ranks, pages, {&token, 1}, cached);
          want = feed(one, pages, {&token, 1}, cached);
        }
      }
      if (s.sp && P > 1) {
        EXPECT_TRUE(divides(ranks, P));
      }
    }
  }
  EXPECT_GT(compared, model_->config().latent ? 10 : 40);
}

std::vector<std::string> families() {
  std::vector<std::string> names = random_model_names();
  for (const Variant& variant : kVariants) names.emplace_back(variant.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, RankCounts, testing::ValuesIn(families()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace braid::golden
