#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "braid/base/error.h"

namespace braid::fabric {

// A world's collective allocations by order of the calls: the first rank to come makes a segment,
// the others must ask for the same. Thread-safe.
template <class SegmentType>
class Allocations {
 public:
  // A rank's share of the rank's `index`-th allocation; make() gives the segment. Fails with
  // kInvalidArgument if ranks ask for different things.
  template <class Make>
  std::shared_ptr<SegmentType> take(int rank, int ranks, int64_t index, int64_t bytes,
                                    std::string_view name, Make&& make) {
    std::lock_guard lock(mutex_);
    if (index == std::ssize(taken_)) taken_.push_back({make(), std::string(name), bytes, rank, 0});
    Taken& taken = taken_[index];
    if (taken.name != name || taken.bytes != bytes) {
      fail(ErrorCode::kInvalidArgument,
           "symmetric allocation {}: rank {} asks for '{}' of {} bytes, rank {} for '{}' of {}",
           index, rank, name, bytes, taken.first_rank, taken.name, taken.bytes);
    }
    std::shared_ptr<SegmentType> segment = taken.segment;
    if (++taken.takers == ranks) taken.segment.reset();
    return segment;
  }

 private:
  struct Taken {
    std::shared_ptr<SegmentType> segment;  // dropped after every rank has its share
    std::string name;
    int64_t bytes = 0;
    int first_rank = 0;
    int takers = 0;
  };
  std::mutex mutex_;
  std::vector<Taken> taken_;
};

}  // namespace braid::fabric
