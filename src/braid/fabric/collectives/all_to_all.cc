#include "braid/fabric/collectives/all_to_all.h"

#include "braid/fabric/collectives/move.h"

// slot_q[p] = in_p[piece q];  out_q[piece p] = slot_q[p]
namespace braid::fabric {

void all_to_all(Comm& comm, const cpu::Team& team, const void* in, void* out,
                std::span<const int64_t> bytes) {
  const int P = comm.size();
  const int me = comm.index();
  BRAID_CHECK(std::ssize(bytes) == int64_t{P} * P, "{} counts for {} ranks", bytes.size(), P);
  int64_t largest = 0;
  for (int p = 0; p < P; ++p) {
    for (int q = 0; q < P; ++q) {
      if (p != q) largest = std::max(largest, bytes[p * P + q]);
    }
  }
  move_pieces(
      comm, team, comm.tags().all_to_all, largest,
      [&](int q) -> Piece<const std::byte> {
        int64_t begin = 0;
        for (int i = 0; i < q; ++i) begin += bytes[me * P + i];
        return {.data = static_cast<const std::byte*>(in) + begin, .row_bytes = bytes[me * P + q]};
      },
      [&](int p) -> Piece<std::byte> {
        int64_t begin = 0;
        for (int i = 0; i < p; ++i) begin += bytes[i * P + me];
        return {.data = static_cast<std::byte*>(out) + begin, .row_bytes = bytes[p * P + me]};
      });
}

}  // namespace braid::fabric
