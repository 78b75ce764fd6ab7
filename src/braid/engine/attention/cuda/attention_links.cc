#include "braid/engine/attention/cuda/attention_links.h"

#include <algorithm>
#include <chrono>
#include <mutex>

#include "braid/backend/cuda/check.h"
#include "braid/backend/cuda/handles.h"
#include "braid/engine/attention/attention_job.h"
#include "braid/engine/cuda/gpu_fabric.h"
#include "braid/fabric/host_barrier.h"
#include "braid/fabric/peer/copy_block.h"

namespace braid::attention_modes {

namespace {

double time_copy(fabric::HostBarrier& meeting, const fabric::SymBuf<std::byte>& from,
                 const fabric::SymBuf<std::byte>& to, int peer, const fabric::Block& block,
                 const cuda::OwnedStream& stream, int times) {
  const cuda::OwnedEvent begin = cuda::make_event(true), end = cuda::make_event(true);
  fabric::copy_async(to.data(), from.peer(peer), block, stream.get());
  cuda::check_cuda(cudaStreamSynchronize(stream.get()), "a copy");
  meeting.wait();
  cuda::record(begin, stream.get());
  for (int i = 0; i < times; ++i) {
    fabric::copy_async(to.data(), from.peer(peer), block, stream.get());
  }
  cuda::record(end, stream.get());
  cuda::check_cuda(cudaStreamSynchronize(stream.get()), "a copy");
  meeting.wait();
  float ms = 0;
  cuda::check_cuda(cudaEventElapsedTime(&ms, begin.get(), end.get()), "a copy's time");
  return 1e-3 * static_cast<double>(ms) / times;
}

// The host asks.
double time_transfer(fabric::HostBarrier& meeting, fabric::DeviceEndpoint& e,
                     const fabric::SymBuf<std::byte>& from, const fabric::SymBuf<std::byte>& to,
                     int peer, const fabric::Block& block, int times) {
  const auto job = e.make_transfer(peer, false);
  const auto* source = e.transfer_end(from.at(), peer);
  job->set({{to.data(), source, block}});
  meeting.wait();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) {
    job->ask();
    while (!job->take_answer()) e.check();
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  meeting.wait();
  return took.count() / times;
}

}  // namespace

LinkSpeed measure_links(job::Job* job, fabric::Fabric& fabric, const Topology& topology,
                        int64_t heads, int64_t head_dim) {
  constexpr int64_t kBytes = 192 << 20;
  constexpr int kTimes = 4;
  constexpr int64_t kLeastBytes = 4 << 10;
  constexpr int kLeastTimes = 64;
  const int64_t row = std::max<int64_t>(heads / 2, 1) * head_dim * 2;
  LinkSpeed speeds;
  std::mutex mutex;
  on_gpus(fabric, [&](fabric::DeviceEndpoint& e) {
    fabric::HostBarrier meeting(e);
    const auto from = e.allocate<std::byte>(kBytes, "bench.from");
    const auto to = e.allocate<std::byte>(kBytes, "bench.to");
    const cuda::OwnedStream stream = cuda::make_stream();
    for (int peer :
         {(e.rank() + 1) % e.world_size(), (e.rank() + topology.devices) % e.world_size()}) {
      if (peer == e.rank()) continue;
      const LinkClass link = e.link(e.rank(), peer);
      const auto time = [&](const fabric::Block& block, int times) {
        return link == LinkClass::machine ? time_copy(meeting, from, to, peer, block, stream, times)
                                          : time_transfer(meeting, e, from, to, peer, block, times);
      };
      for (bool rows : {false, true}) {
        const fabric::Block block = rows ? fabric::Block{row, kBytes / (2 * row), 2 * row, 2 * row}
                                         : fabric::Block{.row_bytes = kBytes / 2};
        const double found = static_cast<double>(block.bytes()) / time(block, kTimes);
        std::lock_guard lock(mutex);
        double& speed = (rows ? speeds.rows : speeds.blocks)[link];
        speed = speed == 0 ? found : std::min(speed, found);
      }
      const double least = time({.row_bytes = kLeastBytes}, kLeastTimes);
      std::lock_guard lock(mutex);
      double& seconds = speeds.seconds[link];
      seconds = seconds == 0 ? least : std::min(seconds, least);
    }
    meeting.wait();
  });
  std::vector<double> mine(speeds.blocks.begin(), speeds.blocks.end());
  mine.insert(mine.end(), speeds.rows.begin(), speeds.rows.end());
  mine.insert(mine.end(), speeds.seconds.begin(), speeds.seconds.end());
  for (const std::vector<double>& other : gather(job, "speeds of links", mine)) {
    for (size_t link = 0; link < 3; ++link) {
      speeds.blocks[link] = std::min(speeds.blocks[link], other[link]);
      speeds.rows[link] = std::min(speeds.rows[link], other[3 + link]);
      speeds.seconds[link] = std::min(speeds.seconds[link], other[6 + link]);
    }
  }
  return speeds;
}

}  // namespace braid::attention_modes
