// Clusters of CTAs on one GPU: how many of each size run at once and what they read, and what an
// exchange among their CTAs takes, on chip and through memory, with an idle memory and beside full
// rings of bulk copies.
//
//   bench_cuda_cluster [--json FILE] [--quick]
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <vector>

#include "braid/backend/cuda/memory.h"
#include "braid/backend/cuda/read_stream.h"
#include "braid/base/math.h"
#include "braid/kernels/cuda/cluster/device/cluster_fit.h"
#include "braid/kernels/cuda/linear/device/cluster_launch.h"
#include "cluster_kernels.cuh"
#include "gpu_main.h"
#include "graph_time.h"

namespace braid::cuda {
namespace {

using Json = nlohmann::json;

class Bench {
 public:
  Bench() : data_(0, kDataBytes), sink_(0, 4096) {
    check_cuda(cudaGetDeviceProperties(&device_, 0), "device");
    check_cuda(cudaMemset(data_.data(), 0x3f, kDataBytes), "data");
  }

  void streams(Json& results) {
    const double read = rate(
        [&](cudaStream_t s) {
          read_stream(data_.data(), kDataBytes, sink_.data(), 2 * device_.multiProcessorCount, {s});
        },
        kDataBytes);
    std::printf("%s, %d SMs; read-only stream %.0f GB/s\n\n", device_.name,
                device_.multiProcessorCount, read);
    std::printf(
        "Clusters of N CTAs with an SM each (%d KB of shared memory), and what a ring of "
        "%d copies of 8 KB on so many CTAs reads:\n\n",
        kAllShared >> 10, kMaxSlots);
    std::printf(
        "| N | clusters | CTAs | GB/s | of all SMs' | 32 clusters | 16 | 8 |\n"
        "|---|---|---|---|---|---|---|---|\n");
    double all = 0;
    for (int size = 1; size <= kMaxCluster; ++size) {
      const int smem = kAllShared - 1024;
      const int clusters =
          max_active_clusters(reinterpret_cast<const void*>(stream_kernel), size, kBlock, smem);
      if (clusters == 0) {
        std::printf("| %d | 0 | 0 | | | | | |\n", size);
        results.push_back({{"what", "clusters"}, {"n", size}, {"clusters", 0}});
        continue;
      }
      const auto stream = [&](int count) {
        const int ctas = count * size;
        const StreamArgs args{reinterpret_cast<const uint8_t*>(data_.data()),
                              kDataBytes / kSlot / ctas, kMaxSlots};
        return rate(
            [&](cudaStream_t s) {
              launch_clusters({s}, stream_kernel, count, size, kBlock, smem, args);
            },
            args.copies * ctas * kSlot);
      };
      const double gbps = stream(clusters);
      if (size == 1) all = gbps;
      std::printf("| %d | %d | %d | %.0f | %.3f |", size, clusters, clusters * size, gbps,
                  gbps / all);
      Json row = {{"what", "clusters"},
                  {"n", size},
                  {"clusters", clusters},
                  {"gb_per_s", gbps},
                  {"of_all", gbps / all}};
      for (const int count : {32, 16, 8}) {
        const double its = count <= clusters ? stream(count) : 0;
        std::printf(its > 0 ? " %.0f |" : " |", its);
        row[fmt::format("gb_per_s_of_{}", count)] = its;
      }
      std::printf("\n");
      results.push_back(row);
    }
    std::fflush(stdout);
  }

  void exchanges(Json& results, bool quick) {
    std::printf(
        "\nOne exchange, us (mean of %d that follow each other, the slowest CTA's), all "
        "clusters that fit at the same time; full: beside rings of copies, with their "
        "GB/s.\n\n",
        kRepeats);
    std::printf(
        "| kind | N | bytes of a CTA | form | chip | chip, full | memory | memory, full | "
        "GB/s beside chip, memory |\n|---|---|---|---|---|---|---|---|---|\n");
    const std::vector<int> sizes =
        quick ? std::vector<int>{2, 4, 8} : std::vector<int>{2, 3, 4, 6, 8, 12, 16};
    for (const auto kind : {ExchangeKind::reduce, ExchangeKind::gather}) {
      for (const int ctas : sizes) {
        for (int bytes = 256; bytes <= 64 << 10; bytes *= 2) {
          if (quick && bytes != 2048) continue;
          for (const auto form :
               {ExchangeForm::direct, ExchangeForm::scatter, ExchangeForm::tree}) {
            if (kind == ExchangeKind::gather && form == ExchangeForm::scatter) continue;
            point(kind, ctas, bytes, form, results);
          }
        }
      }
    }
  }

 private:
  template <class F>
  double rate(const F& enqueue, int64_t bytes) {
    return static_cast<double>(bytes) / graph_us(enqueue, 10) / 1e3;
  }

  struct Time {
    double us = 0;
    double gbps = 0;
  };

