#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "braid/program/attrs.h"
#include "braid/program/value.h"
#include "braid/program/wait.h"

// Traits of an op, for making, checking and pricing Schedules. An OpDef names its kind's traits:
// schedule/ and backend/ know no op by name.
namespace braid {

struct Op;
struct Work;

using TypeList = std::span<const ValueType>;

// An op's use of other ranks' copies (ops/one_sided.h).
enum class RemoteUse : uint8_t {
  none,
  meets,   // ranks of a group wait for each other and for arriving pushes; has SyncAttrs
  pulls,   // reads peers' copies, without units of the device; has MoveAttrs
  pushes,  // writes peers' copies, and then counts at the peers; has MoveAttrs
  stores,  // writes peers' copies while it computes
};

// Bytes of a one-sided move between a call's rank and a peer.
struct Transfer {
  int peer = 0;           // rank of the world; the call's own rank: a copy in own memory
  bool incoming = false;  // from the peer
  double bytes = 0;       // none: the peer only gets a signal
};

// How the ranks of a group run an op together.
struct CollectiveTraits {
  int (*ranks)(const Attrs& attrs) = nullptr;  // the group's; null: all ranks
  bool sums = false;      // every rank gets a sum over ranks, in one shot or two
  int rounds = 1;         // rounds of messages, unless the op sums
  bool computes = false;  // tile by tile beside its communication, in a kernel
  bool products = false;  // these tiles are a product's
};

// Facts by which a cost model finds an op's rate (schedule/profile.h).
struct RateTraits {
  std::string_view kind = {};  // kind whose rate replaces a missing rate; empty: none
  size_t typed_input = 0;      // whose dtype tells kernels apart: a weight, or a KV cache
  // Rows for the rate; null: the live rows of the first input.
  double (*rows)(TypeList in, const Work& work) = nullptr;
};

// The phases of a call, between which a kernel may wait (Wait). Each phase begins with its inputs;
// phase 0 begins with the call. Results are made in parts, in order (kLastPart); work for an
// earlier part comes first.
struct PhaseTraits {
  int (*last)(const Attrs& attrs);
  // The phase of an input's first access; -1: this rank accesses none of the input.
  int (*of_input)(const Attrs& attrs, size_t input);
  // Number of parts before the last.
  int (*parts)(const Attrs& attrs);
  // Amounts of work for a part by phase, [last + 1].
  std::vector<double> (*work)(const Attrs& attrs, int part);
  // The latest part with results of `op` that `taker` takes.
  int (*part_for)(const Op& op, const Op& taker);
};

}  // namespace braid
