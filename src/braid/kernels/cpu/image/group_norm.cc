#include "braid/kernels/cpu/image/group_norm.h"

#include <algorithm>
#include <cmath>

#include "braid/base/error.h"
#include "braid/kernels/cpu/dispatch.h"

namespace braid::cpu {

// sums, squares [C]: sums of (x - pivot) and its square over `rows` rows of x [rows, C].
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

// A thread's part in the sums over `rows` of a picture.
void add_up(const GroupNormParams& p, const float* picture, const Range& rows, const Own& own,
            Isa isa) {
  const auto sum_rows = pick_isa(isa, BRAID_EACH_ISA(channel_sums));
  const int64_t C = p.channels;
  std::fill(own.sums, own.sums + (2 * C), 0.0);
  for (int64_t row = rows.begin; row < rows.end; row += kRows) {
    sum_rows(picture + (row * C), picture, std::min(kRows, rows.end - row), C, own.first,
             own.second);
    for (int64_t c = 0; c < C; ++c) {
      own.sums[c] += own.first[c];
      own.squares[c] += own.second[c];
    }
  }
}

// A group's moments, from all threads' sums. Uses own.first for the group's channels.
GroupMoments moments_of(const GroupNormParams& p, const float* pivot, std::byte* scratch,
                        int threads, const Own& own, int64_t group) {
  const int64_t per_group = p.channels / p.groups, begin = group * per_group;
  const auto pixels = static_cast<double>(p.pixels);
  double mean = 0, square = 0;
  for (int64_t c = begin; c < begin + per_group; ++c) {
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
  for (int64_t c = begin; c < begin + per_group; ++c) {
    const double d = double{own.first[c]} + pivot[c] - mean;
    between += d * d;
  }
  return {mean, std::max(0.0, square + between) / static_cast<double>(per_group)};
}

// The scale and the shift of a group's channels.
void set_scale(const GroupNormParams& p, int64_t group, const GroupMoments& m, const Own& own) {
  const int64_t per_group = p.channels / p.groups, begin = group * per_group;
  const double inverse = 1 / std::sqrt(m.variance + p.eps);
  for (int64_t c = begin; c < begin + per_group; ++c) {
    own.first[c] = static_cast<float>(inverse * p.w[c]);
    own.second[c] = static_cast<float>(p.b[c] - (m.mean * inverse * p.w[c]));
  }
}

void scale_rows(const GroupNormParams& p, int64_t first, int64_t rows, const Own& own, Isa isa) {
  const int64_t at = first * p.channels;
  pick_isa(isa, BRAID_EACH_ISA(scale_channels))(p.x + at, own.first, own.second, rows, p.channels,
                                                p.silu, p.y + at);
}

void require_groups(const GroupNormParams& p) {
  BRAID_CHECK(p.groups > 0 && p.channels % p.groups == 0, "{} channels in {} groups", p.channels,
              p.groups);
}

}  // namespace

int64_t group_norm_scratch_bytes(int64_t channels, int threads) {
  return threads * own_bytes(channels);
}

void group_norm(const GroupNormParams& p, std::byte* scratch, const Team& team, Isa isa) {
  require_groups(p);
  const Own own = own_part(scratch, p.channels, team.index);
  const Range rows = team.share(p.pixels);
  for (int64_t picture = 0; picture < p.batch; ++picture) {
    const float* pivot = p.x + (picture * p.pixels * p.channels);
    add_up(p, pivot, rows, own, isa);
    team.barrier();
    for (int64_t g = 0; g < p.groups; ++g) {
      set_scale(p, g, moments_of(p, pivot, scratch, team.count, own, g), own);
    }
    team.barrier();  // y may be x, whose first pixel the others need; and sums are used again
    scale_rows(p, (picture * p.pixels) + rows.begin, rows.size(), own, isa);
  }
}

void group_stats(const GroupNormParams& p, float* stats, std::byte* scratch, const Team& team,
                 Isa isa) {
  require_groups(p);
  const Own own = own_part(scratch, p.channels, team.index);
  add_up(p, p.x, team.share(p.pixels), own, isa);
  team.barrier();
  if (team.index != 0) return;
  const auto n = static_cast<double>(p.pixels * (p.channels / p.groups));
  for (int64_t g = 0; g < p.groups; ++g) {
    const GroupMoments m = moments_of(p, p.x, scratch, team.count, own, g);
    stats[g] = static_cast<float>(m.mean);
    stats[p.groups + g] = static_cast<float>(m.variance * n);
  }
}

void group_norm_by(const GroupNormParams& p,
                   const std::function<GroupMoments(int64_t group)>& moments, std::byte* scratch,
                   const Team& team, Isa isa) {
  require_groups(p);
  const Own own = own_part(scratch, p.channels, team.index);
  for (int64_t g = 0; g < p.groups; ++g) set_scale(p, g, moments(g), own);
  const Range rows = team.share(p.pixels);
  scale_rows(p, rows.begin, rows.size(), own, isa);
}

}  // namespace braid::cpu
