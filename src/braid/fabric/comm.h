#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "braid/fabric/fabric.h"
#include "braid/fabric/group.h"

// The groundwork of the collectives: rounds of a staged all-to-all exchange.
//
// In a round each rank puts up to slot_bytes into its own slot of every peer's staging memory,
// signals every peer (also with no data), and then waits for every peer's signal and takes its
// data. A collective is some rounds, and every rank in the group runs equal rounds in equal order.
// Round e on a lane uses bank e % 4 and signal value e + 1. A rank sends round e only after it has
// taken everything of round e - 2, so a round's data travel while the data of the round before are
// used.
//
//   RAW: p's puts of round e are before its signal e + 1 to q (memory model 1); q reads the slot
//        after wait(e + 1). Values only grow, so an early signal of round e + 1 does no harm: round
//        e's data came before it, in another bank.
//   WAR: p's puts of round e overwrite p's slot at q from round e - 4. Before these puts p took
//        round e - 2, so p saw q's signal of round e - 2, which q sent after taking round e - 4.
//        So q's last read of the slot is before p's put: no barrier is needed between rounds or
//        between collectives, whatever they are.
//
// Lanes never share slots or signals; within a lane a thread's program order, and between calls
// the caller's team barrier, carry the argument from one call to the next.
namespace braid::fabric {

struct CommConfig {
  std::string name = "world";  // prefix of tags, buffers and errors
  int lanes = 1;               // threads in a rank's team that may share a collective
  // Staging per lane, bank and peer, a multiple of 64. 0: 128 KiB in a machine; between machines
  // kFarSlotBytes, since each round there waits longer for its signal.
  int64_t slot_bytes = 0;
  Duration deadline{0};  // of each wait; 0: the fabric's default
};

struct CommTags {
  Tag all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, barrier;
};

// A rank's membership in a group: staging memory, signals and round counters. Made collectively
// over the world (each rank for its own group; equal name, lanes and slot_bytes), outside the hot
// path. Staging takes lanes * 4 * world_size * slot_bytes per rank. Collectives of a Comm run in a
// single order, equal on every rank; unordered collectives (two streams) need a Comm each.
class Comm {
 public:
  static constexpr int kBanks = 4;
  static constexpr int64_t kFarSlotBytes = 256 << 10;

  Comm(Endpoint& endpoint, Group group, CommConfig config = {});
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  Endpoint& endpoint() const { return endpoint_; }
  const Group& group() const { return group_; }
  int size() const { return group_.size(); }
  int index() const { return index_; }  // of this rank in the group
  int lanes() const { return config_.lanes; }
  int64_t slot_bytes() const { return config_.slot_bytes; }
  const CommTags& tags() const { return tags_; }
  // The slowest link between any two ranks of the group; 0 bytes/s when none is emulated.
  Link slowest() const { return slowest_; }

 private:
  friend class Exchange;
  struct alignas(64) Lane {
    uint64_t sent = 0;                    // rounds
    uint64_t taken = 0;                   // rounds
    std::vector<const std::byte*> views;  // [P], the result of take_all
  };
  int64_t slot(int lane, uint64_t round, int from) const {
    return ((lane * kBanks + static_cast<int64_t>(round % kBanks)) * size() + from) *
           config_.slot_bytes;
  }

  Endpoint& endpoint_;
  const Group group_;
  const CommConfig config_;
  const int index_;
  CommTags tags_;
  Link slowest_;
  SymBuf<std::byte> staging_;  // [lanes, kBanks, P, slot_bytes]
  SymBuf<Signal> signals_;     // [lanes, P]
  std::vector<Lane> lane_state_;
};

// A collective's rounds on a single lane. Lives on the call's stack: unwinding cancels transfers
// from the caller's memory.
class Exchange {
 public:
  Exchange(Comm& comm, int lane, Tag tag)
      : comm_(comm), state_(comm.lane_state_[lane]), lane_(lane), tag_(tag) {}

  // Calls puts(peer) for each other rank, in index order from the next rank on; puts calls put()
  // for the peer's data. Then signals the peer.
  template <class Puts>
  void send(Puts&& puts) {
    BRAID_CHECK(state_.sent <= state_.taken + 1, "round {} sent before round {} was taken",
                state_.sent, state_.taken);
    for (int k = 1; k < comm_.size(); ++k) {
      const int peer = (comm_.index() + k) % comm_.size();
      puts(peer);
      signal(peer);
    }
    ++state_.sent;
  }
  // `block` of src, packed at `offset` in this rank's slot at the peer.
  void put(int peer, int64_t offset, const void* src, const Block& block);

  // Waits for each other rank's signal and calls take(peer, its data in staging memory). The data
  // may be read until the next send().
  template <class Take>
  void take(Take&& take) {
    for (int k = 1; k < comm_.size(); ++k) {
      const int peer = (comm_.index() + k) % comm_.size();
      take(peer, wait(peer));
    }
    ++state_.taken;
  }

  // The same with all peers' data at once, by index; the entry of this rank is null.
  std::span<const std::byte*> take_all();

  // Returns when the sources of all puts are free again. Every collective ends with settle().
  void settle();

 private:
  void signal(int peer);
  const std::byte* wait(int peer);

  Comm& comm_;
  Comm::Lane& state_;
  const int lane_;
  const Tag tag_;
  std::vector<Transfer> pending_;
};

}  // namespace braid::fabric
