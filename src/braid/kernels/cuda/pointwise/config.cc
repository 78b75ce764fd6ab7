#include "braid/kernels/cuda/pointwise/config.h"

#include <algorithm>
#include <bit>

#include "braid/base/error.h"
#include "braid/base/math.h"

namespace braid::cuda {
namespace {

constexpr int kChunks[] = {1, 2, 4};

int power_of_two_lanes(int64_t threads) {
  return static_cast<int>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(threads, 1))));
}

// Threads for `vectors` in a row with `chunks` each: whole warps above one.
int lanes_for(int64_t vectors, int chunks) {
  const int64_t threads = ceil_div(vectors, chunks);
  if (threads <= 32) return power_of_two_lanes(threads);
  return static_cast<int>(std::min<int64_t>(round_up(threads, 32), 1 << 20));
}

RowsConfig with_rows(int lanes, int chunks, int threads) {
  return {.lanes = lanes, .rows_per_cta = lanes > 32 ? 1 : threads / lanes, .chunks = chunks};
}

// Few enough rows that each finds an SM for itself.
bool few_rows(const RowsDesc& desc, int num_sms) {
  return desc.rows <= 2 * num_sms;
}

}  // namespace

std::vector<RowsConfig> map_candidates(const RowsDesc& desc) {
  std::vector<RowsConfig> out;
  const int64_t vectors = desc.cols / desc.vector;
  for (int chunks : kChunks) {
    for (int threads : {128, 256, 512}) {
      const int lanes = std::min(lanes_for(vectors, chunks), threads);
      const RowsConfig config = with_rows(lanes, chunks, threads);
      if (std::find(out.begin(), out.end(), config) == out.end()) out.push_back(config);
    }
  }
  return out;
}

std::vector<RowsConfig> norm_candidates(const RowsDesc& desc) {
  std::vector<RowsConfig> out;
  const int64_t vectors = desc.cols / desc.vector;
  for (int chunks : kChunks) {
    const int lanes = lanes_for(vectors, chunks);
    if (lanes > 1024) continue;
    if (desc.vector > 1) out.push_back(with_rows(lanes, chunks, 128));
  }
  if (out.empty()) out.push_back(with_rows(std::min(lanes_for(vectors, 4), 1024), 0, 128));
  return out;
}

RowsConfig choose_map(const RowsDesc& desc, int num_sms) {
  const int64_t vectors = desc.cols / desc.vector;
  int threads = 128, chunks = 1;
  if (!few_rows(desc, num_sms)) {
    threads = desc.vector == 8 ? 512 : 256;
    // Four accesses a thread if each SM then still has enough CTAs to even out.
    const bool many = desc.rows * ceil_div(vectors, threads * 4) >= int64_t{16} * num_sms;
    chunks = desc.vector < 8 && many ? 4 : 2;
  }
  return with_rows(std::min(lanes_for(vectors, chunks), threads), chunks, threads);
}

RowsConfig choose_norm(const RowsDesc& desc, int num_sms) {
  const std::vector<RowsConfig> all = norm_candidates(desc);
  if (!few_rows(desc, num_sms)) return all.back();
  for (const RowsConfig& config : all) {
    if (config.lanes <= 512) return config;
  }
  return all.back();
}

std::string to_string(const RowsConfig& config) {
  return fmt::format("{} lanes x {} rows, {} chunks", config.lanes, config.rows_per_cta,
                     config.chunks);
}

RopeConfig choose_rope(const RopeDesc& desc, int num_sms) {
  if (desc.head_dim < 2 || desc.head_dim % 2 != 0 || desc.head_dim > kMaxRopeHeadDim) {
    fail(ErrorCode::kUnsupported, "rope: head_dim {}; even ones up to {} are supported",
         desc.head_dim, kMaxRopeHeadDim);
  }
  if (desc.rotary_dim < 0 || desc.rotary_dim > desc.head_dim || desc.rotary_dim % 2 != 0) {
    fail(ErrorCode::kInvalidArgument, "rope: rotary_dim {} of head_dim {}", desc.rotary_dim,
         desc.head_dim);
  }
  RopeConfig config;
  int threads = 128;
  if (desc.aligned && desc.head_dim % 16 == 0 && desc.rotary_dim % 16 == 0) {
    config.vector = 8;
    config.lanes = power_of_two_lanes(desc.head_dim / 16);
    if (desc.tokens > 16 * num_sms) {
      // The angles, the norms' weights and most addresses serve all heads of a thread.
      config.heads_per_row = 4;
      threads = 256;
    }
  } else {
    config.units = kMaxRopeHeadDim / 2 / 32;
  }
  const int warp = 32 / config.lanes;
  const int64_t rows =
      round_up(ceil_div(std::max<int64_t>(desc.heads, 1), config.heads_per_row), warp);
  config.rows = static_cast<int>(std::min<int64_t>(rows, threads / config.lanes));
  return config;
}

std::string to_string(const RopeConfig& config) {
  return fmt::format("vector {} x {}, {} lanes x {} rows x {} heads", config.vector, config.units,
                     config.lanes, config.rows, config.heads_per_row);
}

}  // namespace braid::cuda
