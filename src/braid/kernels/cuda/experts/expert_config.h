#pragma once

#include <cstdint>
#include <string>

#include "braid/tensor/dtype.h"

// Choice of a kernel for products over experts' rows: shape + device -> config. Pure host code.
//
// stream: a CTA takes units of 32 rows of an expert's weights (16 rows each of gate and up) and up
// to 32 rows of x. Warps read weights from memory into registers and share K. Any dtype.
// tiles: 128 rows of x by 256 rows of weights (128 each of gate and up), multiplied by warpgroups
// on a Hopper GPU. Pairs of CTAs, on all SMs, deal themselves tiles by the counts in device memory.
namespace braid::cuda {

constexpr int kExpertWarps = 8;
constexpr int kStreamUnitRows = 32;   // weight rows
constexpr int kStreamBlockRows = 32;  // most rows of x
constexpr int kTileRows = 128;        // rows of x
constexpr int kTileColumns = 256;     // rows of weights
constexpr int kTileK = 64;
constexpr int kTileStages = 4;

struct ExpertShape {
  DType dtype = DType::bf16;  // the weights'
  int64_t experts = 1;
  int64_t n = 0;  // columns of y
  int64_t k = 0;
  int64_t rows = 1;         // capacity over all experts
  int64_t rows_of_one = 1;  // each expert's capacity
  bool gated = false;
  bool aligned = true;    // rows of x and weights start at multiples of 16 bytes
  bool y_aligned = true;  // rows of y likewise: tiles want that
  bool by_begin = true;   // rows lie by expert; else each expert has all rows
};

struct ExpertDevice {
  int compute_capability = 90;
  int num_sms = 132;
};

enum class ExpertForm : uint8_t { stream, tiles };

struct ExpertConfig {
  ExpertForm form = ExpertForm::stream;
  int ways = 8;  // warps sharing K: 1, 2, 4 or 8
  int ctas = 132;
  bool operator==(const ExpertConfig&) const = default;
};

// Whether the tiles kernel takes the shape: bf16, aligned, K in whole steps of 64, Hopper.
bool tiles_take(const ExpertShape& shape, const ExpertDevice& device);

ExpertConfig choose_experts_form(const ExpertShape& shape, const ExpertDevice& device);

std::string to_string(const ExpertConfig& config);  // "stream k / 8, 264 ctas", "tiles, 132 ctas"

}  // namespace braid::cuda
