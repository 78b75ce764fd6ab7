#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "braid/backend/cuda/launch.h"
#include "braid/fabric/peer/peer_endpoint.h"
#include "braid/kernels/cuda/comm/device/comm_view.h"
#include "braid/parallel/mesh.h"
#include "braid/program/stream.h"

// What pull, push and sync (ops/one_sided.h) are made of on a GPU. Data go by copy engine, when a
// LinkProxy is asked for them; a push beside which nothing computes is a kernel that stores them
// itself (push_config.h). Pulls ask and wait by words that the stream itself writes and waits for
// (stream_words.h), and take no SM, where streams may (KernelTable::streams_wait). Counters and
// meetings take kernels of one warp, for which attention on another stream spares SMs
// (bind_segment_attention.cc), so that a long computation never holds them up.
namespace braid::cuda {

// Of one rank, in its symmetric memory: where the ranks of a group meet.
struct MeetingPoint {
  uint32_t epoch = 0;             // own: meetings so far
  uint32_t flags[kMaxCommRanks];  // [world], written by peers: their epochs
};

// A rank's part in the one-sided ops of a mesh: made collectively over the world, at a quiescent
// point, as DeviceComm. Meetings of one axis on one stream run in one order, the same on every
// rank.
class OneSidedComm {
 public:
  // Throws kUnsupported where kernels cannot reach the memory of a peer for their signals.
  OneSidedComm(fabric::PeerEndpoint& endpoint, const Mesh& mesh);
  OneSidedComm(const OneSidedComm&) = delete;
  OneSidedComm& operator=(const OneSidedComm&) = delete;

  fabric::PeerEndpoint& endpoint() const { return endpoint_; }

  // All of one sync op. Counters are i32 [world, kLineWords] of this rank's symmetric memory.
  struct Sync {
    std::string axis;                    // empty: nobody to meet
    std::vector<uint32_t*> opened;       // counters that become zero before the meeting
    const uint32_t* arrivals = nullptr;  // counters, and what they must have reached
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
  // Asks for transfers, unless something has, and for those `ahead`, and waits for the first
  // without a kernel, where there are queues for it (KernelTable::streams_wait).
  void fetch(const Transfers& transfers, std::span<uint32_t* const> ahead,
             const LaunchContext& context) const;

  // Stores blocks at peers by a kernel of so many CTAs (push_config.h), then adds 1 to this rank's
  // counter at each peer. `ended` is a zero in device memory that nothing else uses.
  struct Stores {
    std::vector<fabric::LinkProxy::Piece> pieces;  // at most kMaxPushPieces
    std::vector<int> peers;
    uint32_t* ended = nullptr;
    int ctas = 1;
  };
  void store(const Stores& stores, const uint32_t* arrivals, const LaunchContext& context) const;

 private:
  // This rank's counter at a peer, to which a kernel is going to add.
  uint32_t* counter_at(const uint32_t* arrivals, int peer) const;
  struct Axis {
    std::vector<int> ranks;  // of the world
    std::array<fabric::SymBuf<MeetingPoint>, kNumStreams> points;
  };
  CommView view(fabric::Tag tag) const;

  fabric::PeerEndpoint& endpoint_;
  std::map<std::string, Axis> axes_;
  fabric::Tag sync_tag_, transfer_tag_;
  CommView view_{};
};

}  // namespace braid::cuda
