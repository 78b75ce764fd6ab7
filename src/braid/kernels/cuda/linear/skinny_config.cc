#include "braid/kernels/cuda/linear/skinny_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid::cuda {
namespace {

// Rows of a stage lie in different banks if their pitch is an odd number of a quad's
// loads.
int pitch_of(DType dtype, int64_t window) {
  int unit = 16;
  if (dtype == DType::bf16 || dtype == DType::f16) unit = 64;
  if (dtype == DType::q4_k || dtype == DType::q5_k) unit = 32;
  return static_cast<int>((ceil_div(window, unit) | 1) * unit);
}

// Bytes of a row in a stage: few copies if the warps share the stage, otherwise many stages.
int choose_chunk(DType dtype, bool split_k, int64_t k_per_cta) {
  const int64_t row_bytes = split_k ? 1024 : 512;
  const DTypeInfo& t = info(dtype);
  const int64_t elems = row_bytes * t.block_elems / t.block_bytes / 256 * 256;
  return static_cast<int>(std::clamp<int64_t>(elems, 256, round_up(k_per_cta, 256)));
}

int smem_of(const SkinnyShape& shape, SkinnyConfig config, int stages) {
  config.stages = stages;
  return skinny_smem(shape, config).total;
}

int ring_bytes(const SkinnyShape& shape, const SkinnyConfig& config) {
  return config.stages * kSkinnyTileRows * skinny_smem(shape, config).pitch;
}

// As many clusters as SMs allow, or rows.
int count_clusters(const SkinnyShape& shape, int cluster, const SkinnyDevice& device) {
  // GPCs have 16 or 18 SMs: larger clusters leave some unused.
  const int sms = cluster > 2 ? std::max(cluster, device.num_sms / 16 * 16) : device.num_sms;
  const int64_t most = ceil_div(shape.columns, shape.gated ? 4 : 8);
  return static_cast<int>(std::clamp<int64_t>(sms / cluster, 1, most));
}

// Requirements for a kind of config, from the most to the least wanted.
struct Want {
  bool split_k;
  int ctas_per_sm;
  int ring;  // bytes
};
constexpr Want kWants[] = {{true, 2, 64 << 10}, {false, 1, 128 << 10}, {false, 2, 64 << 10},
                           {true, 1, 48 << 10}, {false, 1, 32 << 10},  {true, 1, 0},
                           {false, 1, 0}};

// The config of a kind with the smallest cluster; stages 0 if none exists.
SkinnyConfig find(const SkinnyShape& shape, int tokens, const Want& want,
                  const SkinnyDevice& device) {
  const bool bulk = shape.bulk && device.compute_capability == 90;
  if (!bulk && !want.split_k) return {.stages = 0};
  const int limit = want.ctas_per_sm == 2 ? (device.smem_per_sm - 2048) / 2 : device.smem_per_cta;
  for (int cluster = 1; cluster <= (want.split_k ? 1 : 8); cluster *= 2) {
    SkinnyConfig c{.bulk = bulk, .split_k = want.split_k, .tokens = tokens, .cluster = cluster};
    c.clusters = count_clusters(shape, cluster, device);
    c.chunk = choose_chunk(shape.dtype, want.split_k, skinny_k_per_cta(shape, cluster));
    c.stages = bulk ? kSkinnyMaxStages : 1;
    const int step = want.split_k ? 1 : kSkinnyWarps;
    while (c.stages - step >= kSkinnyMinStages && smem_of(shape, c, c.stages) > limit) {
      c.stages -= step;
    }
    if (smem_of(shape, c, c.stages) > limit || !skinny_fits(shape, c, device)) continue;
    // A short K needs no more than its length.
    const bool whole = c.stages >= 8 && c.chunk >= skinny_k_per_cta(shape, cluster);
    if (bulk && !whole && ring_bytes(shape, c) < want.ring) continue;
    // Each warp wants a tile; in a cluster, tiles for a third of warps still beat a larger one.
    const int64_t tiles = ceil_div(shape.columns, shape.gated ? 8 : kSkinnyTileRows);
    const int64_t places = int64_t{c.clusters} * kSkinnyWarps / (cluster > 1 ? 3 : 1);
    if (!want.split_k && want.ring > 0 && tiles < places) continue;
    return c;
  }
  return {.stages = 0};
}

}  // namespace

