#pragma once

#include <cstdint>
#include <vector>

#include "braid/kernels/cuda/cluster/exchange.h"

namespace braid::cuda::test {

constexpr int kExchangeTestThreads = 160;

// One exchange of a launch.
struct ExchangeStep {
  ExchangeKind kind = ExchangeKind::reduce;
  ExchangeForm form = ExchangeForm::direct;
  bool max = false;
  bool bf16 = false;
  int32_t count = 1;  // elements that each CTA brings
  int64_t x = 0;      // bytes of the first CTA's elements; CTAs follow at x_bytes
  int64_t out = 0;    // bytes of the first CTA's results; CTAs follow at out_bytes
  int64_t x_bytes() const { return (int64_t{count} * (bf16 ? 2 : 4) + 15) / 16 * 16; }
  int64_t out_bytes(int ctas) const {
    return kind == ExchangeKind::gather ? ctas * x_bytes() : (int64_t{count} * 4 + 15) / 16 * 16;
  }
};

struct ExchangeLaunch {
  std::vector<ExchangeStep> steps;
  int ctas = 1;
  int clusters = 1;
  int inbox_bytes = 4096;
  ExchangePath path = ExchangePath::chip;
  uint32_t seed = 0;  // of the pauses with which CTAs come late
};

// Results of all CTAs [clusters, ctas] of all steps, in memory that was poisoned before.
std::vector<uint8_t> run_exchanges(const ExchangeLaunch& launch, const std::vector<uint8_t>& x,
                                   int64_t out_bytes);

// Whether the device runs a cluster of so many CTAs of the test's kernel.
bool runs_clusters(int ctas);

}  // namespace braid::cuda::test
