#pragma once

#include <algorithm>

#include "braid/program/builder.h"

// One-sided reads and writes of other ranks' values. A value has the same type and place in
// symmetric memory on all ranks of a step, so a rank names a peer's copy by its own value. The
// lowerings of parallel/ insert these ops. docs/sequence-parallel.md shows that a Program with the
// three rules below reads and writes nothing too early or too late; schedule/verifier.h checks the
// rules:
//   1. a value that peers pull from is an input of a sync before, and of a sync after, the pulls;
//   2. a value that peers write, or a pull fills, is an output of a sync before (the sync *opens*
//      the value);
//   3. a value that peers write is a mutated input of a sync after (the sync *closes* the value).
namespace braid::ops {

// Rows and heads of one [B, L, H, D] value to another's, for each live sequence b:
//   dst[b, dst_row + i, dst_head + j, :] = src[b, src_row + i, src_head + j, :]
// Data lands where it is used: nothing is packed or unpacked.
struct Move {
  int peer = 0;  // rank of the world
  int src = 0;   // input of the op
  int dst = 0;   // input of the op
  int64_t rows = 0;
  int64_t src_row = 0;
  int64_t dst_row = 0;
  int64_t heads = 0;
  int64_t src_head = 0;
  int64_t dst_head = 0;
  int64_t elems(int64_t head_dim) const { return rows * heads * head_dim; }
  bool operator==(const Move&) const = default;
};

struct MoveAttrs {
  int rank = 0;  // the rank, in the world, that has this Program
  std::vector<Move> moves;
  std::vector<int> told;  // of a push: further peers to tell: earlier ops have stored rows at these
                          // peers, and the push raises their counters
  // All peers whose counters the push raises, each once.
  std::vector<int> peers() const;
  bool operator==(const MoveAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("moves", moves.size());
    f("peers", fmt::format("{}", fmt::join(peers(), ",")));
  }
};

// Reads sources of peers into local buffers; ends when the data is here.
// (dst 0, dst 1 or absent, sources ...) -> (). Moves name sources among inputs 2 and up.
extern const OpDef kPull;

// Writes local sources to buffers of peers, then adds 1 to this rank's arrival counter at each peer
// with a move, and at each told peer; ends when the sources are free. (arrivals, sources and
// destinations, further inputs to follow ...) -> ().
extern const OpDef kPush;

// The type of arrival counters: a cache line for each rank in the world.
ValueType arrivals_type(int world);

// The ranks of a group meet: a sync ends when all ranks have come, their earlier work done, and
// when the announced pushes have arrived here, at least arrivals[p] from rank p. Launches that
// depend on the sync begin then.
// Without a group a sync waits for arrivals alone.
// (kept 0, arrivals or absent, closed 0..5 or absent, kept ...) -> opened values
//   kept    values that stay alive and unwritten until all ranks have come
//   closed  buffers that are complete at the end; ops may write them again afterwards
//   opened  buffers that peers may write and pulls may fill from then on; opened values of
//           arrivals_type start at zero
struct SyncAttrs {
  std::string axis;               // of the mesh, or "world"; empty: no group
  std::vector<int> group;         // meeting ranks of the world, including this rank; empty: none
  std::vector<int64_t> arrivals;  // [world], or empty
  std::vector<ValueType> opens;
  std::vector<int> opened_arrivals;  // which outputs are counters
  int ranks() const { return std::max(1, static_cast<int>(group.size())); }
  bool operator==(const SyncAttrs&) const = default;
  template <class F>
  void fields(F&& f) const {
    f("axis", axis);
    f("ranks", ranks());
    int64_t pushes = 0;
    for (int64_t n : arrivals) pushes += n;
    if (pushes > 0) f("pushes", pushes);
  }
};
constexpr size_t kSyncArrivals = 1;
constexpr size_t kSyncFirstClosed = 2;
constexpr size_t kSyncMaxClosed = 6;
extern const OpDef kSync;
// A sync's inputs: one kept value or more, at most kSyncMaxClosed closed ones, all others absent.
std::vector<ValueId> sync_inputs(const std::vector<ValueId>& kept,
                                 const std::vector<ValueId>& closed = {},
                                 ValueId arrivals = kNoValue);

}  // namespace braid::ops
