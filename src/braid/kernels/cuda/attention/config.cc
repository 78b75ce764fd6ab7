#include "braid/kernels/cuda/attention/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/attention/plan.h"
#include "braid/kernels/cuda/attention/variants.h"

namespace braid::cuda {
namespace {

bool power_of_two(int x) {
  return (x & (x - 1)) == 0;
}

bool hopper_takes(const AttentionDesc& desc, const AttentionParams& params,
                  const HopperVariant& v) {
  if (v.head_dim_qk != desc.head_dim_qk || v.head_dim_v != desc.head_dim_v) return false;
  if (carries_state(v.form) != carries_state(desc)) return false;
  if (!takes_stages_of(v.form, params)) return false;
  if (v.cluster > 1) {
    // Shared tiles are whole boxes with ends known to the copy engine. Clusters deal items out in
    // turn, which suits tiles of equal weight.
    if (desc.window_left != kUnlimited || desc.window_right != kUnlimited) return false;
    if (desc.page_size != 0) return false;
    for (const KvTensor& kv : params.kv) {
      if (kv.lengths != nullptr) return false;
    }
  }
  if (desc.page_size == 0) return true;
  // A tile is a whole number of boxes, and a box lies in a single page.
  const int box = std::min(desc.page_size, v.block_n);
  return power_of_two(desc.page_size) && v.block_n % box == 0 && desc.page_size % box == 0;
}

// Rates for an item's time; only ratios matter.
struct Speed {
  double tflops;   // on 132 SMs, each full of CTAs
  double alone;    // share of an SM's rate for a CTA without a neighbour
  double item_us;  // start and end of an item
};

constexpr double kMergeUs = 4.5;  // for the parts of a split item
// For an item that carries a state.
constexpr double kStateUs = 3.0;
constexpr double kStagedStateUs = 1.0;

Speed speed(const AttentionDesc& desc, const AttentionConfig& c) {
  if (c.kernel == AttentionKernel::kHopper) {
    const HopperVariant& v = kHopperVariants[hopper_variant(desc, c)];
    const double state_us = v.form == HopperForm::kCarrying ? kStateUs
                            : v.form == HopperForm::kStaged ? kStagedStateUs
                                                            : 0;
    return {v.tflops, v.ctas_per_sm == 1 ? 1. : .65,
            v.item_us + state_us + (c.split > 1 ? kMergeUs : 0)};
  }
  if (desc.head_dim_qk > 128) return {140, .6, 1.5};
  if (c.block_m == 128) return {215, .55, 1.5};
  return {150, .45, 1.5};
}

// Least time in which the device can work off the items, heaviest first.
double estimate_us(const AttentionDesc& desc, const AttentionParams& params,
                   const AttentionConfig& config, const AttentionDevice& device) {
  AttentionPlan plan = make_plan(desc, params, config);
  if (plan.num_items == 0) return 0;
  // Lengths that only the device knows count as their capacities.
  for (QTensor& q : plan.q) q.starts = q.offsets = nullptr;
  for (KvTensor& kv : plan.kv) kv.lengths = nullptr;
  const Speed s = speed(desc, config);
  const int ctas = config.ctas_per_sm;
  // Items, or shares of items, at work at a time. A cluster's CTAs are on neighbouring SMs, so some
  // slots stay unused.
  const int clusters = device.num_sms * ctas / config.cluster;
  const int slots = config.split > 2 ? clusters * 10 / 11 : clusters;
  const double shares = double(plan.num_items) * config.split;
  // With fewer than slots, CTAs have fewer neighbours, and more of their SM each.
  const double neighbours = std::clamp(shares / slots * ctas, 1., double(ctas));
  const double share =
      ctas == 1 ? 1 : s.alone + (1. / ctas - s.alone) * (neighbours - 1) / (ctas - 1);
  const double flops_per_us = s.tflops * 1e6 / 132 * config.cluster * share;
  const double flops_per_tile =
      2. * config.block_m * config.block_n * (desc.head_dim_qk + desc.head_dim_v);
  const int heads = plan.num_head_items * plan.batch;
  double total = 0;
  double longest = 0;
  double shortest = 1e30;
  for (int run = 0; run < plan.num_runs; ++run) {
    for (int m = 0; m < plan.tiles_m[run]; ++m) {
      const WorkItem item = make_item(plan, run, m, 0);
      const int tiles = count_key_tiles(plan, item, config.block_n);
      const double us = s.item_us + ceil_div(tiles, config.split) * flops_per_tile / flops_per_us;
      total += us * heads * config.split;
      longest = std::max(longest, us);
      shortest = std::min(shortest, us);
    }
  }
  const double mean = total / shares;
  // Equal items end in whole rounds; uneven ones fill the gaps.
  const double even = shares / slots;
  const double rounds = longest - shortest < .02 * mean ? std::ceil(even) : std::max(1., even + .2);
  // Between equal times, the config with less work is better company.
  return std::max(longest, rounds * mean) + .02 * total / slots;
}

// Whether some item has keys for all CTAs of a cluster.
bool can_split(const AttentionParams& params, const AttentionConfig& config) {
  for (const QTensor& q : params.q) {
    int64_t keys = 0;
    for (int j = q.kv_begin; j < q.kv_end; ++j) keys += params.kv[j].length;
    if (keys > int64_t{config.block_n} * (config.split - 1)) return true;
  }
  return false;
}

}  // namespace

int hopper_variant(const AttentionDesc& desc, const AttentionConfig& config) {
  const auto* const found = std::ranges::find_if(kHopperVariants, [&](const HopperVariant& v) {
    return v.head_dim_qk == desc.head_dim_qk && v.head_dim_v == desc.head_dim_v &&
           64 * v.consumers * v.cluster == config.block_m && v.block_n == config.block_n &&
           v.cluster == config.cluster && v.form == config.form && (config.split == 1 || v.splits);
  });
  return found == std::end(kHopperVariants) ? -1
                                            : static_cast<int>(found - std::begin(kHopperVariants));
}

bool takes_stages_of(HopperForm form, const AttentionParams& params) {
  return keys_arrive(params) == (form == HopperForm::kArriving);
}

std::vector<AttentionConfig> candidates(const AttentionDesc& desc, const AttentionParams& params,
                                        const AttentionDevice& device) {
  verify(desc, params);
  if (device.compute_capability < 80) {
    fail(ErrorCode::kUnsupported, "attention: compute capability {} (80 or more)",
         device.compute_capability);
  }
  if (keys_arrive(params) && device.compute_capability != 90) {
    fail(ErrorCode::kUnsupported, "attention: keys that arrive, compute capability {} (90)",
         device.compute_capability);
  }
  const int group = desc.num_q_heads / desc.num_kv_heads;
  // Heads with common keys share tiles unless other reasons decide: fewer keys are read.
  std::vector<int> packs = {1};
  if (group > 1 && group <= 64) packs.insert(packs.begin(), group);
  std::vector<AttentionConfig> out;
  for (int pack : packs) {
    if (device.compute_capability == 90) {
      for (const HopperVariant& v : kHopperVariants) {
        if (!hopper_takes(desc, params, v)) continue;
        AttentionConfig c{.kernel = AttentionKernel::kHopper,
                          .block_m = 64 * v.consumers * v.cluster,
                          .block_n = v.block_n,
                          .ctas_per_sm = v.ctas_per_sm,
                          .cluster = v.cluster,
                          .pack = pack,
                          .form = v.form};
        out.push_back(c);
        for (int split : {2, 3, 4, 8}) {
          c.split = split;
          if (v.splits && can_split(params, c)) out.push_back(c);
        }
      }
    }
    if (keys_arrive(params)) continue;
    for (const GenericVariant& v : kGenericVariants) {
      if (v.head_dim_qk != desc.head_dim_qk || v.head_dim_v != desc.head_dim_v) continue;
      out.push_back({.kernel = AttentionKernel::kGeneric,
                     .block_m = v.block_m,
                     .block_n = desc.head_dim_qk <= 128 ? 64 : 32,
                     .ctas_per_sm = v.block_m == 128 ? 2 : 3,
                     .pack = pack});
    }
  }
  for (AttentionConfig& c : out) c.cost_us = estimate_us(desc, params, c, device);
  return out;
}

AttentionConfig choose(const AttentionDesc& desc, const AttentionParams& params,
                       const AttentionDevice& device) {
  const std::vector<AttentionConfig> all = candidates(desc, params, device);
  return *std::min_element(all.begin(), all.end(),
                           [](const auto& a, const auto& b) { return a.cost_us < b.cost_us; });
}

size_t attention_sums_bytes(const AttentionDesc& desc, const AttentionConfig& config) {
  return static_cast<size_t>(config.block_m / 64) * 128 * 16 * sum_units(desc.head_dim_v) +
         static_cast<size_t>(config.cluster) * kHeldItemBytes;
}

size_t attention_sums_bytes(const AttentionDesc& desc, const AttentionParams& params,
                            const AttentionConfig& config, const AttentionDevice& device) {
  const int items = make_plan(desc, params, config).num_items;
  const int clusters = std::clamp(items, 1, device.num_sms / config.cluster);
  const bool early = std::ranges::any_of(params.q, [](const QTensor& q) { return q.early != 0; });
  return attention_sums_bytes(desc, config) * clusters *
         (ceil_div(items, clusters) + (early ? 1 : 0));
}

std::string to_string(const AttentionConfig& c) {
  constexpr const char* kForms[] = {"", " carrying", " staged", " arriving"};
  return fmt::format("{} {}x{}{}{}{} pack {}",
                     c.kernel == AttentionKernel::kHopper ? "hopper" : "generic", c.block_m,
                     c.block_n, c.cluster > 1 ? fmt::format(" cluster {}", c.cluster) : "",
                     c.split > 1 ? fmt::format(" split {}", c.split) : "",
                     kForms[static_cast<int>(c.form)], c.pack);
}

}  // namespace braid::cuda
