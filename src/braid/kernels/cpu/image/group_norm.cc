#include "braid/kernels/cpu/image/group_norm.h"

#include <algorithm>
#include <cmath>

#include "braid/base/error.h"
#include "braid/kernels/cpu/dispatch.h"

namespace braid::cpu {

// sums, squares [C]: of (x - pivot) and its square over `rows` rows of x [rows, C].
BRAID_DECLARE_PER_ISA(void channel_sums(const float* x, const float* pivot, int64_t rows,
                                        int64_t channels, float* sums, float* squares))
// y = x * scale + shift over rows [rows, C], then y / (1 + e^-y) where asked.
BRAID_DECLARE_PER_ISA(void scale_channels(const float* x, const float* scale, const float* shift,
                                          int64_t rows, int64_t channels, bool silu, float* y))

namespace {

constexpr int64_t kRows = 64;  // pixels whose sums are f32

// A thread's part of the scratch.
struct Own {
  double* sums;     // [C]
  double* squares;  // [C]
  float* first;     // [C], sums over a few pixels, later the scale
  float* second;    // [C], later the shift
};

int64_t own_bytes(int64_t channels) {
  return round_up(channels * static_cast<int64_t>(2 * sizeof(double) + 2 * sizeof(float)), 64);
}

Own own_part(std::byte* scratch, int64_t channels, int thread) {
  auto* sums = reinterpret_cast<double*>(scratch + (thread * own_bytes(channels)));
  auto* floats = reinterpret_cast<float*>(sums + (2 * channels));
  return {sums, sums + channels, floats, floats + channels};
}

// The scale and the shift of each channel, from the sums of all threads.
void make_scale(const GroupNormParams& p, const float* pivot, std::byte* scratch, int threads,
                const Own& own) {
  const int64_t per_group = p.channels / p.groups;
  const auto pixels = static_cast<double>(p.pixels);
  for (int64_t g = 0; g < p.channels; g += per_group) {
    double mean = 0, square = 0;  // of the group
    for (int64_t c = g; c < g + per_group; ++c) {
      double sum = 0, squares = 0;
      for (int t = 0; t < threads; ++t) {
        const Own part = own_part(scratch, p.channels, t);
        sum += part.sums[c];
        squares += part.squares[c];
      }
      const double offset = pivot[c];
      mean += (sum / pixels) + offset;
      // E[(x - m)^2] needs the channel's own moments around the pivot first.
      own.first[c] = static_cast<float>(sum / pixels);
      square += (squares / pixels) - ((sum / pixels) * (sum / pixels));
    }
    mean /= static_cast<double>(per_group);
    double between = 0;  // of the channels' means
    for (int64_t c = g; c < g + per_group; ++c) {
      const double d = double{own.first[c]} + pivot[c] - mean;
      between += d * d;
    }
    const double variance = std::max(0.0, square + between) / static_cast<double>(per_group);
    const double inverse = 1 / std::sqrt(variance + p.eps);
    for (int64_t c = g; c < g + per_group; ++c) {
      own.first[c] = static_cast<float>(inverse * p.w[c]);
      own.second[c] = static_cast<float>(p.b[c] - (mean * inverse * p.w[c]));
    }
  }
}

}  // namespace

int64_t group_norm_scratch_bytes(int64_t channels, int threads) {
  return threads * own_bytes(channels);
}

void group_norm(const GroupNormParams& p, std::byte* scratch, const Team& team, Isa isa) {
  BRAID_CHECK(p.groups > 0 && p.channels % p.groups == 0, "{} channels in {} groups", p.channels,
              p.groups);
  const auto sum_rows = pick_isa(isa, BRAID_EACH_ISA(channel_sums));
  const auto scale_rows = pick_isa(isa, BRAID_EACH_ISA(scale_channels));
  const int64_t C = p.channels;
  const Own own = own_part(scratch, C, team.index);
  const Range rows = team.share(p.pixels);
  for (int64_t picture = 0; picture < p.batch; ++picture) {
    const float* pivot = p.x + (picture * p.pixels * C);
    std::fill(own.sums, own.sums + (2 * C), 0.0);
    for (int64_t row = rows.begin; row < rows.end; row += kRows) {
      sum_rows(pivot + (row * C), pivot, std::min(kRows, rows.end - row), C, own.first, own.second);
      for (int64_t c = 0; c < C; ++c) {
        own.sums[c] += own.first[c];
        own.squares[c] += own.second[c];
      }
    }
    team.barrier();
    make_scale(p, pivot, scratch, team.count, own);
    team.barrier();  // y may be x, whose first pixel the others need; and sums are used again
    const int64_t at = ((picture * p.pixels) + rows.begin) * C;
    scale_rows(p.x + at, own.first, own.second, rows.size(), C, p.silu, p.y + at);
  }
}

}  // namespace braid::cpu
