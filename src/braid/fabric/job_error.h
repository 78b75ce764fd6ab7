#pragma once

#include <atomic>
#include <exception>
#include <mutex>
#include <string>

namespace braid::fabric {

// A job's first error, which ends the job for every rank. Any thread may call.
class JobError {
 public:
  void set(int rank, const std::exception_ptr& error);  // only the first counts
  bool is_set() const { return set_.load(std::memory_order_seq_cst); }

  // Rethrows the error, if any.
  void rethrow() const;
  // Throws kAborted, naming who failed and why.
  [[noreturn]] void throw_aborted(int rank, const std::string& doing) const;
  // The same if there is an error.
  void check(int rank) const;

 private:
  std::atomic<bool> set_{false};
  mutable std::mutex mutex_;
  int rank_ = -1;
  std::exception_ptr error_;
  std::string text_;
};

}  // namespace braid::fabric
