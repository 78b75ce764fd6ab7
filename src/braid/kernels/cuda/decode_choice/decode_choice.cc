#include "braid/kernels/cuda/decode_choice/decode_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid::cuda {
namespace {

int64_t qkv_bytes(const FusedShape& s) {
  return fused_bytes(s, FusedScope::qkv, 0);
}
int64_t out_bytes(const FusedShape& s) {
  return fused_bytes(s, FusedScope::projected, 0) - qkv_bytes(s);
}
int64_t key_bytes(const FusedShape& s, int64_t context) {
  return fused_bytes(s, FusedScope::qkv, context) - qkv_bytes(s);
}
double layer_bytes(const DecodeStep& step) {
  return static_cast<double>(fused_bytes(step.block, FusedScope::projected, step.context) +
                             step.ffn_bytes);
}

DecodePrice relay_price(const DecodeStep& step, const DecodeRates& rates) {
  DecodePrice price{.form = {.kind = DecodeKind::relay}, .why_not = step.no_relay};
  const double head = static_cast<double>(step.head_bytes);
  price.bytes_seconds = (layer_bytes(step) * step.layers + head) / rates.stream;
  for (const int64_t bytes :
       {qkv_bytes(step.block), key_bytes(step.block, step.context), out_bytes(step.block),
        step.ffn_bytes - step.down_bytes, step.down_bytes}) {
    price.seam_seconds += step.layers * relay_seam(bytes, rates);
  }
  return price;
}

double seam_of(const DecodeStep& step, const DecodeRates& rates) {
  return step.norms_apart ? rates.panel_seam : rates.launch_seam;
}

DecodePrice apart_price(const DecodeStep& step, const DecodeRates& rates) {
  DecodePrice price{.form = {.kind = DecodeKind::apart}};
  const double head = static_cast<double>(step.head_bytes);
  price.bytes_seconds = (layer_bytes(step) * step.layers + head) / rates.stream;
  price.seam_seconds = step.layers * step.launches * seam_of(step, rates);
  return price;
}

DecodePrice fused_price(const DecodeStep& step, const FusedConfig& config,
                        const DecodeRates& rates) {
  DecodePrice price{.form = {.kind = DecodeKind::fused,
                             .cluster = config.cluster,
                             .parts = config.parts,
                             .split = config.split,
                             .scope = config.scope,
                             .path = config.path},
                    .why_not = step.no_fused};
  const bool projects = config.scope == FusedScope::projected;
  const BlockPrice block = block_price(step.block, config, step.context, rates);
  const int64_t rest = step.ffn_bytes + (projects ? 0 : out_bytes(step.block));
  price.bytes_seconds =
      step.layers * (block.bytes_seconds + static_cast<double>(rest) / rates.stream) +
      static_cast<double>(step.head_bytes) / rates.stream;
  // norm and q k v (perhaps as two launches), rope and cache, attention, and perhaps the projection
  // are one launch.
  const int its = 3 + (projects ? 1 : 0) + (step.norms_apart && step.block.normed ? 1 : 0);
  price.seam_seconds = step.layers * (step.launches - its) * seam_of(step, rates);
  price.exchange_seconds = step.layers * block.exchange_seconds;
  return price;
}

std::string describe(const DecodePrice& p) {
  if (!p.why_not.empty()) return fmt::format("{}: {}", to_string(p.form), p.why_not);
  return fmt::format("{}: {:.3f} ms, of it bytes {:.3f}, seams {:.3f}, exchanges {:.3f}",
                     to_string(p.form), 1e3 * p.seconds(), 1e3 * p.bytes_seconds,
                     1e3 * p.seam_seconds, 1e3 * p.exchange_seconds);
}

bool fits(const DecodeForm& asked, const DecodeForm& is) {
  return asked.kind == is.kind &&
         (asked.kind != DecodeKind::fused ||
          (asked.split == is.split && asked.scope == is.scope && asked.path == is.path &&
           asked.parts == is.parts && (asked.cluster == 0 || asked.cluster == is.cluster)));
}

double seconds_of(const std::vector<DecodePrice>& prices, const DecodeForm& form) {
  return std::ranges::find(prices, form, &DecodePrice::form)->seconds();
}

}  // namespace

double relay_seam(int64_t bytes, const DecodeRates& rates) {
  const double bare = std::max(0., 1 - static_cast<double>(bytes) / rates.ring_bytes);
  return rates.relay_seam + rates.relay_bare * bare;
}

BlockPrice block_price(const FusedShape& s, const FusedConfig& config, int64_t context,
                       const DecodeRates& rates) {
  // Clusters beyond the number that runs at once follow in waves.
  const int64_t wave = config.at_once / config.members();
  const auto seconds = [&](int64_t bytes, double of_a_cta) {
    double all = 0;
    for (int64_t left = s.kv_heads; left > 0; left -= wave) {
      const auto heads = static_cast<double>(std::min(left, wave));
      const double rate = std::min(rates.stream, of_a_cta * heads * config.members());
      all += static_cast<double>(bytes) * heads / static_cast<double>(s.kv_heads) / rate;
    }
    return all;
  };
  const bool projects = config.scope == FusedScope::projected;
  const bool single = !fused_batches(s);  // heads one by one; else by groups
  BlockPrice price{.bytes_seconds = seconds(qkv_bytes(s), rates.cta_stream)};
  price.bytes_seconds += seconds(key_bytes(s, context), rates.cta_keys[!single        ? 3
                                                                       : s.group == 1 ? 0
                                                                       : s.group == 2 ? 1
                                                                                      : 2]);
  if (projects) price.bytes_seconds += seconds(out_bytes(s), rates.cta_stream);
  const auto waves = static_cast<double>(ceil_div(s.kv_heads, wave));
  double exchange = rates.fused_seam + rates.fused_cta * config.cluster;
  if (!single) exchange += rates.fused_batch;
  exchange += (waves - 1) * rates.fused_wave;
  if (config.split == FusedSplit::head) {
    const int64_t keys = kFusedWarps * fused_keys(s, config.cluster, config.split);
    const double sums = static_cast<double>(ceil_div(context, keys)) * waves;
    exchange +=
        sums * (s.group == 1 ? rates.scores_sum : rates.scores_group * std::log2(config.cluster));
  }
  if (config.path == ExchangePath::memory) exchange *= 1 + rates.memory_share;
  if (config.parts > 1) exchange += rates.parts_seam;
  if (projects) exchange += rates.words_seam;
  price.exchange_seconds = exchange;
  return price;
}