int skinny_granule(DType dtype) {
  return std::max(32, info(dtype).block_elems);
}

int skinny_groups(DType dtype) {
  if (!is_quantized(dtype)) return 0;
  return dtype == DType::q6_k ? 2 : 1;
}

int64_t skinny_k_per_cta(const SkinnyShape& shape, int cluster) {
  const int granule = skinny_granule(shape.dtype);
  return ceil_div(ceil_div(shape.k, granule), cluster) * granule;
}

SkinnySmem skinny_smem(const SkinnyShape& shape, const SkinnyConfig& config) {
  const int64_t steps = skinny_k_per_cta(shape, config.cluster) / 32;
  SkinnySmem s;
  const int64_t window = bytes_of(shape.dtype, config.chunk) + (shape.aligned ? 0 : 15);
  s.pitch = pitch_of(shape.dtype, window);
  int64_t at = int64_t{config.stages} * kSkinnyTileRows * s.pitch;
  const auto take = [&](int* offset, int64_t bytes) {
    BRAID_CHECK(at < (int64_t{1} << 30), "shared memory of a skinny product: {} bytes", at);
    *offset = static_cast<int>(at);
    at = round_up(at + bytes, 128);
  };
  take(&s.x, steps * config.tokens * 64);
  take(&s.sums, steps * skinny_groups(shape.dtype) * (config.tokens + 1) / 2 * 8);
  take(&s.partials, config.split_k ? int64_t{2} * kSkinnyWarps * 512 : 0);
  take(&s.exchange, config.cluster > 1 ? int64_t{kSkinnyWarps} * 512 : 0);
  take(&s.squares, kSkinnyWarps * kSkinnyMaxTokens * 4);
  take(&s.barriers, 8 * (2 * config.stages + 2 * kSkinnyWarps));
  s.total = static_cast<int>(std::min<int64_t>(at, 1 << 30));
  return s;
}

bool skinny_fits(const SkinnyShape& shape, const SkinnyConfig& c, const SkinnyDevice& device) {
  if (c.tokens < 1 || c.tokens > kSkinnyMaxTokens || c.clusters < 1) return false;
  if (c.chunk < 256 || c.chunk % 256 != 0) return false;
  if (c.bulk) {
    if (!shape.bulk || device.compute_capability != 90) return false;
    if (c.stages < kSkinnyMinStages || c.stages > kSkinnyMaxStages) return false;
    if (!c.split_k && c.stages % kSkinnyWarps != 0) return false;
  } else if (c.stages != 1 || !c.split_k) {
    return false;
  }
  if (c.cluster != 1) {
    if (c.split_k) return false;
    if (c.cluster != 2 && c.cluster != 4 && c.cluster != 8) return false;
    // Each CTA has a part of K.
    if (skinny_k_per_cta(shape, c.cluster) * (c.cluster - 1) >= shape.k) return false;
  }
  return skinny_smem(shape, c).total <= device.smem_per_cta;
}

SkinnyConfig choose_skinny(const SkinnyShape& shape, const SkinnyDevice& device) {
  BRAID_CHECK(shape.k > 0 && shape.columns > 0 && shape.m > 0, "skinny product [{}, {}] for {}",
              shape.columns, shape.k, shape.m);
  for (int launches = static_cast<int>(ceil_div(shape.m, kSkinnyMaxTokens));; ++launches) {
    const int tokens = static_cast<int>(ceil_div(shape.m, launches));
    for (const Want& want : kWants) {
      const SkinnyConfig c = find(shape, tokens, want, device);
      if (c.stages > 0) return c;
    }
    if (tokens == 1) {
      fail(ErrorCode::kUnsupported, "linear: K = {} ({}) does not fit the shared memory, {} bytes",
           shape.k, name(shape.dtype), device.smem_per_cta);
    }
  }
}

std::string to_string(const SkinnyConfig& c) {
  return fmt::format("{}split {}, {}, {} x {}, {} token{}", c.bulk ? "" : "plain, ",
                     c.split_k ? "k" : "tiles",
                     c.cluster == 1 ? fmt::format("{} ctas", c.clusters)
                                    : fmt::format("{} clusters of {}", c.clusters, c.cluster),
                     c.stages, c.chunk, c.tokens, c.tokens == 1 ? "" : "s");
}

}  // namespace braid::cuda
