#pragma once

#include <string>
#include <vector>

#include "braid/kernels/cuda/comm/collective.h"

// Which algorithm moves a collective, and with how many CTAs: desc -> candidates -> config. Pure,
// and equal on all ranks, for they must choose alike.
//
// Floors, n bytes, P ranks, one way per GPU w = 370 GB/s by SMs (395 by copy engine), t = 0.7 us
// for a store to become visible on the peer, k = 1.3 us for a kernel in a graph:
//   one-shot all_reduce           k + t + (P - 1) n / w
//   two-shot all_reduce           k + 2 t + 2 (P - 1) / P n / w
//   reduce_scatter, all_gather,   k + t + (P - 1) / P n / w, and t more where flags and not lines
//   all_to_all                    say what is there
// At P = 2 one-shot and two-shot move the same bytes: there lines lose only by what they carry
// beside data (16 bytes for 8 or 12; those of 16 carry nothing, and are emptied by who reads them)
// and by their way through staging memory.
namespace braid::cuda {

struct CollectiveConfig {
  CommAlgorithm algorithm = CommAlgorithm::line;
  int ctas = 1;        // all spin: they must be resident together
  int threads = 256;   // per CTA, a multiple of 32
  int line_data = 8;   // line: bytes of data in a line, 8, 12 or, in one-unit messages, 16
  int unroll = 4;      // direct: 16-byte loads in flight for each thread and peer, 4 or 8
  double cost_us = 0;  // the estimate that `choose` compares
  bool operator==(const CollectiveConfig&) const = default;
};
std::string to_string(const CollectiveConfig& config);  // "line12 16x256", "direct 32x512 u4"

constexpr int kMaxCommCtas = 128;
constexpr int kMaxCommThreads = 512;

// Limits of the choice.
struct CommLimits {
  int64_t line_bytes = 1 << 20;  // payload between two ranks that the staging holds
  int max_ctas = 64;             // SMs free of other kernels, with kMaxCommThreads each
  bool across_machines = false;  // emulated: everything is staged
};

// All configs for the collective, in a fixed order; throws kUnsupported without any: past
// `line_bytes` memory must be symmetric.
std::vector<CollectiveConfig> candidates(const CollectiveDesc& desc, const CommLimits& limits);

// The candidate with the least estimated cost.
CollectiveConfig choose(const CollectiveDesc& desc, const CommLimits& limits);

// Throws, naming the fault, unless `config` can move the collective.
void verify(const CollectiveDesc& desc, const CollectiveConfig& config, const CommLimits& limits);

// Lines of each thread, 1, 2 or 4, in an all_reduce by lines of 12 or 16 bytes with a unit per
// thread, all of whole 16 bytes: with x and y aligned alike, a special kernel serves the call. 0
// for any other call.
int lines_at_once(const CollectiveDesc& desc, const CollectiveConfig& config);

// Bytes of the largest line message between two ranks.
int64_t line_payload(const CollectiveDesc& desc);

// all_reduce + add + rms_norm of [rows, cols]: `spread` CTAs for a row. Each CTA sends and writes a
// share of the row and sums the whole row: no CTA waits for another's squares.
struct ReduceNormConfig {
  int spread = 1;
  int threads = 256;   // of a CTA, at most kMaxCommThreads
  int units = 1;       // of 8 elements for each thread: 1, 2 or 4; threads * units cover a row
  int row_groups = 1;  // of the grid: group g takes rows g, g + row_groups, ...
  bool operator==(const ReduceNormConfig&) const = default;
};
std::string to_string(const ReduceNormConfig& config);  // "8 rows x 4 CTAs x 512 threads x 1"

// Throws kUnsupported unless cols is a multiple of 8 and at most 16384. In place (s is
// r) the launch takes spread as 1: a row's CTAs would otherwise read each other's
// output.
ReduceNormConfig choose_reduce_norm(int64_t rows, int64_t cols, const CommLimits& limits);

// The same where the residual is divided over tokens: spread 1. Throws alike.
ReduceNormConfig choose_scatter_norm(int64_t rows, int64_t cols, int ranks,
                                     const CommLimits& limits);

}  // namespace braid::cuda
