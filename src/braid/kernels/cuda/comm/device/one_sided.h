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

// What pull, push and sync (ops/one_sided.h) are made of on a GPU: kernels of one warp, which ask
// for data and wait for peers while attention may run on another stream. It spares SMs for them
// (bind_segment_attention.cc), so that a long computation never holds them up. Data go by copy
// engine, when a LinkProxy is asked for them; a push beside which nothing computes is a kernel that
// stores them itself (push_config.h).
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

  // Asks for transfers, waits for them, and with `arrivals` then adds 1 to this rank's counter at
  // each peer. `counts` is device memory of zeros, a word for each job, that nothing else uses.
  struct Transfers {
    std::vector<std::unique_ptr<fabric::LinkProxy::Job>> jobs;  // of the first peers
    std::vector<int> peers;                                     // at most kMaxCommRanks
    uint32_t* counts = nullptr;
  };
  void transfer(const Transfers& transfers, const uint32_t* arrivals,
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
