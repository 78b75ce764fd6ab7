#include "braid/fabric/collectives/all_gather.h"

#include <numeric>

#include "braid/fabric/collectives/move.h"

// slot_r[p] = in_p;  out_r[:, columns p] = slot_r[p]
namespace braid::fabric {

void all_gather(Comm& comm, const cpu::Team& team, const void* in, void* out,
                std::span<const int64_t> bytes) {
  all_gather_columns(comm, team, in, out, 1, bytes);
}

void all_gather_columns(Comm& comm, const cpu::Team& team, const void* in, void* out, int64_t M,
                        std::span<const int64_t> column_bytes) {
  BRAID_CHECK(std::ssize(column_bytes) == comm.size(), "{} sizes for {} ranks", column_bytes.size(),
              comm.size());
  const int64_t width = std::accumulate(column_bytes.begin(), column_bytes.end(), int64_t{0});
  const int64_t largest = M * *std::max_element(column_bytes.begin(), column_bytes.end());
  move_pieces(
      comm, team, comm.tags().all_gather, largest,
      [&](int) -> Piece<const std::byte> {
        const int64_t row = column_bytes[comm.index()];
        return {
            .data = static_cast<const std::byte*>(in), .row_bytes = row, .rows = M, .stride = row};
      },
      [&](int p) -> Piece<std::byte> {
        const int64_t begin =
            std::accumulate(column_bytes.begin(), column_bytes.begin() + p, int64_t{0});
        return {.data = static_cast<std::byte*>(out) + begin,
                .row_bytes = column_bytes[p],
                .rows = M,
                .stride = width};
      });
}

}  // namespace braid::fabric
