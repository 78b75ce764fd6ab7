#pragma once

#include <map>
#include <memory>
#include <string>

#include "braid/backend/backend.h"
#include "braid/parallel/lowering.h"
#include "braid/runtime/executor.h"

namespace braid {

// What one rank has of its own: a backend, its part of the weights, its share of the KV cache, and
// the memory that steps work in, which all plans of the rank share since they run one by one.
class Rank {
 public:
  virtual ~Rank() = default;
  virtual Backend& backend() = 0;

  // Binds a rank's Program and Schedule to its weights and states. Steps that ranks take together
  // share an arena; one `beside` them leaves what they computed as it is. Before a step runs,
  // back_pages() has made the pages usable that it reads and writes.
  std::unique_ptr<Executor> bind(const RankProgram& lowered, Program fused, Schedule schedule,
                                 bool beside = false);

  // The first `pages` pages of the KV cache may be used from now on. Fails with kResource where the
  // device has too little memory left for them; those of before stay.
  void back_pages(int64_t pages);
  int64_t backed_pages() const { return pages_; }  // at least as many as were asked for

 protected:
  // The part of a weight that this rank keeps, where its kernels read it.
  virtual TensorView weight(const Value& value, const Placement& placement) = 0;
  // Memory of a state, of which back_state() makes the first `bytes` usable; it returns how many
  // are then.
  virtual std::unique_ptr<DeviceMemory> allocate_state(int64_t bytes) {
    return backend().allocate(bytes);
  }
  virtual int64_t back_state(DeviceMemory& state, int64_t /*bytes*/) { return state.bytes(); }
  // Memory for steps to work in that ranks take together; a step that this rank takes alone works
  // in the backend's.
  virtual std::shared_ptr<DeviceMemory> allocate_arena(int64_t bytes) {
    return backend().allocate(bytes);
  }

 private:
  struct State {
    std::unique_ptr<DeviceMemory> memory;
    ValueType type;  // [pages, page_size, ...]
  };

  TensorView state(const Value& value);
  int64_t back(State& state, int64_t pages);  // pages that can be used then

  std::map<std::string, State> states_;  // by name
  int64_t pages_ = 0;                    // that can be used in every state
  std::shared_ptr<DeviceMemory> arena_;  // the largest so far
  std::shared_ptr<DeviceMemory> arena_beside_, arena_alone_;
};

// The part of a weight that a rank keeps, in place.
TensorView cut(const TensorView& whole, const Placement& placement, int rank);

}  // namespace braid
