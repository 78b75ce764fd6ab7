#include "braid/kernels/cuda/linear/panel_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/base/math.h"

namespace braid::cuda {
namespace {

constexpr int kTileBytes = 8 * kPanelXSlab * 2;
// Shared memory of a CTA if two or three fit an SM.
constexpr int kHalf = 112 << 10;
constexpr int kThird = 74 << 10;
// Shared memory for a CTA that leaves room beside it for a decode attention's CTA, with two CTAs an
// SM; and the CTA's remaining weights when the attention may start: the attention's keys fill the
// gap.
constexpr int kBesideAttention = 141 << 10;
constexpr int kLeftForAttention = 384 << 10;

int to_int(int64_t x) {
  return static_cast<int>(x);
}

// Bytes in a stage.
int weight_bytes(const PanelShape& shape, const PanelConfig& c) {
  return c.groups * c.slabs * 16 * panel_slab(shape.dtype).pitch;
}

}  // namespace

int64_t panel_k_stages(const PanelShape& shape, int slabs) {
  return ceil_div(shape.k, int64_t{panel_slab(shape.dtype).elems} * slabs);
}

PanelSmem panel_smem(const PanelShape& shape, const PanelConfig& c) {
  const PanelSlab slab = panel_slab(shape.dtype);
  const int tiles = panel_tiles(shape.tokens);
  PanelSmem s;
  s.x = to_int(round_up(weight_bytes(shape, c), 1024));
  s.stage = s.x + c.slabs * (slab.elems / kPanelXSlab) * tiles * kTileBytes;
  s.pitch = 16 * c.groups + 4;  // a quad's tokens lie in separate banks
  const int sums = panel_ways(c.groups, shape.tokens) * 8 * tiles * s.pitch * to_int(sizeof(float));
  s.barriers = std::max(c.stages * s.stage, to_int(round_up(sums, 128)));
  s.total = s.barriers + 2 * c.stages * to_int(sizeof(uint64_t));
  return s;
}

bool panel_takes(const PanelShape& shape, const SkinnyDevice& device) {
  return device.compute_capability == 90 && shape.aligned && !shape.normed &&
         panel_slab(shape.dtype).elems > 0 && shape.k % kPanelXSlab == 0 &&
         shape.tokens <= (shape.dtype == DType::bf16 ? kPanelMaxTokens : kPanelWarpTokens);
}

bool panel_fits(const PanelShape& shape, const PanelConfig& c, const SkinnyDevice& device) {
  if (c.groups < 1 || c.groups > kPanelMaxGroups) return false;
  if (c.slabs < 1 || c.slabs > 8 || c.stages < 2 || c.stages > kPanelMaxStages) return false;
  if (c.trigger < 0) return false;
  if (c.split < 1 || c.split > 8 || c.split > panel_k_stages(shape, c.slabs)) return false;
  return panel_smem(shape, c).total <= device.smem_per_cta;
}

int64_t panel_clusters(const PanelShape& shape, const PanelConfig& c) {
  int64_t clusters = 0;
  for (const int64_t groups : shape.groups) clusters += ceil_div(groups, c.groups);
  return clusters;
}

namespace {

// The fewest groups per CTA that need at most `ctas` CTAs.
int fewest_groups(const PanelShape& shape, int ctas) {
  int groups = 1;
  while (groups < kPanelMaxGroups && panel_clusters(shape, {.groups = groups}) > ctas) ++groups;
  return groups;
}

// Takes the longest stages, from `slabs` down, such that `least` fit; then as many as fit.
void fill_ring(const PanelShape& shape, int slabs, int least, int bytes, PanelConfig& c) {
  const auto fits = [&](int stages) {
    c.stages = stages;
    return panel_smem(shape, c).total <= bytes;
  };
  for (c.slabs = slabs; c.slabs > 1 && !fits(least); c.slabs /= 2) continue;
  int stages = kPanelMaxStages;
  while (stages > 2 && !fits(stages)) --stages;
  c.stages = stages;
}

}  // namespace

PanelConfig panel_cut(const PanelShape& shape, int groups, int split, int bytes) {
  PanelConfig c{.groups = groups, .split = split};
  fill_ring(shape, 4, 3, bytes, c);
  while (c.slabs > 1 && split > panel_k_stages(shape, c.slabs)) c.slabs /= 2;
  c.trigger = c.stages;
  return c;
}

namespace {

// Fitted to an H200: every panel reads x, as large as 4 groups of weights, so panels are as tall as
// a CTA per SM makes panels, or two CTAs with tall panels each. Thin panels have K divided by two.
PanelConfig choose_wide(const PanelShape& shape, const SkinnyDevice& device) {
  constexpr int kTall = 6, kThin = 2;
  const int sms = device.num_sms;
  const int halves = fewest_groups(shape, 2 * sms);
  const int64_t ctas = panel_clusters(shape, {.groups = halves});
  if (halves >= kTall && ctas <= 2 * sms && ctas * 20 >= 19 * 2 * sms) {
    return panel_cut(shape, halves, 1, kHalf);
  }
  const int groups = fewest_groups(shape, sms);
  const bool thin = groups <= kThin && shape.k >= 8 * kPanelXSlab;
  return thin ? panel_cut(shape, fewest_groups(shape, sms / 2), 2, device.smem_per_cta)
              : panel_cut(shape, groups, 1, device.smem_per_cta);
}

}  // namespace

// Fitted to an H200 (docs/log/measurements.md). Two CTAs share an SM, if panels of few groups then
// fill the GPU; the next launch's CTAs come in one by one. Otherwise a single CTA fills an SM.
PanelConfig choose_panel(const PanelShape& shape, const SkinnyDevice& device) {
  if (panel_wide(shape.tokens)) return choose_wide(shape, device);
  const int sms = device.num_sms;
  const bool attended = shape.groups[2] > 0 && !is_quantized(shape.dtype);  // q, k and v
  PanelConfig c;
  int ctas = 2 * sms;
  // x is read again for every panel.
  const auto raise = [&] {
    if (c.groups == 1 && panel_clusters(shape, {.groups = 2}) * 2 > sms) c.groups = 2;
  };
  if (is_quantized(shape.dtype)) {
    c.groups = panel_clusters(shape, {.groups = 4}) >= sms ? 4 : 1;
    raise();
    fill_ring(shape, 2, 2, kThird, c);
  } else {
    int bytes = kHalf;
    c.groups = fewest_groups(shape, ctas);
    raise();
    if (attended || c.groups > 3 || panel_clusters(shape, c) * 10 < 9 * ctas) {
      ctas = sms;
      c.groups = fewest_groups(shape, ctas);
      raise();
      bytes = attended ? std::min(kBesideAttention, device.smem_per_cta) : device.smem_per_cta;
    }
    fill_ring(shape, 4, 3, bytes, c);
  }
  while (c.split < 8 && panel_clusters(shape, c) * c.split * 2 <= ctas &&
         panel_k_stages(shape, c.slabs) >= c.split * 4) {
    c.split *= 2;
  }
  c.trigger = c.stages;
  if (attended) c.trigger = kLeftForAttention / weight_bytes(shape, c);
  return c;
}

std::string to_string(const PanelConfig& c) {
  return fmt::format("panel {} groups, k / {}, {} x {} slabs", c.groups, c.split, c.stages,
                     c.slabs);
}

}  // namespace braid::cuda
