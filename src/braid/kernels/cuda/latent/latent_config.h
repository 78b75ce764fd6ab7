#pragma once

#include <cstdint>
#include <string>

// How latent attention, absorbed, is computed on a GPU: shape + device -> config. Pure host code.
//
// A query and head is a row; rows of a sequence follow each other, heads innermost. A CTA has a
// block of rows and a share of its keys: it reads a key once for all its rows, which tensor cores
// multiply, and keeps a running softmax. Shares of one block are merged in their order.
namespace braid::cuda {

constexpr int kMaxLatent = 512;       // R
constexpr int kMaxLatentWidth = 576;  // R + Dr
constexpr int kMaxLatentShares = 64;

struct LatentShape {
  int64_t tokens = 1;     // capacity
  int64_t sequences = 1;  // capacity
  int64_t heads = 1;
  int64_t latent = 0;  // R
  int64_t rope = 0;    // Dr
};

struct LatentConfig {
  int rows = 16;   // of a block: 16, 32 or 64
  int shares = 1;  // of its keys
  bool operator==(const LatentConfig&) const = default;
};

struct LatentDevice {
  int num_sms = 132;
  int64_t shared_bytes = 232448;  // of a CTA
};

// Keys that a CTA multiplies at a time.
constexpr int latent_keys(int rows) {
  return rows == 64 ? 48 : 64;
}

// Where things are in a CTA's shared memory, in bytes; queries are at 0. Rows of queries and keys
// are elements `pitch` apart: zeros up to a whole step of 32, and 8 more, so that rows of a matrix
// lie in banks of their own.
struct LatentSmem {
  int width = 0;   // elements of a row
  int pitch = 0;   // elements
  int keys = 0;    // bf16 [2, latent_keys, pitch]
  int scores = 0;  // f32 [rows, latent_keys + 1]
  int probs = 0;   // bf16 [rows, latent_keys + 8]
  int states = 0;  // f32 [3, rows]
  int total = 0;
};
constexpr LatentSmem latent_smem(int rows, int latent, int rope) {
  const int n = latent_keys(rows);
  LatentSmem s;
  s.width = (latent + rope + 31) / 32 * 32;
  s.pitch = s.width + 8;
  s.keys = rows * s.pitch * 2;
  s.scores = s.keys + 2 * n * s.pitch * 2;
  s.probs = s.scores + (rows * (n + 1) * 4 + 15) / 16 * 16;
  s.states = s.probs + rows * (n + 8) * 2;
  s.total = s.states + 3 * rows * 4;
  return s;
}

// Blocks of all sequences, at most.
int64_t latent_blocks(const LatentShape& shape, int rows);

// What the shares leave for their merge: f32 [shares, tokens, heads, R] sums, then [.., 2] maxima
// and totals. None where there is one share.
int64_t latent_workspace_bytes(const LatentShape& shape, const LatentConfig& config);

// Fails with kUnsupported on widths that no kernel has, or that a CTA's memory does not hold.
LatentConfig choose_latent(const LatentShape& shape, const LatentDevice& device);

std::string to_string(const LatentConfig& config);  // "latent 16 rows, keys / 8"

}  // namespace braid::cuda
