#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "braid/parallel/mesh.h"
#include "braid/parallel/topology.h"

namespace braid {

// How attention is divided over the ranks of a sequence:
//   ring     every rank keeps its queries and reads the KV of all others in turn
//   ulysses  every rank gets all rows of its share of the heads
//   usp      ulysses on neighbouring ranks (inside a machine), ring across (Fang & Zhao 2024)
//   tas      ulysses across, ring on neighbouring ranks (StreamFusion, section 4.2)
//   torus    as tas, with the exchange between torus groups in parts, under the attention of data
//            already present (section 4.3)
enum class SpMode : uint8_t { ring, ulysses, usp, tas, torus };
inline constexpr std::array kSpModes = {SpMode::ring, SpMode::ulysses, SpMode::usp, SpMode::tas,
                                        SpMode::torus};
std::string_view to_string(SpMode mode);
// Fails with kInvalidArgument, listing the modes.
SpMode parse_sp_mode(std::string_view name);

struct SpDegrees {
  int torus = 1;
  int ulysses = 1;
  int ring = 1;
  int ranks() const { return torus * ulysses * ring; }
  int head_groups() const { return torus * ulysses; }
  bool operator==(const SpDegrees&) const = default;
};
std::string to_string(const SpDegrees& degrees);  // "torus 2 x ulysses 2 x ring 1"

// Degrees that a caller pins; the rest follow the rule.
struct SpRequest {
  std::optional<int> torus, ulysses, ring;
};

// The ranks of a topology as torus x ulysses x ring. Rank (t, u, r) computes the queries of all
// ranks with its r for head group t U + u. SpMode says which ranks are neighbours.
struct SequenceMesh {
  SpMode mode = SpMode::ring;
  SpDegrees degrees;
  Mesh mesh{{}};
  Topology topology;

  int ranks() const { return degrees.ranks(); }
  int t(int rank) const { return mesh.coordinate(rank, "torus"); }
  int u(int rank) const { return mesh.coordinate(rank, "ulysses"); }
  int r(int rank) const { return mesh.coordinate(rank, "ring"); }
  int rank(int t, int u, int r) const;
  int head_group(int rank) const { return t(rank) * degrees.ulysses + u(rank); }
  // [R], by ring step: the rank whose keys are read, the own rank first. In each step every rank
  // has one reader. With equally many ring ranks on each machine, a rank reads its own machine
  // first, and all cross between machines in the same steps: no port has two readers.
  std::vector<int> ring_sources(int rank) const;

  // The source of a ring step's keys.
  struct RingStep {
    int source = 0;   // the rank whose class the keys are
    int from = 0;     // `source` itself, or a rank of the reader's machine with fetched keys
    int fetched = 0;  // in the latter case: the ring step of `from`'s fetch
    bool handed_on() const { return from != source; }
  };
  // [ranks][R]: ring_sources in order. A machine's first rank to read another machine's keys
  // fetches the keys; later readers on the machine copy from that rank's buffer, so keys cross
  // between two machines once per head group.
  std::vector<std::vector<RingStep>> ring_steps() const;
};

// Without pinned degrees: P_u = gcd(N M, H) head groups (section 4.2); torus takes gcd(N,
// P_u), all machines or a part; ring takes the rest. Uneven heads allow further degrees by
// hand: each rank only needs a head. Fails with kInvalidArgument and the reason if the
// degrees do not make up the ranks, the mode has no such axis, or head groups outnumber query
// heads.
SequenceMesh sequence_mesh(SpMode mode, const Topology& topology, int64_t q_heads,
                           const SpRequest& request = {});

// Every legal mesh of a mode with the pinned degrees, by torus and then ulysses degree.
std::vector<SequenceMesh> sequence_meshes(SpMode mode, const Topology& topology, int64_t q_heads,
                                          const SpRequest& request = {});

}  // namespace braid
