#pragma once

#include <cstdint>

// Between conv2d.cc, which is compiled for any machine, and conv2d_simd.cc, which is compiled for
// each Isa: plain structs and functions only.
namespace braid::cpu::conv2d_detail {

// Upper bounds over all machines, for buffers.
constexpr int kMaxPanel = 32;      // outputs per panel; a multiple of every panel
constexpr int kMaxTile = 12;       // pixels of a register tile
constexpr int kTiles = 8;          // register tiles of a group
constexpr int kChannelBlock = 16;  // channels of a pixel that lie together in a tile

struct Args {
  const float* x;         // [B * H * W, C]
  const float* before;    // [before_frames * H * W, C] or null
  const float* bias;      // [O] or null
  const float* residual;  // [B * out_height * out_width, O] or null
  float* y;
  int64_t height, width, out_height, out_width, stride, padding, padding_above, upsample;
  int64_t channels, outputs, kernel_frames, kernel_height, kernel_width, before_frames;
  int64_t frame_stride, frame_upsample, first_lacks;
  bool silu;
  const float* weights;  // packed, [panels][taps][C][panel]
  float* pixels;         // [kTiles][C / kChannelBlock][tile][kChannelBlock]: a tap's
  float* sums;           // [panels][kTiles][tile][panel]
};

struct Kernels {
  int panel;
  int tile;
  // Computes pixels [begin, end) of the output, at most kTiles tiles.
  void (*run)(const Args& args, int64_t begin, int64_t end);
};

}  // namespace braid::cpu::conv2d_detail
