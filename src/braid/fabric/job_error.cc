#include "braid/fabric/job_error.h"

#include "braid/base/error.h"

namespace braid::fabric {
namespace {

std::string what_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

}  // namespace

void JobError::set(int rank, const std::exception_ptr& error) {
  {
    std::lock_guard lock(mutex_);
    if (!error_) {
      rank_ = rank;
      error_ = error;
      text_ = what_of(error);
    }
  }
  set_.store(true, std::memory_order_seq_cst);
}

void JobError::rethrow() const {
  std::lock_guard lock(mutex_);
  if (error_) std::rethrow_exception(error_);
}

void JobError::throw_aborted(int rank, const std::string& doing) const {
  std::lock_guard lock(mutex_);
  fail(ErrorCode::kAborted, "rank {}: {} aborted, rank {} failed: {}", rank, doing, rank_, text_);
}

void JobError::check(int rank) const {
  if (is_set()) throw_aborted(rank, "work");
}

}  // namespace braid::fabric
