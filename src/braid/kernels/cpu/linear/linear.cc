#include "braid/kernels/cpu/linear/linear.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "braid/base/error.h"
#include "braid/kernels/cpu/linear/packs.h"

namespace braid::cpu {
namespace {

static_assert(kMaxStreamRows == linear_detail::kMaxStreamRows);

using linear_detail::activation_of;
using linear_detail::Codes;
using linear_detail::kCodeColumns;
using linear_detail::kernels;
using linear_detail::Kernels;
using linear_detail::Kind;
using linear_detail::kind_of;
using linear_detail::kRealColumns;
using linear_detail::kSharedPackElems;
using linear_detail::kTileMultiple;
using linear_detail::Packs;
using linear_detail::panel_scratch_bytes;
using linear_detail::RunArgs;
using linear_detail::WeightArgs;
using linear_detail::whole_chunk;

// Work items of unequal number per thread are accepted up to this much idle time.
constexpr double kMaxIdle = 0.1;

Kind panel_kind(const LinearDesc& desc) {
  for (const LinearDesc::Weight& w : desc.weights) {
    if (kind_of(w.dtype) == Kind::real) return Kind::real;
  }
  return Kind::minimum;
}

struct Scratch {
  int64_t pack = 0;        // bytes per packed x
  int64_t per_thread = 0;  // bytes for the panel path's buffers
  bool shared = false;
  int64_t total(int threads) const { return (shared ? 1 : threads) * pack + threads * per_thread; }
};

Scratch scratch_of(const LinearConfig& config, const Packs& packs, Kind kind, int64_t M, int64_t K,
                   Gate gate) {
  return {.pack = packs.bytes(M, K),
          .per_thread = config.path == LinearPath::panel
                            ? panel_scratch_bytes(config.chunk, config.k_block, kind, gate)
                            : 0,
          .shared = config.shared_pack};
}

void validate(const LinearParams& p) {
  const auto count = static_cast<int64_t>(p.weights.size());
  if (count < 1 || count > kMaxLinearWeights) {
    fail(ErrorCode::kInvalidArgument, "linear: {} weights, allowed are 1 to {}", count,
         kMaxLinearWeights);
  }
  if (p.M < 0 || p.K < 1 || p.ldx < p.K) {
    fail(ErrorCode::kInvalidArgument, "linear: x [{}, {}] with rows {} apart", p.M, p.K, p.ldx);
  }
  if (p.gate != Gate::none && (count != 2 || p.weights[0].w.rows() != p.weights[1].w.rows())) {
    fail(ErrorCode::kInvalidArgument, "linear: a gate takes two weights of equal N, got {}", count);
  }
  if (p.residual && p.gate == Gate::none && count != 1) {
    fail(ErrorCode::kInvalidArgument, "linear: a residual with {} outputs, allowed is 1", count);
  }
  for (const LinearWeight& weight : p.weights) {
    const TensorView& w = weight.w;
    if (w.shape.rank() != 2 || w.cols() != p.K || w.dtype == DType::i32 ||
        p.K % info(w.dtype).block_elems != 0 || w.row_bytes < bytes_of(w.dtype, p.K)) {
      fail(ErrorCode::kInvalidArgument, "linear: weight {} {} with rows {} bytes apart, x has K {}",
           name(w.dtype), to_string(w.shape), w.row_bytes, p.K);
    }
  }
}

// Everything but the scratch's contents: packed x and the panel path's buffers.
RunArgs run_args(const LinearParams& params, const LinearConfig& config,
                 std::array<WeightArgs, kMaxLinearWeights>& weights) {
  const int count = static_cast<int>(params.weights.size());
  for (int i = 0; i < count; ++i) {
    const LinearWeight& w = params.weights[i];
    weights[i] = {.data = w.w.data,
                  .stride = w.w.row_bytes,
                  .N = w.w.rows(),
                  .row_bytes = bytes_of(w.w.dtype, params.K),
                  .dtype = w.w.dtype,
                  .bias = w.bias,
                  .y = w.y,
                  .ldy = w.ldy,
                  .packed = nullptr};
  }
  return {.weights = weights.data(),
          .num_weights = count,
          .gate = activation_of(params.gate),
          .residual = params.residual,
          .ld_residual = params.ld_residual,
          .M = params.M,
          .K = params.K,
          .chunk = config.chunk,
          .k_block = config.k_block,
          .scratch = nullptr};
}

}  // namespace

std::string to_string(const LinearConfig& config) {
  if (config.path == LinearPath::stream) {
    return fmt::format("{} stream, {} pack", name(config.isa),
                       config.shared_pack ? "shared" : "own");
  }
  return fmt::format("{} panel, {} pack, chunk {}, k_block {}", name(config.isa),
                     config.shared_pack ? "shared" : "own", config.chunk, config.k_block);
}

LinearConfig choose_linear(const LinearDesc& desc, LinearIsa isa) {
  LinearConfig config{.isa = isa};
  config.shared_pack = desc.threads > 1 && desc.M * desc.K > kSharedPackElems;
  config.path = desc.M <= kMaxStreamRows ? LinearPath::stream : LinearPath::panel;
  if (config.path == LinearPath::stream) return config;

  const bool real = panel_kind(desc) == Kind::real;
  config.k_block = std::min(desc.K, real ? kRealColumns : kCodeColumns);
  const Kernels& k = kernels(isa);
  int64_t panels = 0;
  for (const LinearDesc::Weight& w : desc.weights) {
    panels += ceil_div(w.N, k.panel_rows);
    if (desc.gate != Gate::none) break;
  }
  // More chunks of x until the threads' shares are even: each chunk unpacks its panels again.
  const int64_t whole = whole_chunk(desc.M);
  config.chunk = whole;
  double best = 0;
  for (int64_t chunk = whole; chunk >= 2 * kTileMultiple || chunk == whole;) {
    const int64_t items = std::max<int64_t>(1, panels * ceil_div(desc.M, chunk));
    const double busy =
        static_cast<double>(items) / static_cast<double>(round_up(items, desc.threads));
    if (busy > best + 0.02) {
      best = busy;
      config.chunk = chunk;
    }
    if (busy >= 1 - kMaxIdle) break;
    chunk = std::min(chunk - kTileMultiple, round_up(chunk / 2, kTileMultiple));
  }
  return config;
}

int64_t linear_scratch_bytes(const LinearDesc& desc, LinearIsa isa) {
  // An upper bound that grows with M: x packed by all together, or the largest x that every thread
  // packs for itself, and the panel path's buffers for whole chunks.
  Packs packs;
  for (const LinearDesc::Weight& w : desc.weights) packs.add(w.dtype);
  const int64_t own_rows = std::min(desc.M, kSharedPackElems / std::max<int64_t>(1, desc.K));
  int64_t bytes = packs.bytes(desc.M, desc.K) + desc.threads * packs.bytes(own_rows, desc.K);
  LinearConfig config = choose_linear(desc, isa);
  if (config.path == LinearPath::panel) {
    config.chunk = whole_chunk(desc.M);
    bytes += desc.threads *
             panel_scratch_bytes(config.chunk, config.k_block, panel_kind(desc), desc.gate);
  }
  return bytes;
}

void linear(const LinearParams& params, const LinearConfig& config, std::byte* scratch,
            const Team& team) {
  validate(params);
  if (params.M == 0) return;
  const Kernels& k = kernels(config.isa);
  const int64_t M = params.M, K = params.K;
  const bool stream = config.path == LinearPath::stream;
  const Codes codes = stream ? Codes::digits : Codes::words;
  BRAID_CHECK(!stream || M <= kMaxStreamRows, "stream path with M {}", M);
  BRAID_CHECK(stream || (config.chunk > 0 && config.chunk % kTileMultiple == 0 &&
                         config.k_block > 0 && (config.k_block >= K || config.k_block % 256 == 0)),
              "{}", to_string(config));

  const int count = static_cast<int>(params.weights.size());
  std::array<WeightArgs, kMaxLinearWeights> weights;
  RunArgs args = run_args(params, config, weights);
  std::array<int, kMaxLinearWeights> pack_of;
  Packs packs{.codes = codes};
  Kind kind = Kind::minimum;
  int64_t panels = 0;
  for (int i = 0; i < count; ++i) {
    pack_of[i] = packs.add(weights[i].dtype);
    if (kind_of(weights[i].dtype) == Kind::real) kind = Kind::real;
    if (i == 0 || params.gate == Gate::none) panels += ceil_div(weights[i].N, k.panel_rows);
  }

  const Scratch sizes = scratch_of(config, packs, kind, M, K, params.gate);
  std::byte* pack = scratch + (config.shared_pack ? 0 : team.index * sizes.pack);
  std::byte* own =
      scratch + (config.shared_pack ? 1 : team.count) * sizes.pack + team.index * sizes.per_thread;
  for (int i = 0; i < packs.count; ++i) {
    const int64_t tile = stream ? M : k.tile(packs.dtypes[i]);
    const Range all{0, ceil_div(M, tile)};
    const Range mine = config.shared_pack ? team.share(all.end) : all;
    k.pack({.x = params.x,
            .ldx = params.ldx,
            .M = M,
            .K = K,
            .rows = nullptr,
            .tile = tile,
            .dtype = packs.dtypes[i],
            .codes = codes,
            .packed = pack},
           mine.begin, mine.end);
    for (int j = 0; j < count; ++j) {
      if (pack_of[j] == i) weights[j].packed = pack;
    }
    pack += packs.pack_bytes(i, M, K);
  }
  if (config.shared_pack) team.barrier();

  args.scratch = own;
  const Range mine = team.share(stream ? k.stream_items(args) : panels * ceil_div(M, config.chunk));
  (stream ? k.run_stream : k.run_panels)(args, mine.begin, mine.end);
}

}  // namespace braid::cpu