  void point(ExchangeKind kind, int ctas, int bytes, ExchangeForm form, Json& results) {
    const ExchangeDesc desc{kind, ctas, bytes};
    int64_t inbox = exchange_inbox_bytes(desc, form);
    if (kind == ExchangeKind::reduce) inbox = std::min<int64_t>(inbox, 32 << 10);
    inbox = round_up(inbox, 128);
    const int64_t own = (kind == ExchangeKind::reduce ? 2 : 1) * bytes + 2 * inbox;
    const int64_t left = kAllShared - 2048 - own;
    const int slots = static_cast<int>(std::min<int64_t>(kMaxSlots, left / kSlot));
    if (slots < 4) return;
    Time t[4];
    for (int i = 0; i < 4; ++i) {
      if (i >= 2 && kind == ExchangeKind::gather && form != ExchangeForm::direct) continue;
      t[i] = i < 2 ? time<ExchangePath::chip>(desc, form, static_cast<int>(inbox), i % 2 * slots)
                   : time<ExchangePath::memory>(desc, form, static_cast<int>(inbox), i % 2 * slots);
    }
    const char* kind_name = kind == ExchangeKind::reduce ? "reduce" : "gather";
    std::printf("| %s | %d | %d | %s | %.2f | %.2f | %.2f | %.2f | %.0f, %.0f |\n", kind_name, ctas,
                bytes, std::string(to_string(form)).c_str(), t[0].us, t[1].us, t[2].us, t[3].us,
                t[1].gbps, t[3].gbps);
    std::fflush(stdout);
    results.push_back({{"what", "exchange"},
                       {"kind", kind_name},
                       {"n", ctas},
                       {"bytes", bytes},
                       {"form", to_string(form)},
                       {"slots", slots},
                       {"chip_us", t[0].us},
                       {"chip_full_us", t[1].us},
                       {"memory_us", t[2].us},
                       {"memory_full_us", t[3].us},
                       {"chip_gb_per_s", t[1].gbps},
                       {"memory_gb_per_s", t[3].gbps}});
  }

  template <ExchangePath kPath>
  Time time(const ExchangeDesc& d, ExchangeForm form, int inbox, int slots) {
    const int bytes = static_cast<int>(d.bytes);
    const int own = (d.kind == ExchangeKind::reduce ? 2 : 1) * bytes + 2 * inbox;
    // As much as keeps another CTA off the SM.
    const int smem = std::max(slots * kSlot + own, 120 << 10);
    const auto kernel = exchange_kernel<kPath>;
    const int clusters =
        max_active_clusters(reinterpret_cast<const void*>(kernel), d.ctas, kBlock, smem);
    if (clusters == 0) return {};
    const int all = clusters * d.ctas;
    const int64_t mail_bytes = exchange_mail_bytes(d.ctas, inbox);
    CudaMemory ns(0, all * 8), copies(0, all * 4),
        mail(0, kPath == ExchangePath::memory ? clusters * mail_bytes : 16);
    ExchangeArgs args{
        .kind = d.kind,
        .form = form,
        .ctas = d.ctas,
        .bytes = bytes,
        .inbox_bytes = inbox,
        .slots = slots,
        .data = reinterpret_cast<const uint8_t*>(data_.data()),
        .mail = kPath == ExchangePath::memory ? reinterpret_cast<uint4*>(mail.data()) : nullptr,
        .mail_bytes = mail_bytes,
        .tag = 1,
        .ns = reinterpret_cast<uint64_t*>(ns.data()),
        .copies = reinterpret_cast<uint32_t*>(copies.data())};
    std::vector<Time> times;
    for (int i = 0; i < 5; ++i) {
      launch_clusters({}, kernel, clusters, d.ctas, kBlock, smem, args);
      check_cuda(cudaDeviceSynchronize(), "exchanges");
      args.tag += 1u << 20;
      std::vector<uint64_t> its_ns(static_cast<size_t>(all));
      std::vector<uint32_t> its_copies(static_cast<size_t>(all));
      check_cuda(cudaMemcpy(its_ns.data(), ns.data(), its_ns.size() * 8, cudaMemcpyDeviceToHost),
                 "times");
      check_cuda(cudaMemcpy(its_copies.data(), copies.data(), its_copies.size() * 4,
                            cudaMemcpyDeviceToHost),
                 "copies");
      Time t;
      for (int c = 0; c < all; ++c) {
        const auto its = static_cast<double>(its_ns[static_cast<size_t>(c)]);
        t.us = std::max(t.us, its / 1e3 / kRepeats);
        t.gbps += slots > 0 ? its_copies[static_cast<size_t>(c)] * double{kSlot} / its : 0;
      }
      if (i > 0) times.push_back(t);
    }
    std::sort(times.begin(), times.end(), [](const Time& a, const Time& b) { return a.us < b.us; });
    return times[times.size() / 2];
  }

  cudaDeviceProp device_{};
  CudaMemory data_;
  CudaMemory sink_;
};

int run(int argc, char** argv) {
  const char* json_path = nullptr;
  bool quick = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json_path = argv[++i];
    } else if (std::strcmp(argv[i], "--quick") == 0) {
      quick = true;
    } else {
      std::fprintf(stderr, "usage: %s [--json FILE] [--quick]\n", argv[0]);
      return 2;
    }
  }
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no CUDA device: nothing to measure\n");
    return 0;
  }
  if (code_capability() != 90) {
    std::printf("no GPU with clusters: nothing to measure\n");
    return 0;
  }
  Json results = Json::array();
  Bench bench;
  bench.streams(results);
  bench.exchanges(results, quick);
  if (json_path != nullptr) write_results(json_path, results.dump(1));
  return 0;
}

}  // namespace
}  // namespace braid::cuda

int main(int argc, char** argv) {
  return braid::cuda::gpu_main("bench_cuda_cluster", [&] { return braid::cuda::run(argc, argv); });
}
