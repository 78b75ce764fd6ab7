// Counters of a step with fewer ranks than the world, as a part of the ranks computes it.
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "backend/cuda/sequence/sequence_world.h"
#include "braid/backend/cuda/device.h"
#include "braid/kernels/cuda/comm/device/one_sided.h"
#include "braid/kernels/cuda/comm/device/one_sided_kernels.h"

namespace braid::testing_sp_gpu {
namespace {

// What lies behind the counters belongs to other values.
TEST(SyncOnGpus, OpensCountersOfThePartsRanksAlone) {
  if (gpus() == 0) GTEST_SKIP() << "no GPU";
  constexpr int kWorld = 4;
  fabric::PeerFabric fabric(fabric_config(Topology{.devices = kWorld}));
  const Mesh mesh({{"part", 2}, {"ring", 2}});
  fabric::run_ranks(fabric, [&](fabric::PeerEndpoint& e) {
    const cuda::OneSidedComm comm(e, {&mesh, 1});
    const auto memory = e.allocate<uint32_t>(kWorld * cuda::kCounterWords, "counters");
    const cuda::OwnedStream stream = cuda::make_stream();
    for (int counted = 1; counted <= kWorld; ++counted) {
      std::vector<uint32_t> words(kWorld * cuda::kCounterWords);
      std::iota(words.begin(), words.end(), 1u);
      const auto bytes = static_cast<size_t>(memory.size()) * sizeof(uint32_t);
      cuda::check_cuda(cudaMemcpy(memory.data(), words.data(), bytes, cudaMemcpyDefault), "words");
      comm.sync(
          {.axis = "", .ranks = {}, .opened = {memory.data()}, .counted = counted, .expected = {}},
          Stream::compute, {stream.get(), false});
      cuda::check_cuda(cudaStreamSynchronize(stream.get()), "sync");
      std::vector<uint32_t> got(words.size());
      cuda::check_cuda(cudaMemcpy(got.data(), memory.data(), bytes, cudaMemcpyDefault), "words");
      for (int rank = 0; rank < counted; ++rank) words[rank * cuda::kCounterWords] = 0;
      EXPECT_EQ(got, words) << counted << " ranks";
    }
  });
}

}  // namespace
}  // namespace braid::testing_sp_gpu
