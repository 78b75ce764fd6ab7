#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "braid/base/error.h"

// Symmetric memory: every rank in the world holds an equally large part, so an offset means the
// same on all ranks.
namespace braid::fabric {

// A symmetric allocation, owned by SymBufs. Zero-filled, 64-byte aligned. With ranks in several
// processes each process owns its part: a process that frees a part knows that nobody reads the
// part any more.
class Segment : public std::enable_shared_from_this<Segment> {
 public:
  Segment(std::string name, int64_t bytes) : name_(std::move(name)), bytes_(bytes) {}
  virtual ~Segment() = default;
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  const std::string& name() const { return name_; }
  int64_t bytes() const { return bytes_; }  // per rank
  // `from`'s address for rank `of`'s part; null if the fabric cannot map it.
  virtual std::byte* map(int from, int of) const = 0;

 private:
  const std::string name_;
  const int64_t bytes_;
};

// A place in a segment, on whichever rank a verb names. Lives no longer than its SymBuf.
template <class T>
struct SymPtr {
  Segment* segment = nullptr;
  int64_t offset = 0;  // bytes

  SymPtr operator+(int64_t elems) const {
    return {segment, offset + elems * static_cast<int64_t>(sizeof(T))};
  }
  template <class U>
  SymPtr<U> as() const {
    return {segment, offset};
  }
  template <class Byte>
  requires(std::is_same_v<Byte, std::byte> && !std::is_same_v<T, std::byte>) operator SymPtr<Byte>()
      const {
    return {segment, offset};
  }
};

// A rank's handle on `count` elements of T per rank.
template <class T>
class SymBuf {
 public:
  SymBuf() = default;
  SymBuf(std::shared_ptr<Segment> segment, int rank, int64_t count)
      : segment_(std::move(segment)), rank_(rank), count_(count) {}

  int64_t size() const { return count_; }
  SymPtr<T> at(int64_t i = 0) const {
    return {segment_.get(), i * static_cast<int64_t>(sizeof(T))};
  }
  // This rank's part.
  T* data() const { return reinterpret_cast<T*>(segment_->map(rank_, rank_)); }
  std::span<T> local() const { return {data(), static_cast<size_t>(count_)}; }
  // A rank's part for loads and stores without verbs and counters. Throws kUnsupported if the
  // fabric cannot map it (another process, or a link of an emulated speed).
  T* peer(int rank) const {
    std::byte* address = segment_->map(rank_, rank);
    if (!address) {
      fail(ErrorCode::kUnsupported, "'{}': rank {} cannot map the memory of rank {}",
           segment_->name(), rank_, rank);
    }
    return reinterpret_cast<T*>(address);
  }

 private:
  std::shared_ptr<Segment> segment_;
  int rank_ = 0;
  int64_t count_ = 0;
};

// A 64-bit counter, written by peers with Endpoint::signal and read by its owner with wait. On a
// private cache line: signals of different peers do not disturb each other.
struct Signal {
  alignas(64) uint64_t value;
};

}  // namespace braid::fabric
