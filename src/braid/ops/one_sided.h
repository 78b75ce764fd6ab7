#pragma once

#include <algorithm>

#include "braid/program/builder.h"

// Values of other ranks, read and written one-sidedly. A value has one type and one place in
// symmetric memory on all ranks of a step, so that a rank names a peer's copy by its own. The
// lowerings of parallel/ put these ops in. docs/sequence-parallel.md proves that a Program that
// follows three rules reads and writes nothing too early or too late; schedule/verifier.h checks
// the rules:
//   1. a value that peers pull from is an input of a sync before, and of a sync after, these pulls;
//   2. a value that peers write, or that a pull fills, is an output of a sync before (the sync
//      *opens* the value);
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
  int rank = 0;  // of the world: whose Program this is
  std::vector<Move> moves;
  std::vector<int> told;  // of a push: peers whose counters it adds to as well; what they wait for
                          // was stored by ops that it follows
  // Of a push, each once: all whose counters it adds to.
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
// that a move goes to or that is told; ends when the sources are free.
// (arrivals, sources and destinations, and what it follows ...) -> ().
extern const OpDef kPush;

// A value of arrival counters: one cache line for each rank of the world.
ValueType arrivals_type(int world);

// Ranks of one group meet: everything that any of them did before is done when it ends, and nothing
// that depends on it has begun on any. Then it waits for the pushes that arrive here: at least
// arrivals[p] from rank p.
// (kept 0, arrivals or absent, closed 0..5 or absent, kept ...) -> opened values
//   kept    values that stay alive and unwritten until all ranks have come
//   closed  buffers that are complete when it ends; also what may be written again afterwards
//   opened  buffers that peers may write and that pulls may fill from then on; opened values of
//           arrivals_type start at zero
// Without a group it waits for arrivals alone.
struct SyncAttrs {
  std::string axis;        // of the mesh, or "world"; empty: no group
  std::vector<int> group;  // the ranks of the world that meet, this rank among them; empty: none
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

}  // namespace braid::ops
