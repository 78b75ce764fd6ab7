#include "braid/backend/cpu/pool_of_at_most.h"

#include "braid/base/error.h"

namespace braid::cpu {

std::unique_ptr<ThreadPool> pool_of_at_most(int threads) {
  for (; threads > 1; --threads) {
    try {
      return std::make_unique<ThreadPool>(threads);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kResource) throw;
    }
  }
  return std::make_unique<ThreadPool>(threads);
}

}  // namespace braid::cpu
