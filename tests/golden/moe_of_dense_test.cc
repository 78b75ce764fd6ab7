// A dense model as a mixture of the same function: each expert is the dense feed-forward block with
// its hidden units in another order, so whatever a router chooses, the logits are the dense
// model's.
#include <gtest/gtest.h>

#include <fstream>
#include <numeric>
#include <random>

#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"

namespace braid::golden {
namespace {

using nlohmann::json;

constexpr const char* kDense = "llama2_mha";
constexpr int kExperts = 8;

// The order of an expert's hidden units.
std::vector<size_t> units_of(const std::string& layer, int expert, int64_t F) {
  std::vector<size_t> order(static_cast<size_t>(F));
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 rng(std::hash<std::string>()(layer) + static_cast<uint64_t>(expert));
  std::ranges::shuffle(order, rng);
  return order;
}

// Rows of gate (w1) and up (w3) or columns of down (w2) in that order.
void permute(const std::vector<float>& from, std::span<float> to, const std::vector<size_t>& order,
             bool columns) {
  const size_t F = order.size(), C = from.size() / F;
  for (size_t unit = 0; unit < F; ++unit) {
    for (size_t c = 0; c < C; ++c) {
      if (columns) {
        to[c * F + unit] = from[c * F + order[unit]];
      } else {
        to[unit * C + c] = from[order[unit] * C + c];
      }
    }
  }
}

// Writes the mixture. `broken`: each expert has the down of its neighbour.
void write_mixture(const std::filesystem::path& folder, bool broken) {
  const RandomModel dense = load_random_model(kDense);
  RandomModel model = dense;
  model.tensors.clear();
  std::map<std::string, std::pair<TensorSpec, int>> experts;  // the dense tensor, and the expert
  for (const TensorSpec& spec : dense.tensors) {
    const size_t at = spec.name.find(".mlp.");
    if (at == std::string::npos) {
      model.tensors.push_back(spec);
      continue;
    }
    const std::string stem = spec.name.substr(0, at) + ".block_sparse_moe.";
    const std::string part = spec.name.substr(at + 5, 4);
    const char* const own = part == "gate" ? "w1" : part == "down" ? "w2" : "w3";
    if (part == "gate") {
      model.tensors.push_back({stem + "gate.weight", {kExperts, spec.shape[1]}, 0, 0.5});
    }
    for (int e = 0; e < kExperts; ++e) {
      const std::string name = fmt::format("{}experts.{}.{}.weight", stem, e, own);
      model.tensors.push_back({name, spec.shape, spec.base, spec.scale});
      experts[name] = {spec, e};
    }
  }
  model.edit = [&](const TensorSpec& spec, std::span<float> values) {
    const auto own = experts.find(spec.name);
    if (own == experts.end()) return;
    const auto& [from, expert] = own->second;
    const bool down = from.name.find(".down_proj.") != std::string::npos;
    const int64_t F = from.shape[down ? 1 : 0];
    const std::string layer = from.name.substr(0, from.name.find(".mlp."));
    permute(dense.values(from), values,
            units_of(layer, (expert + (broken && down ? 1 : 0)) % kExperts, F), down);
  };
  write_hf_folder(model, folder);
  json config = json::parse(std::ifstream(folder / "config.json"));
  config["architectures"] = {"MixtralForCausalLM"};
  config["model_type"] = "mixtral";
  config["num_local_experts"] = kExperts;
  config["num_experts_per_tok"] = 2;
  std::ofstream(folder / "config.json") << config.dump(1);
}

// The worst distance of the last rows of all prompts from those of the dense model in PyTorch.
double distance(const Model& model, int ranks, int ep, int dp) {
  Runner runner(model, {.tp = ranks,
                        .ep = ep,
                        .dp = dp,
                        .cache = {.pages = kPages,
                                  .page_size = kPageSize,
                                  .pages_per_sequence = kPages,
                                  .kv_dtype = DType::f32}});
  double worst = 0;
  for (const Case& c : load_golden(kDense).cases) {
    worst = std::max(worst, relative_distance(prompt_logits(runner, c.prompt, 512).back(), c.last));
  }
  return worst;
}

TEST(MoeOfDense, HasTheLogitsOfTheDenseModel) {
  const Folder folder("moe_of_dense");
  write_mixture(folder.path(), false);
  const Model model(folder.path().string());
  ASSERT_TRUE(model.config().experts);
  for (const auto& [ranks, ep, dp] :
       {std::tuple{1, 1, 1}, {2, 1, 1}, {2, 2, 1}, {4, 2, 1}, {2, 2, 2}, {3, 2, 3}, {4, 4, 2}}) {
    EXPECT_LT(distance(model, ranks, ep, dp), 1e-4)
        << ranks << " ranks, ep " << ep << ", dp " << dp;
  }
}

// The check would tell a gate of one expert with the down of another.
TEST(MoeOfDense, IsGarbageWithTheDownOfANeighbour) {
  const Folder folder("moe_of_dense_broken");
  write_mixture(folder.path(), true);
  const Model model(folder.path().string());
  EXPECT_GT(distance(model, 1, 1, 1), 0.1);
}

}  // namespace
}  // namespace braid::golden
