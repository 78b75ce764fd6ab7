#include "braid/fabric/collectives/broadcast.h"

#include "braid/fabric/collectives/move.h"

// slot_r[root] = data_root;  data_r = slot_r[root]
namespace braid::fabric {

void broadcast(Comm& comm, const cpu::Team& team, void* data, int64_t bytes, int root) {
  BRAID_CHECK(root >= 0 && root < comm.size(), "root {} of {} ranks", root, comm.size());
  std::byte* const all = static_cast<std::byte*>(data);
  move_pieces(
      comm, team, comm.tags().broadcast, bytes,
      [&](int) -> Piece<const std::byte> {
        return {.data = all, .row_bytes = comm.index() == root ? bytes : 0};
      },
      [&](int p) -> Piece<std::byte> { return {.data = all, .row_bytes = p == root ? bytes : 0}; });
}

}  // namespace braid::fabric
