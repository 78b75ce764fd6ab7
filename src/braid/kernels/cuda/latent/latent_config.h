#pragma once

#include <cstdint>
#include <string>

// Choice of blocks for absorbed latent attention on a GPU: shape + device -> config. Pure host
// code.
//
// A row is a query and a head; rows of a sequence follow each other, heads innermost. A CTA has a
// block of rows and a share of their keys: a key is read once for all rows of the block, tensor
// cores multiply, and each row keeps a running softmax. Shares of a block are merged in order.
namespace braid::cuda {

constexpr int kMaxLatent = 512;       // R
constexpr int kMaxLatentWidth = 576;  // R + Dr
constexpr int kMaxLatentShares = 64;
constexpr int kLatentStaticBytes = 1024;  // shared memory, beside LatentSmem

struct LatentShape {
  int64_t tokens = 1;     // capacity
  int64_t sequences = 1;  // capacity
  int64_t heads = 1;
  int64_t latent = 0;  // R
  int64_t rope = 0;    // Dr
};

struct LatentConfig {
  int rows = 16;   // per block: 16, 32 or 64
  int shares = 1;  // shares of its keys
  bool operator==(const LatentConfig&) const = default;
};

struct LatentDevice {
  int num_sms = 132;
  int64_t shared_bytes = 232448;  // per CTA
};

// Keys per step of a CTA.
constexpr int latent_keys(int rows) {
  return rows == 64 ? 48 : 64;
}

// Byte offsets into a CTA's shared memory; queries are at 0. A row of queries or keys has zeros up
// to a whole step of 32, and 8 elements more: rows of a matrix then lie in different banks.
struct LatentSmem {
  int width = 0;   // elements per row
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

// The plain form, for a prompt alone: the context's latents are brought together, a product makes
// the keys and values of all heads, and segment attention meets turned queries.
struct LatentPlainShape {
  int64_t tokens = 1, sequences = 1;  // capacities
  int64_t keys = 1;                   // likewise, in a sequence
  int64_t heads = 1;
  int64_t nope = 0, rope = 0, value = 0, latent = 0;  // Dn, Dr, Dv, R
};
constexpr int64_t kFewestPlainRows = 256;              // tokens
constexpr int64_t kMostPlainBytes = int64_t{2} << 30;  // scratch

// Byte offsets into scratch, each a multiple of 256.
struct LatentPlainScratch {
  explicit LatentPlainScratch(const LatentPlainShape& shape);
  int64_t keys = 0;     // bf16 [keys, H, Dn + Dr + Dv]
  int64_t queries = 0;  // bf16 [T, H, Dn + Dr]
  int64_t begin = 0;    // i32 [2]: 0 and this step's keys
  int64_t spans = 0;    // i32 [4], from query_spans
  int64_t total = 0;    // latents are first: bf16 [keys, R + Dr]
};

// Whether a step with this capacity takes the plain form: enough tokens of a sequence, heads that
// segment attention knows, and scratch within kMostPlainBytes.
bool takes_latent_plain(const LatentPlainShape& shape);

// The most blocks over all sequences.
int64_t latent_blocks(const LatentShape& shape, int rows);

// Scratch between shares and merge: f32 sums [shares, tokens, heads, R], then maxima and totals
// [shares, tokens, heads, 2]. None for one share.
int64_t latent_workspace_bytes(const LatentShape& shape, const LatentConfig& config);

// Fails with kUnsupported on widths outside of kMaxLatent and kMaxLatentWidth, or beyond the
// device's shared memory.
LatentConfig choose_latent(const LatentShape& shape, const LatentDevice& device);

std::string to_string(const LatentConfig& config);  // "latent 16 rows, keys / 8"

}  // namespace braid::cuda
