#pragma once

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "braid/fabric/ucx/ucx_segment.h"
#include "braid/fabric/ucx/ucx_wire.h"
#include "braid/fabric/ucx/ucx_worker.h"

namespace braid::fabric {

class UcxFabric;

// A get that waits for its data, shared by the waiting thread and the arrivals.
struct UcxGet {
  std::byte* dst = nullptr;
  Block block;  // dst_stride counts
  int rank = 0;
  bool receiving = false;  // under the worker's lock: UCX writes to dst
  bool gone = false;       // the peer has no such memory any more; set before `complete`
  std::atomic<bool> complete{false}, failed{false};
};

// Arrivals at this process' ranks: writes data to segments and delivers signals, for each sending
// process in the order of its calls, each signal after the data of all earlier puts. Data for a
// segment that is not allocated yet waits, with all later messages of the sender; data for a freed
// segment is dropped.
class UcxArrivals final : public UcxReceiver {
 public:
  explicit UcxArrivals(UcxFabric& fabric);

  // All under the worker's lock, or taking it.
  void add(const std::shared_ptr<UcxSegment>& segment);
  uint64_t add(std::shared_ptr<UcxGet> get);  // its name for header.value
  void remove(uint64_t get);

 private:
  struct Message {
    UcxHeader header;
    UcxPayload payload;
  };
  // From one process.
  struct Source {
    uint64_t next = 0;                  // sequence
    std::map<uint64_t, Message> early;  // by sequence: not yet in order
    std::set<uint64_t> receiving;       // puts whose data are on their way
    std::deque<UcxHeader> signals;      // that wait for data
  };
  struct Known {
    std::string name;
    int64_t bytes = 0;
    std::weak_ptr<UcxSegment> segment;
    bool here = false;
  };
  void arrived(std::span<const std::byte> raw, UcxPayload& payload) override;
  void arrived(const UcxHeader& header, UcxPayload& payload);
  void take(Source& source, const UcxHeader& header, UcxPayload& payload);
  void drain(Source& source);
  void deliver_signals(Source& source);
  void put(Source& source, const UcxHeader& header, UcxPayload& payload);
  void answer(const UcxHeader& header);
  void reply(const UcxHeader& header, UcxPayload& payload);
  void compare(int64_t index, const std::string& name, int64_t bytes, int from);
  bool is_here(uint32_t segment) const { return segment < known_.size() && known_[segment].here; }
  bool fits(const UcxSegment& segment, const UcxHeader& header) const;

  UcxFabric& fabric_;
  std::vector<Source> sources_;    // [processes]
  std::vector<Known> known_;       // by index of the segment
  std::vector<UcxHeader> wishes_;  // gets from segments not allocated yet
  std::map<uint64_t, std::shared_ptr<UcxGet>> gets_;
  uint64_t next_get_ = 0;
};

}  // namespace braid::fabric
