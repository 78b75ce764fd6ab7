#include "braid/fabric/collectives/reduce_scatter.h"

#include <numeric>

#include "braid/fabric/collectives/move.h"
#include "braid/fabric/collectives/sum.h"

// slot_r[p] = in_p[:, columns r];  out_r = sum_p slot_r[p]
namespace braid::fabric {
namespace {

constexpr int64_t kFloat = sizeof(float);

Piece<const std::byte> columns(const float* in, int64_t M, std::span<const int64_t> counts,
                               int rank) {
  const int64_t N = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const int64_t begin = std::accumulate(counts.begin(), counts.begin() + rank, int64_t{0});
  return {.data = reinterpret_cast<const std::byte*>(in + begin),
          .row_bytes = counts[rank] * kFloat,
          .rows = M,
          .stride = N * kFloat};
}

// out[range] = sum over ranks of their packed data, this rank's own taken from `own` run by run.
void sum_range(Comm& comm, std::span<const std::byte*> packed, const Piece<const std::byte>& own,
               Range range, float* out) {
  for_each_run(own, range,
               [&](const std::byte* first, int64_t rows, int64_t row_bytes, int64_t at) {
                 for (int64_t r = 0; r < rows; ++r) {
                   packed[comm.index()] = first + r * own.stride;
                   sum_in_order(out + (range.begin + at + r * row_bytes) / kFloat, packed,
                                row_bytes / kFloat);
                   for (int p = 0; p < comm.size(); ++p) {
                     if (p != comm.index()) packed[p] += row_bytes;
                   }
                 }
               });
}

}  // namespace

void reduce_scatter(Comm& comm, const cpu::Team& team, const float* in, float* out,
                    std::span<const int64_t> counts) {
  reduce_scatter_columns(comm, team, in, out, 1, counts);
}

void reduce_scatter_columns(Comm& comm, const cpu::Team& team, const float* in, float* out,
                            int64_t M, std::span<const int64_t> counts) {
  BRAID_CHECK(std::ssize(counts) == comm.size(), "{} counts for {} ranks", counts.size(),
              comm.size());
  const int64_t slot = comm.slot_bytes();
  const int64_t largest = M * kFloat * *std::max_element(counts.begin(), counts.end());
  const int lanes = lanes_for(largest, comm.lanes());
  for (int lane = team.index; lane < lanes; lane += team.count) {
    Exchange exchange(comm, lane, comm.tags().reduce_scatter);
    const auto part = [&](const Piece<const std::byte>& piece, int64_t round) {
      return round_part(line_part(piece.bytes(), lanes, lane), round, slot);
    };
    const auto send = [&](int64_t round) {
      exchange.send([&](int peer) {
        const Piece<const std::byte> piece = columns(in, M, counts, peer);
        put_range(exchange, peer, piece, part(piece, round));
      });
    };
    const int64_t rounds = ceil_div(line_part(largest, lanes, lane).size(), slot);
    const Piece<const std::byte> own = columns(in, M, counts, comm.index());
    if (rounds > 0) send(0);
    for (int64_t round = 0; round < rounds; ++round) {
      if (round + 1 < rounds) send(round + 1);
      sum_range(comm, exchange.take_all(), own, part(own, round), out);
    }
    exchange.settle();
  }
}

}  // namespace braid::fabric
