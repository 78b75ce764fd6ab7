#pragma once

#include <cstdint>
#include <string>
#include <vector>

// How a pointwise kernel lays its rows over threads: desc -> candidates -> config. Pure host code.
namespace braid::cuda {

struct RowsDesc {
  int64_t rows = 0;  // capacity; of a norm: groups in all
  int64_t cols = 0;  // for a norm: columns of a group
  int vector = 1;    // elements of an access; divides cols
  bool operator==(const RowsDesc&) const = default;
};

// A row is `lanes` threads wide, and each thread holds `chunks` vectors in registers. A map cuts
// wider rows over CTAs. A norm needs whole rows: chunks = 0 means a row beyond a CTA's registers,
// read twice.
struct RowsConfig {
  int lanes = 32;        // threads per row: a power of two to 32, or whole warps
  int rows_per_cta = 1;  // 1 where lanes > 32
  int chunks = 1;        // 0, 1, 2 or 4
  bool operator==(const RowsConfig&) const = default;
};

// Everything the kernels take, in a fixed order.
std::vector<RowsConfig> map_candidates(const RowsDesc& desc);
std::vector<RowsConfig> norm_candidates(const RowsDesc& desc);

// Few rows: as many threads as a row can use (to 512), so each thread waits for memory once. Many
// rows: fewer threads with several accesses in flight, so an SM's CTAs overlap.
RowsConfig choose_map(const RowsDesc& desc, int num_sms);
RowsConfig choose_norm(const RowsDesc& desc, int num_sms);

std::string to_string(const RowsConfig& config);  // "256 lanes x 1 rows, 4 chunks"

struct RopeDesc {
  int64_t tokens = 0;  // capacity
  int64_t heads = 0;   // of a token: q, k and v
  int head_dim = 0;
  int rotary_dim = 0;    // 0: nothing turns
  bool aligned = false;  // all pointers and strides are multiples of 16 bytes
  bool operator==(const RopeDesc&) const = default;
};

// Each head is `lanes` threads wide, and each thread holds both vectors of a rotation.
struct RopeConfig {
  int vector = 1;         // 8, or 1 for other sizes or addresses
  int units = 1;          // pairs of vectors a thread holds: 1, or 8 with vector 1
  int lanes = 32;         // a power of two
  int rows = 1;           // of `lanes` threads in a CTA: whole warps, at most 256 threads
  int heads_per_row = 1;  // heads a thread works on: 1 for few tokens, else 4 (vector 8)
  bool operator==(const RopeConfig&) const = default;
};

constexpr int kMaxRopeHeadDim = 512;

// Fails with kUnsupported where head_dim is odd or above kMaxRopeHeadDim.
RopeConfig choose_rope(const RopeDesc& desc, int num_sms);
std::string to_string(const RopeConfig& config);

}  // namespace braid::cuda
