#pragma once

#include <memory>

#include "braid/backend/cpu/thread_pool.h"

namespace braid::cpu {

// A pool for work that any number of threads can do: of `threads` threads, or of as many as the
// system gives, the caller's alone at least.
std::unique_ptr<ThreadPool> pool_of_at_most(int threads);

}  // namespace braid::cpu
