#pragma once

#include <cstdint>
#include <string>

#include "braid/tensor/dtype.h"

// How a product of experts' rows is computed: shape + device -> config. Pure host code.
//
// `stream`: a CTA has units of 32 rows of an expert's weights (of a gated pair 16 of each) and up
// to 32 rows of x; warps go through them straight from memory and share K. Weights of any dtype.
// `tiles`: 128 rows of x by 256 of weights (of a gated pair 128 of each), by warpgroups of a Hopper
// GPU; a CTA for each SM deals itself tiles by the counts that it finds in device memory.
namespace braid::cuda {

constexpr int kExpertWarps = 8;
constexpr int kStreamUnitRows = 32;   // of weights
constexpr int kStreamBlockRows = 32;  // of x, at most
constexpr int kTileRows = 128;        // of x
constexpr int kTileColumns = 256;     // rows of weights
constexpr int kTileK = 64;
constexpr int kTileStages = 4;

struct ExpertShape {
  DType dtype = DType::bf16;  // of the weights
  int64_t experts = 1;
  int64_t n = 0;  // columns of y
  int64_t k = 0;
  int64_t rows = 1;         // of all experts at most
  int64_t rows_of_one = 1;  // of one expert at most
  bool gated = false;
  bool aligned = true;   // rows of x, y and weights start at multiples of 16 bytes
  bool by_begin = true;  // rows of experts follow each other; else each expert has them all
};

struct ExpertDevice {
  int compute_capability = 90;
  int num_sms = 132;
};

enum class ExpertForm : uint8_t { stream, tiles };

struct ExpertConfig {
  ExpertForm form = ExpertForm::stream;
  int ways = 8;  // warps that share K: 1, 2, 4 or 8
  int ctas = 132;
  bool operator==(const ExpertConfig&) const = default;
};

// Whether the kernel of tiles computes it.
bool tiles_take(const ExpertShape& shape, const ExpertDevice& device);

ExpertConfig choose_experts_form(const ExpertShape& shape, const ExpertDevice& device);

std::string to_string(const ExpertConfig& config);  // "stream k / 8, 264 ctas", "tiles, 132 ctas"

}  // namespace braid::cuda
