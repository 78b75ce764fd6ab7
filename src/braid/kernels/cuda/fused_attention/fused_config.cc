#include "braid/kernels/cuda/fused_attention/fused_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/base/math.h"
#include "braid/kernels/cuda/fused_attention/batch_layout.h"
#include "braid/kernels/cuda/fused_attention/fused_layout.h"

namespace braid::cuda {
namespace {

constexpr int kMostSlots = 24, kLeastSlots = 8;

constexpr std::array kWeightNames = {"q", "k", "v", "o"};

FusedLayout layout_of(const FusedShape& s, FusedScope scope, const FusedConfig& c) {
  const FusedHeadRows rows(static_cast<int>(s.width), s.group, s.head_dim, c.members());
  const int64_t attended = s.kv_heads * s.group * s.head_dim;
  const auto x =
      static_cast<int>(scope == FusedScope::projected ? std::max(s.width, attended) : s.width);
  const int64_t scores = c.split == FusedSplit::head ? fused_scores(s, c.cluster).bytes / 2 : 0;
  return {c.slots, c.inbox_bytes, x,           fused_sums(s, scope, c.members()),
          s.group, s.head_dim,    rows.most(), static_cast<int>(scores)};
}

bool is_half(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16;
}

// The ring first, then the tokens of an exchange. Only where no ring fits, exchanges have some
// heads of a token.
FusedConfig batch_config(const FusedShape& s, FusedConfig c, const FusedDevice& device) {
  const auto fits = [&] {
    const FusedBatchShape shape = fused_batch(s, c);
    c.inbox_bytes = shape.inbox_bytes();
    c.shared_bytes = FusedBatchLayout(shape).bytes;
    return c.shared_bytes <= device.smem_per_cta;
  };
  c.heads = s.group;
  for (c.slots = kMostSlots; c.slots > 0; c.slots -= kFusedWarps) {
    for (c.each = static_cast<int>(s.tokens); c.each > 0; c.each /= 2) {
      if (fits()) return c;
    }
  }
  c.slots = kLeastSlots, c.each = 1;
  for (; c.heads > 0; c.heads /= 2) {
    if (fits()) return c;
  }
  c.slots = 0;
  return c;
}

}  // namespace

bool fused_batches(const FusedShape& s) {
  const auto is_bf16 = [](DType dtype) { return dtype == DType::bf16; };
  return s.tokens > 1 || !s.normed || s.group > kFusedFewHeads || !is_bf16(s.cache) ||
         !std::ranges::all_of(s.weights, is_bf16);
}

FusedBatchShape fused_batch(const FusedShape& s, const FusedConfig& c) {
  const bool projects = c.scope == FusedScope::projected;
  const int64_t attended = s.kv_heads * s.group * s.head_dim;
  const int64_t head_tiles =
      ceil_div(fused_head_tiles(s.group, s.head_dim), static_cast<int64_t>(c.members()));
  const int64_t out_tiles =
      projects ? ceil_div(ceil_div(s.outputs, kFusedTileRows), s.kv_heads * c.members()) : 0;
  return {.slots = c.slots,
          .cluster = c.cluster,
          .tokens = static_cast<int>(s.tokens),
          .each = c.each,
          .heads = c.heads,
          .x_elems = static_cast<int>(
              round_up(projects ? std::max(s.width, attended) : s.width, kFusedChunk)),
          .head_rows = static_cast<int>(head_tiles * kFusedTileRows),
          .tiles = static_cast<int>(std::max(head_tiles, out_tiles)),
          .group = s.group,
          .head_dim = s.head_dim};
}

std::string why_not_fused(const FusedShape& s, FusedScope scope, const FusedDevice& device) {
  if (device.compute_capability != 90) {
    return fmt::format("a GPU of compute capability {}.{} has no clusters: 9.0",
                       device.compute_capability / 10, device.compute_capability % 10);
  }
  if (s.tokens < 1 || s.tokens > kFusedMaxTokens) {
    return fmt::format("{} tokens a step: {} at most", s.tokens, kFusedMaxTokens);
  }
  if (s.head_dim != 64 && s.head_dim != 128) {
    return fmt::format("head dim {}: 64 or 128", s.head_dim);
  }
  if (s.group < 1 || s.group > kFusedMaxGroup) {
    return fmt::format("{} query heads for a KV head: 1 to {}", s.group, kFusedMaxGroup);
  }
  if (!s.even_heads) return "heads of which a rank has part of a group: whole groups only";
  if (s.softcap) return "scores with a softcap: none";
  for (size_t i = 0; i < s.weights.size(); ++i) {
    if (scope == FusedScope::qkv && i == 3) break;
    if (!is_half(s.weights[i])) {
      return fmt::format("weight {} is {}: bf16 or f16", kWeightNames[i], name(s.weights[i]));
    }
  }
  if (!is_half(s.cache)) return fmt::format("a cache in {}: bf16 or f16", name(s.cache));
  if (s.width % 8 != 0 || s.width < 8 || s.width > kFusedMaxNorm) {
    return fmt::format("rows of {} elements: multiples of 8 up to {}", s.width, kFusedMaxNorm);
  }
  if (fused_batches(s) && s.width % 64 != 0) {
    return fmt::format("rows of {} elements: multiples of 64, but for one token in bf16", s.width);
  }
  const int keys = relay_keys(s.head_dim), box = relay_box(s.head_dim, s.page_size);
  if (s.page_size < 16 || keys % box != 0 || s.page_size % box != 0) {
    return fmt::format("pages of {} keys: multiples of {}, or 16", s.page_size, keys);
  }
  if (scope == FusedScope::projected && (s.outputs < 2 || s.outputs % 2 != 0)) {
    return fmt::format("a projection to {} elements: an even number", s.outputs);
  }
  return "";
}

std::string why_not_fused(const FusedShape& s, FusedScope scope, int cluster,
                          const FusedDevice& device, FusedSplit split, int parts) {
  if (cluster < 1 || cluster > kMaxCluster) {
    return fmt::format("clusters of {} CTAs: 1 to {}", cluster, kMaxCluster);
  }
  if (parts < 1 || parts > kFusedMaxParts) {
    return fmt::format("{} clusters of a KV head: 1 to {}", parts, kFusedMaxParts);
  }
  if (std::string why = why_not_fused(s, scope, device); !why.empty()) return why;
  const int at_once = device.clusters[static_cast<size_t>(cluster)];
  if (parts > 1 && split == FusedSplit::head) {
    return fmt::format("split=head with {} clusters of a KV head: 1", parts);
  }
  if (parts > 1 && at_once < s.kv_heads * parts) {
    return fmt::format("{} KV heads as {} clusters of {} CTAs each: the GPU runs {} at once",
                       s.kv_heads, parts, cluster, at_once);
  }
  // Clusters of several KV heads wait for each other only in front of the projection.
  if (at_once < (scope == FusedScope::projected ? s.kv_heads : 1)) {
    return fmt::format("{} KV heads as clusters of {} CTAs: the GPU runs {} at once", s.kv_heads,
                       cluster, at_once);
  }
  if (split == FusedSplit::head) {
    if (fused_batches(s)) {
      return fmt::format("split=head: a single token of a normed block in bf16, groups up to {}",
                         kFusedFewHeads);
    }
    const int elems = s.head_dim / cluster;
    if (elems * cluster != s.head_dim || (elems != 16 && elems != 32 && elems != 64) ||
        cluster == 1) {
      return fmt::format("split=head, heads of {} over {} CTAs: parts of 16, 32 or 64 elements",
                         s.head_dim, cluster);
    }
    const int keys = relay_keys(elems), box = relay_box(elems, s.page_size);
    if (keys % box != 0 || s.page_size % box != 0) {
      return fmt::format("split=head, pages of {} keys: multiples or divisors of {}", s.page_size,
                         keys);
    }
  }
  const FusedConfig config =
      fused_config(s, scope, ExchangePath::chip, cluster, device, split, parts);
  if (config.slots == 0) {
    return fmt::format("{} bytes of shared memory beside {} slots: {} at most",
                       config.shared_bytes - kLeastSlots * kFusedSlotBytes, kLeastSlots,
                       device.smem_per_cta - kLeastSlots * kFusedSlotBytes);
  }
  return "";
}

FusedConfig fused_config(const FusedShape& s, FusedScope scope, ExchangePath path, int cluster,
                         const FusedDevice& device, FusedSplit split, int parts) {
  FusedConfig c{.cluster = cluster,
                .parts = parts,
                .ctas = static_cast<int>(s.kv_heads) * cluster * parts,
                .at_once = std::min(static_cast<int>(s.kv_heads) * parts,
                                    device.clusters[static_cast<size_t>(cluster)]) *
                           cluster,
                .scope = scope,
                .path = path,
                .split = split};
  if (fused_batches(s)) return batch_config(s, c, device);
  const FusedHeadRows rows(static_cast<int>(s.width), s.group, s.head_dim, c.members());
  const int64_t part =
      std::max<int64_t>(round_up(2 * rows.most(), 16), int64_t{4} * s.group * (s.head_dim + 4));
  c.inbox_bytes = static_cast<int>(cluster * part);
  if (split == FusedSplit::head) {
    const ExchangeDesc scores = fused_scores(s, cluster);
    const int64_t inbox = exchange_inbox_bytes(scores, choose_exchange(scores));
    c.inbox_bytes = std::max(c.inbox_bytes, static_cast<int>(round_up(inbox, 16)));
  }
  for (c.slots = kMostSlots; c.slots > 0; c.slots -= kFusedWarps) {
    c.shared_bytes = layout_of(s, scope, c).bytes;
    if (c.shared_bytes <= device.smem_per_cta) return c;
  }
  return c;
}

std::vector<FusedConfig> fused_candidates(const FusedShape& s, FusedScope scope, ExchangePath path,
                                          const FusedDevice& device, int parts) {
  std::vector<FusedConfig> result;
  const auto add = [&](int cluster, FusedSplit split, int its_parts) {
    if (why_not_fused(s, scope, cluster, device, split, its_parts).empty()) {
      result.push_back(fused_config(s, scope, path, cluster, device, split, its_parts));
    }
  };
  for (const FusedSplit split : {FusedSplit::token, FusedSplit::head}) {
    for (int cluster = kMaxCluster; cluster >= 1; --cluster) add(cluster, split, 1);
  }
  for (int cluster = kMaxCluster; cluster >= 1; --cluster) {
    const int64_t at_once = device.clusters[static_cast<size_t>(cluster)];
    const auto most = static_cast<int>(std::min<int64_t>(at_once / s.kv_heads, kFusedMaxParts));
    if (most > 1) add(cluster, FusedSplit::token, most);
    if (parts > 1 && parts < most) add(cluster, FusedSplit::token, parts);
  }
  return result;
}

int fused_keys(const FusedShape& s, int cluster, FusedSplit split) {
  return relay_keys(split == FusedSplit::head ? s.head_dim / cluster : s.head_dim);
}

ExchangeDesc fused_scores(const FusedShape& s, int cluster) {
  const int64_t keys = kFusedWarps * fused_keys(s, cluster, FusedSplit::head);
  return {ExchangeKind::reduce, cluster, 4 * s.group * keys};
}

int fused_sums(const FusedShape& s, FusedScope scope, int members) {
  const FusedHeadRows rows(static_cast<int>(s.width), s.group, s.head_dim, members);
  int sums = rows.most() * rows.form.parts;
  if (scope == FusedScope::projected) {
    const FusedRows form = fused_rows(s.kv_heads * s.group * s.head_dim);
    const auto groups =
        static_cast<int>(ceil_div(ceil_div(s.outputs, form.rows), s.kv_heads * members));
    sums = std::max(sums, groups * form.rows * form.parts);
  }
  return sums;
}

int64_t fused_bytes(const FusedShape& s, FusedScope scope, int64_t context) {
  const int64_t heads = s.kv_heads * s.group;
  int64_t weights = (heads + 2 * s.kv_heads) * s.head_dim * s.width;
  if (scope == FusedScope::projected) weights += heads * s.head_dim * s.outputs;
  return 2 * (weights + 2 * s.tokens * context * s.kv_heads * s.head_dim);
}

std::string to_string(const FusedConfig& c) {
  return fmt::format("fused:cluster={},{}split={},scope={}{}", c.cluster,
                     c.parts > 1 ? fmt::format("parts={},", c.parts) : std::string(),
                     c.split == FusedSplit::head ? "head" : "token",
                     c.scope == FusedScope::qkv ? "qkv" : "projected",
                     c.path == ExchangePath::memory ? ",exchange=memory" : "");
}

}  // namespace braid::cuda
