#pragma once

#include <cuda.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace braid::cuda {

// A dimension of a tensor in device memory for sm_90's copy engine, innermost first.
struct MapDim {
  int64_t size = 1;   // elements; beyond, a box takes zeros
  int64_t bytes = 0;  // from an element to the next, a multiple of 16; ignored for the innermost
  int box = 1;        // elements of a copy, at most 256
};

// L2's fetch size on a miss: 256 bytes if neighbours are read soon, 128 for data that streams by in
// pieces of at least this length (wider, weights are 2 to 4% slower on an H200).
constexpr CUtensorMapL2promotion kMapWide = CU_TENSOR_MAP_L2_PROMOTION_L2_256B;
constexpr CUtensorMapL2promotion kMapNarrow = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;

// A map for tensor copies (ptx/tma.h) of 2-byte elements. Fails with kUnsupported if the driver has
// no maps, and with kInvalidArgument, naming `what`, if the driver refuses these numbers.
CUtensorMap make_tensor_map(CUtensorMapDataType type, CUtensorMapSwizzle swizzle,
                            CUtensorMapL2promotion l2, const void* data,
                            std::span<const MapDim> dims, std::string_view what);

}  // namespace braid::cuda
