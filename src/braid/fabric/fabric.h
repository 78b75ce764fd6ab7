#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "braid/fabric/symmetric.h"
#include "braid/fabric/traffic.h"

// One-sided access to the memory of other ranks. See comm.h for the collectives' groundwork.
//
// Memory model, which every fabric keeps and nothing more may be relied on:
//   1. A signal is delivered after all earlier puts by the same thread (or stream) to the same
//      peer: a rank that sees the signal through wait() sees the data of these puts.
//   2. Nothing else is ordered: puts to different peers, puts of different threads, gets.
//   3. The source of a put, and both ends of a get, stay untouched until its Transfer is complete.
//      A put's data may appear at the target at any time from the call to the next signal's
//      arrival; a target is free for a put once its owner has said so by another signal.
//
// Every wait ends: with the awaited value; with Error(kDeadline), which names rank, tag, expected
// and seen value; or, soon after another rank has failed, with Error(kAborted), which names that
// rank and its error.
namespace braid::fabric {

using Duration = std::chrono::nanoseconds;

// A transfer's extent: `rows` runs of row_bytes, strides in bytes (ignored for a single row).
struct Block {
  int64_t row_bytes = 0;
  int64_t rows = 1;
  int64_t dst_stride = 0;
  int64_t src_stride = 0;
  int64_t bytes() const { return row_bytes * rows; }
  // One run at both ends.
  bool packed() const { return rows == 1 || (dst_stride == row_bytes && src_stride == row_bytes); }
};

// A put or get under way, complete when the caller's own memory is free again (put) or holds the
// data (get). Destroying an incomplete Transfer cancels it and leaves its data undefined: for
// unwinding only, otherwise wait().
class [[nodiscard]] Transfer {
 public:
  class Pending {
   public:
    virtual ~Pending() = default;  // afterwards the fabric leaves the caller's memory alone
    virtual void wait() = 0;
  };

  Transfer() = default;  // complete
  explicit Transfer(std::unique_ptr<Pending> pending) : pending_(std::move(pending)) {}
  bool immediate() const { return !pending_; }
  // At most the fabric's deadline; throws kDeadline or kAborted.
  void wait() {
    if (pending_) pending_->wait();
    pending_.reset();
  }

 private:
  std::unique_ptr<Pending> pending_;
};

enum class SignalOp : uint8_t { set, add };

// Facts for wait()'s error: the purpose and, if known, the rank that should signal.
struct WaitFor {
  Tag tag;
  int from = -1;
  Duration deadline{0};  // 0: the fabric's default
};

// A rank's access to the world. The rank's threads may share an Endpoint. All calls throw
// kInvalidArgument or break an invariant on ranks and ranges outside the world and the segment.
class Endpoint {
 public:
  virtual ~Endpoint() = default;

  virtual int rank() const = 0;
  virtual int world_size() const = 0;
  virtual LinkClass link(int from, int to) const = 0;
  // The emulated speed between two ranks; 0 bytes/s where nothing is emulated.
  virtual Link speed(int from, int to) const = 0;
  virtual Tag tag(std::string_view name) = 0;

  // Collective over the world: every rank allocates the same sizes and names in the same order
  // (else kInvalidArgument here, and the job ends). Does not wait for the other ranks.
  template <class T>
  SymBuf<T> allocate(int64_t count, std::string_view name) {
    return {allocate_bytes(count, sizeof(T), name), rank(), count};
  }

  // dst at `peer` = src; the data is there when a later signal is. `peer` may be this rank.
  [[nodiscard]] virtual Transfer put_async(SymPtr<std::byte> dst, int peer, const void* src,
                                           const Block& block, Tag tag) = 0;
  // dst = src at `peer`, read at any time before the Transfer is complete.
  [[nodiscard]] virtual Transfer get_async(void* dst, SymPtr<std::byte> src, int peer,
                                           const Block& block, Tag tag) = 0;
  // Returns when src may be written again / dst may be read.
  void put(SymPtr<std::byte> dst, int peer, const void* src, int64_t bytes, Tag tag) {
    put_async(dst, peer, src, {.row_bytes = bytes}, tag).wait();
  }
  void get(void* dst, SymPtr<std::byte> src, int peer, int64_t bytes, Tag tag) {
    get_async(dst, src, peer, {.row_bytes = bytes}, tag).wait();
  }

  // slot at `peer` = value, or += value.
  virtual void signal(SymPtr<Signal> slot, int peer, SignalOp op, uint64_t value, Tag tag) = 0;
  // Waits until this rank's slot is at least `value`. A slot that is set and added to never falls.
  virtual void wait(SymPtr<Signal> slot, uint64_t value, const WaitFor& what) = 0;
  // The slot's present value, without waiting.
  virtual uint64_t peek(SymPtr<Signal> slot) const = 0;

  // Throws kAborted if another rank has failed: for long computation without waits.
  virtual void check() const = 0;
  virtual TrafficCounters& traffic() = 0;

 private:
  virtual std::shared_ptr<Segment> allocate_bytes(int64_t count, int64_t elem_bytes,
                                                  std::string_view name) = 0;
};

// A world of ranks.
class Fabric {
 public:
  virtual ~Fabric() = default;

  virtual int world_size() const = 0;
  // The ranks that live in this process: all, unless the world spans several.
  virtual int first_rank() const { return 0; }
  virtual int ranks_here() const { return world_size(); }
  // The handle of a rank in this process; lives as long as the fabric.
  virtual Endpoint& endpoint(int rank) = 0;
  // Ends the job: the first call's error is the job's, every wait of every rank throws kAborted.
  virtual void abort(int rank, std::exception_ptr error) = 0;
  // Rethrows the job's first error, if any.
  virtual void rethrow_error() const = 0;
  // One line: kind, ranks, layout, and whether links are emulated.
  virtual std::string describe() const = 0;
};

}  // namespace braid::fabric
