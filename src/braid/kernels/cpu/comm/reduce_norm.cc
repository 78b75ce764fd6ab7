#include "braid/kernels/cpu/comm/reduce_norm.h"

#include <algorithm>
#include <cstring>

#include "braid/fabric/collectives/share.h"
#include "braid/fabric/collectives/sum.h"
#include "braid/kernels/cpu/comm/pieces.h"
#include "braid/kernels/cpu/comm/two_phase.h"
#include "braid/kernels/cpu/pointwise/norm.h"

// Of each round's rows t, those of rank q being t_q:
// scatter:  slot_q[p] = x_p[t_q];  z_q = sum_p slot_q[p];  s_q = r_q + z_q;  y[t_q] = norm(s_q)
// gather:   slot_r[q] = y[t_q];    y_r[t_q] = slot_r[q]                      (residual divided)
//           slot_r[q] = z_q;       s_r[t_q] = r[t_q] + slot_r[q];  y_r[t_q] = norm(s_r[t_q])
// one-shot: slot_q[p] = x_p[t];    s_r[t] = r[t] + sum_p slot_r[p];  y_r[t] = norm(s_r[t])
namespace braid::cpu {
namespace {

using fabric::AllReduceAlgorithm;
using fabric::Exchange;

constexpr int64_t kFloat = sizeof(float);

// A lane's rows.
class LaneRows {
 public:
  LaneRows(const fabric::Comm& comm, const ReduceNormParams& p, const ReduceNormConfig& config,
           int lane)
      : comm_(comm), p_(p), config_(config), lane_(lane) {}

  bool one_shot() const { return config_.algorithm == AllReduceAlgorithm::one_shot; }
  // Rank 0 has the most rows, lane by lane.
  int64_t rounds() const { return ceil_div(of_lane(0).size(), config_.round_rows); }
  // Rows of rank q, counted in the whole; in a single shot all rows.
  Range rows(int q, int64_t round) const {
    const Range mine = of_lane(q);
    return {std::min(mine.begin + round * config_.round_rows, mine.end),
            std::min(mine.begin + (round + 1) * config_.round_rows, mine.end)};
  }
  int64_t first_row_of_rank() const { return of_rank(comm_.index()).begin; }

 private:
  Range of_rank(int q) const {
    return one_shot() ? Range{0, p_.rows} : even_part(p_.rows, comm_.size(), q);
  }
  Range of_lane(int q) const {
    const Range rows = of_rank(q);
    const Range mine = even_part(rows.size(), config_.lanes, lane_);
    return {rows.begin + mine.begin, rows.begin + mine.end};
  }

