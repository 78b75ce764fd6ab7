#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/engine/token_loop.h"

namespace braid::golden {

// Masks of one token each, which a test holds back by hand.
class HeldMasks {
 public:
  explicit HeldMasks(int64_t vocabulary) : vocabulary_(vocabulary) {}

  // Masks behind more tokens have to wait.
  void let_pass(size_t generated) {
    {
      const std::lock_guard lock(mutex_);
      passes_ = generated;
    }
    changed_.notify_all();
  }
  bool asked(size_t generated) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(60), [&] { return asked_ >= generated; });
  }
  int32_t wanted(size_t generated) const {
    return static_cast<int32_t>((5 + 13 * generated) % static_cast<size_t>(vocabulary_));
  }
  TokenMask mask() {
    return [this](std::span<const int32_t> ids) -> std::span<const uint32_t> {
      std::unique_lock lock(mutex_);
      asked_ = ids.size();
      changed_.notify_all();
      if (!changed_.wait_for(lock, std::chrono::seconds(60), [&] { return ids.size() <= passes_; }))
        fail(ErrorCode::kDeadline, "the test holds a mask for too long");
      words_.assign(static_cast<size_t>(ceil_div(vocabulary_, 32)), 0);
      const auto id = static_cast<size_t>(wanted(ids.size()));
      words_[id / 32] = uint32_t{1} << (id % 32);
      return words_;
    };
  }

 private:
  const int64_t vocabulary_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t passes_ = 0, asked_ = 0;
  std::vector<uint32_t> words_;
};

}  // namespace braid::golden
