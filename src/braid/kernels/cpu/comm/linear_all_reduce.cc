#include "braid/kernels/cpu/comm/linear_all_reduce.h"

#include <algorithm>
#include <optional>

#include "braid/fabric/collectives/move.h"
#include "braid/fabric/collectives/sum.h"
#include "braid/kernels/cpu/comm/pieces.h"
#include "braid/kernels/cpu/comm/two_phase.h"

// Of each tile t, in the bytes of its rows one after the other:
// one-shot:  slot_q[p] = y_p[t];            y_r[t] = sum_p slot_r[p]
// two-shot:  slot_q[p] = y_p[t, chunk q];   y_q[t, chunk q] = sum_p slot_q[p]
//            slot_r[q] = y_q[t, chunk q];   y_r[t, chunk q] = slot_r[q]
namespace braid::cpu {
namespace {

using fabric::AllReduceAlgorithm;
using fabric::Exchange;
using fabric::line_part;
using fabric::Piece;

constexpr int64_t kFloat = sizeof(float);
constexpr int64_t kLaneBytes = 16 << 10;  // worth a separate lane
// Down to these a tile is cut by rows first, then by columns. Weights are unpacked again for each
// tile of rows and x is packed again for each tile of columns: 64 x 512 costs a tenth, 32 x 256 a
// quarter of the product. Up to 8 rows share one pass over the weights.
struct TileShape {
  int64_t rows, cols;
};
constexpr TileShape kGoodTiles[] = {{64, 512}, {32, 256}, {kMaxStreamRows, 64}, {1, 1}};
constexpr int64_t kRowMultiple = 4, kColMultiple = 32;

// Rounded only if the halves then stay about equal.
int64_t halved(int64_t n, int64_t multiple) {
  const int64_t half = ceil_div(n, 2);
  return half >= 4 * multiple ? round_up(half, multiple) : half;
}

// Most bytes of a tile between two ranks, in whole lines.
int64_t share_bytes(const LinearAllReduceConfig& config, int ranks) {
  const int64_t lines = ceil_div(config.tile_rows * config.tile_cols * kFloat, fabric::kLineBytes);
  const bool whole = config.algorithm == AllReduceAlgorithm::one_shot;
  return ceil_div(lines, whole ? 1 : ranks) * fabric::kLineBytes;
}

// A call: the tiles of y, and a lane's share of the tiles.
class TiledReduction {
 public:
  TiledReduction(fabric::Comm& comm, const LinearAllReduceParams& p,
                 const LinearAllReduceConfig& config)
      : comm_(comm), p_(p), config_(config), N_(p.w.shape[0]) {}

  int64_t tiles() const { return ceil_div(p_.M, config_.tile_rows) * tiles_across(); }

  // This rank's product for a tile, complete when every thread has passed the barrier.
  void make(int64_t tile, LinearIsa isa, std::byte* scratch, const Team& team) const {
    const auto [rows, cols] = at(tile);
    const LinearWeight weight = {.w = slice_rows(p_.w, cols.begin, cols.end),
                                 .bias = p_.bias ? p_.bias + cols.begin : nullptr,
                                 .y = p_.y + rows.begin * N_ + cols.begin,
                                 .ldy = N_};
    const LinearDesc::Weight kind = {p_.w.dtype, cols.size()};
    const LinearDesc desc = {
        .M = rows.size(), .K = p_.K, .weights = {&kind, 1}, .threads = team.count};
    linear({.x = p_.x + rows.begin * p_.K,
            .ldx = p_.K,
            .M = rows.size(),
            .K = p_.K,
            .weights = {&weight, 1}},
           choose_linear(desc, isa), scratch, team);
    team.barrier();
  }

  void send(Exchange& exchange, int lane, int64_t tile, bool sums) const {
    exchange.send([&](int peer) {
      fabric::put_range(exchange, peer, piece<const std::byte>(tile),
                        part(tile, sums ? comm_.index() : peer, lane));
    });
  }

  // y = the sum over ranks, in the group's order, where this rank's summand stands.
  void take_and_sum(Exchange& exchange, int lane, int64_t tile) const {
    const auto all = exchange.take_all();
    const Range range = part(tile, comm_.index(), lane);
    fabric::for_each_run(piece<std::byte>(tile), range,
                         [&](std::byte* first, int64_t rows, int64_t row_bytes, int64_t) {
                           for (int64_t r = 0; r < rows; ++r) {
                             std::byte* own = first + r * N_ * kFloat;
                             all[comm_.index()] = own;
                             fabric::sum_in_order(reinterpret_cast<float*>(own), all,
                                                  row_bytes / kFloat);
                             for (int q = 0; q < comm_.size(); ++q) all[q] += row_bytes;
                           }
                         });
  }

  // Overwrites rows sent to the peer: the arrived sum contains the sent rows, so the peer has them.
  void take_sums(Exchange& exchange, int lane, int64_t tile) const {
    exchange.take([&](int peer, const std::byte* data) {
      fabric::unpack_range(piece<std::byte>(tile), part(tile, peer, lane), data);
    });
  }

