#include "braid/kernels/cuda/comm/comm_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "braid/base/error.h"

namespace braid::cuda {
namespace {

bool is_sum(const CollectiveDesc& desc) {
  return desc.op == CollectiveOp::all_reduce || desc.op == CollectiveOp::reduce_scatter;
}

// The direct kernels reach into the peers' x (sums) and y (all but reduce_scatter).
bool direct_reaches(const CollectiveDesc& desc) {
  if (desc.ranks == 1) return true;
  return (!is_sum(desc) || desc.x_symmetric) &&
         (desc.op == CollectiveOp::reduce_scatter || desc.y_symmetric);
}

// Bytes that leave the busiest rank.
double sent_bytes(const CollectiveDesc& desc, CommAlgorithm algorithm) {
  double put = 0;
  double got_by_peers = 0;
  for (int peer = 1; peer < desc.ranks; ++peer) {
    put += volume(desc, algorithm, 0, peer).put;
    got_by_peers += volume(desc, algorithm, peer, 0).get;
  }
  return put + got_by_peers;
}

int64_t line_unit_bytes(const CollectiveConfig& c) {
  return c.line_data == 8 ? 16 : 48;
}

// Fitted to two H200 with programmatic launch.
double estimate_us(const CollectiveDesc& desc, const CollectiveConfig& c) {
  const double bytes = sent_bytes(desc, c.algorithm);
  const double more_ranks = .3 * std::max(0, desc.ranks - 2);
  switch (c.algorithm) {
    case CommAlgorithm::line: {
      if (const int lines = lines_at_once(desc, c); lines > 0) {
        return 1.38 + more_ranks + .05 * lines + .0002 * c.ctas + .00025 * c.threads +
               (c.line_data == 16 ? .05 : 0) + std::min(.25, bytes * 16e-6) +
               bytes * 16 / c.line_data / 350e3;
      }
      // A thread's second unit waits for its first: the whole message at once is best.
      const int64_t units = ceil_div(line_payload(desc), line_unit_bytes(c));
      const int64_t passes = std::max<int64_t>(1, ceil_div(units, int64_t{c.ctas} * c.threads));
      const double wire = bytes * 16 / c.line_data;
      const double rate = std::min(280e3, 90e3 * c.ctas * c.threads / 512.);
      return 2.05 + more_ranks + .004 * c.ctas + .0003 * c.threads + (c.line_data == 12 ? .2 : 0) +
             wire / rate + 1.2 * (passes - 1);
    }
    case CommAlgorithm::direct: {
      // For 8 CTAs of 256 threads with 4 loads each in flight.
      const double flight = c.ctas * c.threads * c.unroll / 8192.;
      const double rate = std::min(166e3 * flight, 335e3 - 75e3 / flight);
      return 5.2 + more_ranks + (c.threads == 512 ? .2 : 0) + (c.unroll == 8 ? .4 : 0) +
             bytes / rate;
    }
    case CommAlgorithm::copy_engine: {
      // The own part is copied after the others.
      const double own = desc.own_in_place ? 0 : static_cast<double>(desc.bytes()) / desc.ranks;
      return 17. + 2. * (desc.ranks - 2) + bytes / 391e3 + own / 2.1e6;
    }
    case CommAlgorithm::staged:
      return 40. + bytes / 50e3;  // a host link
  }
  return 0;
}

std::string refusal(const CollectiveDesc& desc, const CollectiveConfig& c,
                    const CommLimits& limits) {
  if (c.threads < 32 || c.threads > kMaxCommThreads || c.threads % 32 != 0) {
    return fmt::format("{} threads, must be a multiple of 32 up to {}", c.threads, kMaxCommThreads);
  }
  if (limits.across_machines != (c.algorithm == CommAlgorithm::staged)) {
    return limits.across_machines ? "ranks are on several machines" : "ranks are on one machine";
  }
  switch (c.algorithm) {
    case CommAlgorithm::line:
      if (c.line_data != 8 && c.line_data != 12 && c.line_data != 16) {
        return fmt::format("{} bytes of data in a line, must be 8, 12 or 16", c.line_data);
      }
      if (c.line_data == 16 && lines_at_once(desc, c) == 0) return "bare lines of several passes";
      if (line_payload(desc) > limits.line_bytes) {
        return fmt::format("{} bytes from one rank to another, staging holds {}",
                           line_payload(desc), limits.line_bytes);
      }
      break;
    case CommAlgorithm::direct:
      if (!direct_reaches(desc)) return "memory that peers cannot reach";
      if (c.unroll != 4 && c.unroll != 8) {
        return fmt::format("unroll of {}, must be 4 or 8", c.unroll);
      }
      break;
    case CommAlgorithm::copy_engine:
      if (is_sum(desc) || desc.live_rows) return "copy engines move fixed sizes and add nothing";
      if (!direct_reaches(desc)) return "memory that peers cannot reach";
      break;
    case CommAlgorithm::staged:
      break;
  }
  // Several small CTAs of the kernel for one-unit messages fit an SM.
  const int of_an_sm = lines_at_once(desc, c) > 0 ? kMaxCommThreads / c.threads : 1;
  const int most = std::min(kMaxCommCtas, limits.max_ctas * of_an_sm);
  if (c.ctas < 1 || c.ctas > most) {
    return fmt::format("{} CTAs, must be 1 to {}", c.ctas, most);
  }
  return {};
}

}  // namespace

int lines_at_once(const CollectiveDesc& desc, const CollectiveConfig& c) {
  const int64_t row_bytes = desc.cols * info(desc.dtype).block_bytes;
  if (desc.op != CollectiveOp::all_reduce || c.algorithm != CommAlgorithm::line ||
      c.line_data == 8 || desc.bytes() == 0 ||
      (desc.live_rows ? row_bytes : desc.bytes()) % 16 != 0) {
    return 0;
  }
  for (int lines = desc.ranks == 2 ? 1 : 4; lines <= 4; lines *= 2) {
    if (ceil_div(desc.bytes(), c.line_data * lines) <= int64_t{c.ctas} * c.threads) return lines;
  }
  return 0;
}

int64_t line_payload(const CollectiveDesc& desc) {
  if (desc.op == CollectiveOp::all_reduce) return desc.bytes();
  return ceil_div(desc.rows, desc.ranks) * desc.cols * info(desc.dtype).block_bytes;
}

std::vector<CollectiveConfig> candidates(const CollectiveDesc& desc, const CommLimits& limits) {
  verify(desc);
  std::vector<CollectiveConfig> out;
  const auto add = [&](CollectiveConfig c) {
    if (!refusal(desc, c, limits).empty()) return;
    c.cost_us = estimate_us(desc, c);
    out.push_back(c);
  };
  for (int line_data : {8, 12, 16}) {
    for (int ctas : {1, 2, 4, 8, 16, 32, 64, 128}) {
      for (int threads : {64, 128, 256, 512}) {
        add({.algorithm = CommAlgorithm::line,
             .ctas = ctas,
             .threads = threads,
             .line_data = line_data});
      }
    }
  }
  for (int ctas : {8, 16, 32, 64}) {
    add({.algorithm = CommAlgorithm::direct, .ctas = ctas, .threads = 256, .unroll = 4});
    add({.algorithm = CommAlgorithm::direct, .ctas = ctas, .threads = 512, .unroll = 8});
  }
  add({.algorithm = CommAlgorithm::copy_engine, .ctas = 1, .threads = 32});
  add({.algorithm = CommAlgorithm::staged, .ctas = 1, .threads = 256});
  if (out.empty()) {
    fail(ErrorCode::kUnsupported,
         "{}: no algorithm; {} bytes from one rank to another pass the {} of the staging memory, "
         "and larger ones need x and y in symmetric memory",
         to_string(desc), line_payload(desc), limits.line_bytes);
  }
  return out;
}

CollectiveConfig choose(const CollectiveDesc& desc, const CommLimits& limits) {
  const std::vector<CollectiveConfig> all = candidates(desc, limits);
  return *std::min_element(all.begin(), all.end(),
                           [](const auto& a, const auto& b) { return a.cost_us < b.cost_us; });
}

void verify(const CollectiveDesc& desc, const CollectiveConfig& config, const CommLimits& limits) {
  verify(desc);
  const std::string reason = refusal(desc, config, limits);
  if (!reason.empty()) {
    fail(ErrorCode::kUnsupported, "{} as {}: {}", to_string(desc), to_string(config), reason);
  }
}

std::string to_string(const CollectiveConfig& c) {
  switch (c.algorithm) {
    case CommAlgorithm::line:
      return fmt::format("line{} {}x{}", c.line_data, c.ctas, c.threads);
    case CommAlgorithm::direct:
      return fmt::format("direct {}x{} u{}", c.ctas, c.threads, c.unroll);
    case CommAlgorithm::copy_engine:
      return "copy_engine";
    case CommAlgorithm::staged:
      return "staged";
  }
  return "?";
}

std::string to_string(const ReduceNormConfig& c) {
  return fmt::format("{} rows x {} CTAs x {} threads x {}", c.row_groups, c.spread, c.threads,
                     c.units);
}

namespace {

ReduceNormConfig cover_row(const char* op, int64_t cols) {
  constexpr int64_t kMaxCols = int64_t{8} * kMaxCommThreads * 4;
  if (cols < 8 || cols % 8 != 0 || cols > kMaxCols) {
    fail(ErrorCode::kUnsupported, "{}: {} columns, must be a multiple of 8 up to {}", op, cols,
         kMaxCols);
  }
  const int64_t units = cols / 8;
  ReduceNormConfig c;
  c.units = units <= kMaxCommThreads ? 1 : units <= 2 * kMaxCommThreads ? 2 : 4;
  c.threads = static_cast<int>(round_up(ceil_div(units, c.units), 32));
  return c;
}

}  // namespace

ReduceNormConfig choose_reduce_norm(int64_t rows, int64_t cols, const CommLimits& limits) {
  ReduceNormConfig c = cover_row("all_reduce_add_rms_norm", cols);
  const int max_ctas = std::min(kMaxCommCtas, limits.max_ctas);
  // A few rows: each on several SMs, to send lines side by side. Many rows: an SM each.
  c.row_groups = static_cast<int>(std::clamp<int64_t>(rows, 1, max_ctas));
  while (c.spread < 4 && c.spread * 2 * c.row_groups <= max_ctas &&
         c.threads * c.units >= 128 * c.spread) {
    c.spread *= 2;
  }
  return c;
}

ReduceNormConfig choose_scatter_norm(int64_t rows, int64_t cols, int ranks,
                                     const CommLimits& limits) {
  ReduceNormConfig c = cover_row("reduce_scatter_add_rms_norm_all_gather", cols);
  c.row_groups = static_cast<int>(
      std::clamp<int64_t>(ceil_div(rows, ranks), 1, std::min(kMaxCommCtas, limits.max_ctas)));
  return c;
}

}  // namespace braid::cuda
