#include "braid/kernels/cuda/experts/expert_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "braid/base/math.h"

namespace braid::cuda {
namespace {

constexpr int64_t kStep = 32;  // elements of K
constexpr int64_t kStepsOfWarp = 4;

// Whether tiles are faster than units, as measured on an H100: from a row an expert on, where even
// choices give tiles to nine in ten SMs.
bool fills_with_tiles(const ExpertShape& s, const ExpertDevice& device) {
  if (s.rows < s.experts) return false;
  const auto E = static_cast<double>(s.experts);
  const double chosen = E * (1 - std::pow(1 - 1 / E, static_cast<double>(s.rows)));
  const int64_t parts = ceil_div(s.n, int64_t{s.gated ? kTileColumns / 2 : kTileColumns});
  const int64_t whole = s.rows / kTileRows;
  const double tiles = (chosen + static_cast<double>(whole)) * static_cast<double>(parts);
  return 10 * tiles >= 9.0 * device.num_sms;
}

}  // namespace

bool tiles_take(const ExpertShape& s, const ExpertDevice& device) {
  return device.compute_capability == 90 && s.dtype == DType::bf16 && s.aligned && s.y_aligned &&
         s.by_begin && s.k % kTileK == 0 && s.n % 8 == 0;
}

ExpertConfig choose_experts_form(const ExpertShape& s, const ExpertDevice& device) {
  if (fills_with_tiles(s, device) && tiles_take(s, device)) {
    return {.form = ExpertForm::tiles, .ways = 1, .ctas = device.num_sms / 2 * 2};
  }
  ExpertConfig c{.ways = kExpertWarps};
  while (c.ways > 1 && ceil_div(s.k, kStep) < c.ways * kStepsOfWarp) c.ways /= 2;
  const int64_t columns = s.gated ? kStreamUnitRows / 2 : kStreamUnitRows;
  // A block of x has rows of a single expert.
  const int64_t blocks = s.by_begin
                             ? std::min(s.rows, s.experts + s.rows / kStreamBlockRows)
                             : s.experts * ceil_div(s.rows_of_one, int64_t{kStreamBlockRows});
  const int64_t units = blocks * ceil_div(s.n, columns);
  c.ctas = static_cast<int>(std::clamp<int64_t>(ceil_div(units, int64_t{kExpertWarps} / c.ways), 1,
                                                2 * int64_t{device.num_sms}));
  return c;
}

std::string to_string(const ExpertConfig& c) {
  if (c.form == ExpertForm::tiles) return fmt::format("tiles, {} ctas", c.ctas);
  return fmt::format("stream k / {}, {} ctas", c.ways, c.ctas);
}

}  // namespace braid::cuda
