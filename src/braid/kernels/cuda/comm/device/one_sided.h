#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braid/backend/cuda/launch.h"
#include "braid/fabric/peer/device_endpoint.h"
#include "braid/kernels/cuda/comm/device/comm_view.h"
#include "braid/parallel/mesh.h"
#include "braid/program/stream.h"

// Parts of pull, push and sync (ops/one_sided.h) on a GPU. Data goes by copy engine, at a
// LinkProxy's request; a push with nothing beside it is a kernel that stores the data
// (push_config.h). Pulls ask and wait by words in the stream (stream_words.h), without an SM, if
// streams may (KernelTable::streams_wait). Counters and meetings are kernels of one warp. Attention
// on another stream spares SMs for such kernels (bind_segment_attention.cc), so a long computation
// never holds meetings up. A sync or a storing push, and the kernel behind, begin early
// (LaunchContext::pdl) only where no other stream has work: such a kernel holds SMs meanwhile.
namespace braid::cuda {

struct HandoverParams;
struct KeepRowsArgs;
struct MergeStatesParams;
struct PushRowsParams;

// A rank's place of a group's meetings, in symmetric memory.
struct MeetingPoint {
  uint32_t epoch = 0;             // own: meetings so far
  uint32_t flags[kMaxCommRanks];  // [world], written by peers: their epochs
};

// A rank's part in the one-sided ops of some meshes: made collectively over the world, at a
// quiescent point, like DeviceComm. Meetings of an axis on a stream run in a single order, equal on
// every rank.
class OneSidedComm {
 public:
  // Throws kUnsupported if kernels cannot signal into a peer's memory.
  OneSidedComm(fabric::DeviceEndpoint& endpoint, std::span<const Mesh> meshes);
  OneSidedComm(const OneSidedComm&) = delete;
  OneSidedComm& operator=(const OneSidedComm&) = delete;

  fabric::DeviceEndpoint& endpoint() const { return endpoint_; }

  // A sync op. Counters are i32 [counted, kCounterWords] in this rank's symmetric memory.
  struct Sync {
    std::string axis;                    // empty: nobody to meet
    std::vector<int> ranks;              // meeting ranks, of the world
    std::vector<uint32_t*> opened;       // counters that become zero before the meeting
    int counted = 0;                     // ranks of the step: fewer than the world's in a part
    const uint32_t* arrivals = nullptr;  // counters, and their expected values
    std::vector<int64_t> expected;       // [world], or empty
  };
  void sync(const Sync& sync, Stream stream, const LaunchContext& context) const;

  // Asks for transfers, unless something before it in the stream has, waits for them, and with
  // `arrivals` then adds 1 to this rank's counter at each peer: a kernel.
  struct Transfers {
    std::vector<std::unique_ptr<fabric::LinkProxy::Job>> jobs;  // of the first peers
    std::vector<int> peers;                                     // at most kMaxCommRanks
    bool asked = false;
  };
  void transfer(const Transfers& transfers, const uint32_t* arrivals,
                const LaunchContext& context) const;
  // Asks for transfers not asked for yet, and for `ahead`, and waits for the first without a
  // kernel, if queues suffice (KernelTable::streams_wait).
  void fetch(const Transfers& transfers, std::span<uint32_t* const> ahead,
             const LaunchContext& context) const;

  // Stores blocks at peers by a kernel of `ctas` CTAs (push_config.h), then adds 1 to this rank's
  // counter at each peer. `ended` is a private zero in device memory.
  struct Stores {
    std::vector<fabric::LinkProxy::Piece> pieces;  // at most kMaxPushPieces
    std::vector<int> peers;
    uint32_t* ended = nullptr;
    int ctas = 1;
  };
  void store(const Stores& stores, const uint32_t* arrivals, const LaunchContext& context) const;

  // Stores as above, waits for `expected` arrivals here, and merges states or keeps rows: a single
  // kernel (handover.h).
  struct Handover {
    Stores stores;                       // `ended` has a zero for each peer
    std::vector<int> peer_of_piece;      // [pieces] among the peers
    int pushers = 0;                     // CTAs that store
    const uint32_t* arrivals = nullptr;  // counters
    std::vector<int64_t> expected;       // [world]
  };
  void hand_over(const Handover& handover, const MergeStatesParams& merge,
                 const LaunchContext& context) const;
  void hand_over(const Handover& handover, const KeepRowsArgs& keep,
                 const LaunchContext& context) const;

 private:
  // This rank's counter at a peer, to which a kernel is going to add.
  uint32_t* counter_at(const uint32_t* arrivals, int peer) const;
  struct Group {
    MeshGroup group;
    PerStream<fabric::SymBuf<MeetingPoint>> points;
  };
  CommView view(fabric::Tag tag) const;
  PushRowsParams params(const Stores& stores, const uint32_t* arrivals) const;
  HandoverParams params(const Handover& handover) const;

  fabric::DeviceEndpoint& endpoint_;
  std::vector<Group> groups_;
  fabric::Tag sync_tag_, transfer_tag_;
  CommView view_{};
};

}  // namespace braid::cuda
