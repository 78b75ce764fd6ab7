#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace braid::cuda {

// A dimension of a tensor in device memory as the copy engine of sm_90 sees it, innermost first.
struct MapDim {
  int64_t size = 1;   // elements; what a box takes from beyond arrives as zeros
  int64_t bytes = 0;  // from one to the next, a multiple of 16; of the innermost ignored
  int box = 1;        // elements of a copy, at most 256
};

// What L2 fetches where it has to: 256 bytes where their neighbours are read soon, 128 where data
// streams by in pieces as long and longer (wider, weights are 2 to 4% slower on an H200).
constexpr CUtensorMapL2promotion kMapWide = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
constexpr CUtensorMapL2promotion kMapNarrow = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;

// A map for tensor copies (ptx/tma.h) of 2-byte elements. Fails with kUnsupported where the driver
// has none, and with kInvalidArgument, naming `what`, where it refuses these numbers.
CUtensorMap make_tensor_map(CUtensorMapDataType type, CUtensorMapSwizzle swizzle,
                            CUtensorMapL2promotion l2, const void* data,
                            std::span<const MapDim> dims, std::string_view what);

}  // namespace braid::cuda