std::vector<DecodePrice> decode_prices(const DecodeStep& step, const FusedDevice& device,
                                       const DecodeRates& rates, int parts) {
  std::vector<DecodePrice> prices = {apart_price(step, rates), relay_price(step, rates)};
  for (const auto scope : {FusedScope::qkv, FusedScope::projected}) {
    for (const auto path : {ExchangePath::chip, ExchangePath::memory}) {
      const auto configs = fused_candidates(step.block, scope, path, device, parts);
      for (const FusedConfig& config : configs) {
        prices.push_back(fused_price(step, config, rates));
      }
      if (!configs.empty()) continue;
      DecodePrice none{.form = {.kind = DecodeKind::fused, .scope = scope, .path = path},
                       .why_not = step.no_fused};
      if (none.why_not.empty()) none.why_not = why_not_fused(step.block, scope, device);
      if (none.why_not.empty()) none.why_not = why_not_fused(step.block, scope, 1, device);
      prices.push_back(none);
    }
  }
  std::stable_sort(prices.begin(), prices.end(), [](const DecodePrice& a, const DecodePrice& b) {
    if (a.why_not.empty() != b.why_not.empty()) return a.why_not.empty();
    return a.why_not.empty() && a.seconds() < b.seconds();
  });
  return prices;
}

DecodeForm choose_decode(const DecodeForm& form, const DecodeStep& step, const FusedDevice& device,
                         const DecodeRates& rates) {
  const auto prices_in = [&](int64_t context) {
    DecodeStep there = step;
    there.context = context;
    return decode_prices(there, device, rates, form.parts);
  };
  const std::vector<DecodePrice> prices = prices_in(kUsualContext);
  if (form.kind == DecodeKind::automatic) {
    const DecodeForm usual = {.kind =
                                  step.no_relay.empty() ? DecodeKind::relay : DecodeKind::apart};
    const auto best = std::ranges::find_if(prices, [&](const DecodePrice& p) {
      return p.form.kind != DecodeKind::fused || !fused_batches(step.block);
    });
    const auto gains = [&](int64_t context) {
      const std::vector<DecodePrice> there = prices_in(context);
      const double usual_seconds = seconds_of(there, usual);
      const double gain = usual_seconds - seconds_of(there, best->form);
      return gain >= (context == kUsualContext ? kDecodeGain * usual_seconds : 0);
    };
    if (best->form == usual || !rates.unmeasured.empty()) return usual;
    return std::ranges::all_of(kContextBuckets, gains) ? best->form : usual;
  }
  for (const DecodePrice& p : prices) {
    if (!fits(form, p.form)) continue;
    if (p.why_not.empty()) return p.form;
    fail(ErrorCode::kUnsupported, "--decode {}: {}", to_string(form), p.why_not);
  }
  fail(ErrorCode::kUnsupported, "--decode {}: {}", to_string(form),
       step.no_fused.empty() ? why_not_fused(step.block, form.scope, std::max(form.cluster, 1),
                                             device, form.split, form.parts)
                             : step.no_fused);
}

std::vector<std::string> explain_decode(const DecodeForm& chosen, const DecodeStep& step,
                                        const FusedDevice& device, const DecodeRates& rates) {
  const std::vector<DecodePrice> prices = decode_prices(step, device, rates, chosen.parts);
  const auto is_chosen = [&](const DecodePrice& p) { return p.form == chosen; };
  const auto its = std::ranges::find_if(prices, is_chosen);
  const int64_t tokens = step.block.tokens;
  std::vector<std::string> lines = {
      fmt::format("decode steps of {}, priced with {} keys{}: {}",
                  tokens == 1 ? "one token" : fmt::format("{} tokens", tokens), step.context,
                  tokens == 1 ? "" : " each", to_string(chosen))};
  if (!rates.unmeasured.empty()) {
    lines.push_back(
        fmt::format("  no constants of '{}': prices of an H100, and auto takes none of them",
                    rates.unmeasured));
  }
  for (const DecodePrice& p : prices) {
    std::string line = "  " + describe(p);
    if (is_chosen(p)) {
      line += " (chosen)";
    } else if (p.why_not.empty() && its != prices.end()) {
      const double more = p.seconds() / its->seconds() - 1;
      line += more >= 0 ? fmt::format(" ({:.0f}% more)", 100 * more)
                        : fmt::format(" ({:.0f}% less)", -100 * more);
    }
    lines.push_back(line);
  }
  return lines;
}

}  // namespace braid::cuda
