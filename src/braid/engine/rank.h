#pragma once

#include <map>
#include <memory>
#include <string>

#include "braid/backend/backend.h"
#include "braid/parallel/lowering.h"
#include "braid/runtime/executor.h"

namespace braid {

// A rank's resources: backend, part of the weights, share of the KV cache, and the arena for steps.
// All plans of the rank share the arena because steps run one after another.
class Rank {
 public:
  virtual ~Rank() = default;
  virtual Backend& backend() = 0;

  // Binds a rank's Program and Schedule to the rank's weights and states. Steps of all ranks
  // together share an arena; a step `beside` them has an arena apart and keeps their results
  // intact. Requires before a step runs: back_pages() covers the step's pages.
  std::unique_ptr<Executor> bind(const RankProgram& lowered, Program fused, Schedule schedule,
                                 bool beside = false);

  // Makes the first `pages` pages of the KV cache usable. Fails with kResource if the device has
  // too little memory left; earlier pages stay usable.
  void back_pages(int64_t pages);
  int64_t backed_pages() const { return pages_; }  // at least the pages of back_pages()

 protected:
  // This rank's part of a weight, in memory that its kernels read.
  virtual TensorView weight(const Value& value, const Placement& placement) = 0;
  // Allocates a state's address range. back_state() makes the first `bytes` usable and returns the
  // number of usable bytes.
  virtual std::unique_ptr<DeviceMemory> allocate_state(int64_t bytes) {
    return backend().allocate(bytes);
  }
  virtual int64_t back_state(DeviceMemory& state, int64_t /*bytes*/) { return state.bytes(); }
  // Allocates the arena for steps of all ranks together. Steps of this rank alone use the backend's
  // memory.
  virtual std::shared_ptr<DeviceMemory> allocate_arena(int64_t bytes) {
    return backend().allocate(bytes);
  }

 private:
  struct State {
    std::unique_ptr<DeviceMemory> memory;
    ValueType type;  // [pages, page_size, ...]
  };

  TensorView state(const Value& value);
  int64_t back(State& state, int64_t pages);  // returns the number of usable pages

  std::map<std::string, State> states_;  // by name
  int64_t pages_ = 0;                    // usable pages of every state
  std::shared_ptr<DeviceMemory> arena_;  // the largest so far
  std::shared_ptr<DeviceMemory> arena_beside_, arena_alone_;
};

// A rank's part, as a view of `whole`.
TensorView cut(const TensorView& whole, const Placement& placement, int rank);

}  // namespace braid