  const fabric::Comm& comm_;
  const ReduceNormParams& p_;
  const ReduceNormConfig& config_;
  const int lane_;
};

// s[s_row] = r[s_row] + z, y[y_row] = norm: n rows; z may be s.
void add_norm(const ReduceNormParams& p, const float* z, int64_t s_row, int64_t y_row, int64_t n,
              Isa isa) {
  const int64_t C = p.cols;
  add_rms_norm({.x = z,
                .r = p.r + s_row * C,
                .w = p.w,
                .s = p.s + s_row * C,
                .y = p.y + y_row * C,
                .rows = n,
                .cols = C,
                .x_stride = C,
                .r_stride = C,
                .s_stride = C,
                .y_stride = C,
                .eps = p.eps},
               Team{}, isa);
}

const std::byte* bytes_of(const float* data) {
  return reinterpret_cast<const std::byte*>(data);
}
const float* floats(const std::byte* data) {
  return reinterpret_cast<const float*>(data);
}

void one_shot(fabric::Comm& comm, const ReduceNormParams& p, const LaneRows& lane_rows, int lane,
              Isa isa) {
  Exchange exchange(comm, lane, comm.tags().all_reduce);
  const auto send = [&](int64_t k) {
    const Range rows = lane_rows.rows(0, k);
    exchange.send([&](int peer) {
      exchange.put(peer, 0, p.x + rows.begin * p.cols,
                   {.row_bytes = rows.size() * p.cols * kFloat});
    });
  };
  const int64_t rounds = lane_rows.rounds();
  if (rounds > 0) send(0);
  for (int64_t k = 0; k < rounds; ++k) {
    if (k + 1 < rounds) send(k + 1);
    const Range rows = lane_rows.rows(0, k);
    const auto all = exchange.take_all();
    all[comm.index()] = bytes_of(p.x + rows.begin * p.cols);
    float* z = p.s + rows.begin * p.cols;
    fabric::sum_in_order(z, all, rows.size() * p.cols);
    add_norm(p, z, rows.begin, rows.begin, rows.size(), isa);
  }
  exchange.settle();
}

// Sends data after the sums z of this rank's rows are complete, and handles incoming data.
template <class Reduced, class Outgoing, class Incoming>
void two_shot(fabric::Comm& comm, const ReduceNormParams& p, const LaneRows& lane_rows, int lane,
              fabric::Tag scatter_tag, fabric::Tag gather_tag, Reduced&& reduced,
              Outgoing&& outgoing, Incoming&& incoming) {
  Exchange scatter(comm, lane, scatter_tag), gather(comm, lane, gather_tag);
  const int64_t C = p.cols;
  reduce_in_pieces(
      lane_rows.rounds(), [](int64_t) {},
      [&](int64_t k) {
        scatter.send([&](int peer) {
          const Range rows = lane_rows.rows(peer, k);
          scatter.put(peer, 0, p.x + rows.begin * C, {.row_bytes = rows.size() * C * kFloat});
        });
      },
      [&](int64_t k) {
        const Range rows = lane_rows.rows(comm.index(), k);
        const auto all = scatter.take_all();
        all[comm.index()] = bytes_of(p.x + rows.begin * C);
        reduced(rows, all);
      },
      [&](int64_t k) {
        const Range rows = lane_rows.rows(comm.index(), k);
        gather.send([&](int peer) {
          gather.put(peer, 0, outgoing(rows), {.row_bytes = rows.size() * C * kFloat});
        });
      },
      [&](int64_t k) {
        gather.take([&](int peer, const std::byte* data) {
          const Range rows = lane_rows.rows(peer, k);
          if (!rows.empty()) incoming(rows, floats(data));
        });
      });
  scatter.settle();
  gather.settle();
}

}  // namespace

std::string to_string(const ReduceNormConfig& config) {
  return fmt::format("{}, rounds of {} row{}, {} lane{}", fabric::to_string(config.algorithm),
                     config.round_rows, config.round_rows == 1 ? "" : "s", config.lanes,
                     config.lanes == 1 ? "" : "s");
}

ReduceNormConfig choose_reduce_norm(const ReduceNormDesc& d) {
  const int64_t row_bytes = d.cols * kFloat, bytes = d.rows * row_bytes;
  if (row_bytes > d.slot_bytes) {
    fail(ErrorCode::kInvalidArgument,
         "a row of {} floats does not fit the communication slots of {} bytes", d.cols,
         d.slot_bytes);
  }
  ReduceNormConfig config;
  if (!d.divided) {
    config.algorithm = fabric::choose_all_reduce(d.ranks, bytes, d.link, d.slot_bytes);
  }
  const bool one_shot = config.algorithm == AllReduceAlgorithm::one_shot;
  const int64_t rows = one_shot ? d.rows : ceil_div(d.rows, d.ranks);  // between two ranks
  config.lanes =
      static_cast<int>(std::clamp<int64_t>(rows, 1, fabric::lanes_for(rows * row_bytes, d.lanes)));
  const int64_t lane_rows = ceil_div(rows, config.lanes);
  const double P = d.ranks;
  const int64_t rounds =
      choose_pieces((one_shot ? P - 1 : 2 * (P - 1) / P) * static_cast<double>(bytes), d.link);
  config.round_rows = std::clamp<int64_t>(ceil_div(lane_rows, rounds), 1, d.slot_bytes / row_bytes);
  return config;
}

void all_reduce_add_rms_norm(fabric::Comm& comm, const Team& team, const ReduceNormParams& p,
                             const ReduceNormConfig& config, float* sums, Isa isa) {
  const int64_t C = p.cols;
  for (int lane = team.index; lane < config.lanes; lane += team.count) {
    const LaneRows lane_rows(comm, p, config, lane);
    if (lane_rows.one_shot()) {
      one_shot(comm, p, lane_rows, lane, isa);
      continue;
    }
    // Sums are sent while the residual is added: the sums have a separate place.
    const int64_t first = lane_rows.first_row_of_rank();
    two_shot(
        comm, p, lane_rows, lane, comm.tags().all_reduce, comm.tags().all_reduce,
        [&](Range rows, std::span<const std::byte*> all) {
          float* z = sums + (rows.begin - first) * C;
          fabric::sum_in_order(z, all, rows.size() * C);
          add_norm(p, z, rows.begin, rows.begin, rows.size(), isa);
        },
        [&](Range rows) { return sums + (rows.begin - first) * C; },
        [&](Range rows, const float* z) {
          add_norm(p, z, rows.begin, rows.begin, rows.size(), isa);
        });
  }
}

void reduce_scatter_add_rms_norm_all_gather(fabric::Comm& comm, const Team& team,
                                            const ReduceNormParams& p,
                                            const ReduceNormConfig& config, Isa isa) {
  BRAID_CHECK(config.algorithm == AllReduceAlgorithm::two_shot, "{}", to_string(config));
  const int64_t C = p.cols;
  for (int lane = team.index; lane < config.lanes; lane += team.count) {
    const LaneRows lane_rows(comm, p, config, lane);
    const int64_t first = lane_rows.first_row_of_rank();
    two_shot(
        comm, p, lane_rows, lane, comm.tags().reduce_scatter, comm.tags().all_gather,
        [&](Range rows, std::span<const std::byte*> all) {
          float* z = p.s + (rows.begin - first) * C;
          fabric::sum_in_order(z, all, rows.size() * C);
          add_norm(p, z, rows.begin - first, rows.begin, rows.size(), isa);
        },
        [&](Range rows) { return p.y + rows.begin * C; },
        [&](Range rows, const float* y) {
          std::memcpy(p.y + rows.begin * C, y, static_cast<size_t>(rows.size() * C) * kFloat);
        });
  }
}

}  // namespace braid::cpu