 private:
  struct Tile {
    Range rows, cols;
  };
  int64_t tiles_across() const { return ceil_div(N_, config_.tile_cols); }
  Tile at(int64_t tile) const {
    const int64_t r = tile / tiles_across() * config_.tile_rows;
    const int64_t c = tile % tiles_across() * config_.tile_cols;
    return {{r, std::min(r + config_.tile_rows, p_.M)}, {c, std::min(c + config_.tile_cols, N_)}};
  }
  template <class T>
  Piece<T> piece(int64_t tile) const {
    const auto [rows, cols] = at(tile);
    return {.data = reinterpret_cast<T*>(p_.y + rows.begin * N_ + cols.begin),
            .row_bytes = cols.size() * kFloat,
            .rows = rows.size(),
            .stride = N_ * kFloat};
  }
  // A lane's bytes in a tile's part that `rank` sums.
  Range part(int64_t tile, int rank, int lane) const {
    const int64_t bytes = piece<std::byte>(tile).bytes();
    const bool whole = config_.algorithm == AllReduceAlgorithm::one_shot;
    const Range chunk = whole ? Range{0, bytes} : line_part(bytes, comm_.size(), rank);
    const Range mine = line_part(chunk.size(), config_.lanes, lane);
    return {chunk.begin + mine.begin, chunk.begin + mine.end};
  }

  fabric::Comm& comm_;
  const LinearAllReduceParams& p_;
  const LinearAllReduceConfig& config_;
  const int64_t N_;
};

}  // namespace

std::string to_string(const LinearAllReduceConfig& config) {
  return fmt::format("{}, tiles of {} x {}, {} lane{}", fabric::to_string(config.algorithm),
                     config.tile_rows, config.tile_cols, config.lanes,
                     config.lanes == 1 ? "" : "s");
}

LinearAllReduceConfig choose_linear_all_reduce(const LinearAllReduceDesc& d) {
  const int64_t M = std::max<int64_t>(d.M, 1), N = std::max<int64_t>(d.N, 1);
  const int64_t bytes = M * N * kFloat;
  LinearAllReduceConfig config;
  config.algorithm = fabric::choose_all_reduce(d.ranks, bytes, d.link, d.slot_bytes);
  const bool one_shot = config.algorithm == AllReduceAlgorithm::one_shot;
  const double P = d.ranks;
  const int64_t tiles =
      choose_pieces((one_shot ? P - 1 : 2 * (P - 1) / P) * static_cast<double>(bytes), d.link);
  config.tile_rows = M;
  config.tile_cols = N;
  const auto too_big = [&] {
    return config.tile_rows * config.tile_cols * tiles > M * N ||
           share_bytes(config, d.ranks) > d.slot_bytes * d.lanes;  // one line always fits
  };
  for (const auto& [rows, cols] : kGoodTiles) {
    while (config.tile_rows > rows && too_big()) {
      config.tile_rows = halved(config.tile_rows, kRowMultiple);
    }
    while (config.tile_cols > cols && too_big()) {
      config.tile_cols = halved(config.tile_cols, kColMultiple);
    }
  }
  config.lanes = static_cast<int>(std::clamp<int64_t>(
      ceil_div(share_bytes(config, d.ranks), std::min(d.slot_bytes, kLaneBytes)), 1, d.lanes));
  return config;
}

int64_t linear_all_reduce_scratch_bytes(int64_t M, int64_t N, int64_t K, DType dtype, int threads,
                                        LinearIsa isa) {
  const LinearDesc::Weight weight = {dtype, N};
  return linear_scratch_bytes({.M = M, .K = K, .weights = {&weight, 1}, .threads = threads}, isa);
}

void linear_all_reduce(fabric::Comm& comm, const Team& team, const LinearAllReduceParams& params,
                       const LinearAllReduceConfig& config, LinearIsa isa, std::byte* scratch) {
  const int64_t share = share_bytes(config, comm.size());
  if (config.tile_rows < 1 || config.tile_cols < 1 || config.lanes < 1 ||
      config.lanes > std::min(comm.lanes(), team.count) ||
      round_up(ceil_div(share, config.lanes), fabric::kLineBytes) > comm.slot_bytes()) {
    fail(ErrorCode::kInvalidArgument,
         "linear_all_reduce: {} does not fit {} lanes of {}-byte slots and {} threads",
         to_string(config), comm.lanes(), comm.slot_bytes(), team.count);
  }
  if (params.M == 0) return;
  const TiledReduction work(comm, params, config);
  const auto make = [&](int64_t tile) { work.make(tile, isa, scratch, team); };
  const int64_t tiles = work.tiles();
  const int lane = team.index;
  if (comm.size() == 1 || lane >= config.lanes) {
    for (int64_t tile = 0; tile < tiles; ++tile) make(tile);
    return;
  }
  const fabric::Tag tag = comm.tags().all_reduce;
  if (config.algorithm == AllReduceAlgorithm::two_shot) {
    Exchange scatter(comm, lane, tag), gather(comm, lane, tag);
    reduce_in_pieces(
        tiles, make, [&](int64_t t) { work.send(scatter, lane, t, false); },
        [&](int64_t t) { work.take_and_sum(scatter, lane, t); },
        [&](int64_t t) { work.send(gather, lane, t, true); },
        [&](int64_t t) { work.take_sums(gather, lane, t); });
    scatter.settle();
    gather.settle();
    return;
  }
  // A sum goes to the place its summand was sent from: wait for that transfer, not for the next.
  Exchange even(comm, lane, tag), odd(comm, lane, tag);
  const auto finish = [&](int64_t tile) {
    Exchange& exchange = tile % 2 == 0 ? even : odd;
    exchange.settle();
    work.take_and_sum(exchange, lane, tile);
  };
  for (int64_t tile = 0; tile < tiles; ++tile) {
    make(tile);
    work.send(tile % 2 == 0 ? even : odd, lane, tile, true);
    if (tile > 0) finish(tile - 1);
  }
  finish(tiles - 1);
}

}  // namespace braid::cpu
