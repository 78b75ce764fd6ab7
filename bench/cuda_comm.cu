// Collectives between the GPUs of this machine in CUDA graphs: microseconds each, the largest over
// the ranks. `--sweep` times every candidate, else the chosen config of each size; `--json FILE`
// writes all rows. tools/bench_comm.py puts NCCL beside it.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "braid/fabric/host_barrier.h"
#include "braid/fabric/peer/peer_fabric.h"
#include "braid/kernels/cuda/comm/device/collectives.h"
#include "gpu_main.h"

namespace braid::cuda {
namespace {

struct Options {
  int ranks = 0;  // 0: every GPU
  bool sweep = false;
  bool shared = false;  // ranks on one GPU: only whether it runs
  int64_t max_bytes = 256 << 20;
  std::string json;
  std::string only;  // an op
};

struct Row {
  std::string op;
  int64_t bytes;  // of the whole value
  std::string config;
  bool chosen;
  bool pdl;
  double us;
};

class Bench {
 public:
  Bench(fabric::PeerEndpoint& endpoint, const Options& options, std::vector<Row>& rows,
        std::vector<double>& times)
      : options_(options),
        endpoint_(endpoint),
        comm_(endpoint, fabric::Group::world(endpoint.world_size()),
              {.name = "bench", .line_bytes = 2 << 20, .max_ctas = 128}),
        x_(endpoint.allocate<std::byte>(options.max_bytes, "x")),
        y_(endpoint.allocate<std::byte>(options.max_bytes, "y")),
        ready_(endpoint),
        rows_(rows),
        times_(times) {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    check_cuda(cudaEventCreate(&start_), "event");
    check_cuda(cudaEventCreate(&stop_), "event");
    fill(x_.data());
    ready_.wait();
  }
  ~Bench() {
    cudaEventDestroy(start_);
    cudaEventDestroy(stop_);
    cudaStreamDestroy(stream_);
  }

  void run() {
    for (CollectiveOp op : {CollectiveOp::all_reduce, CollectiveOp::reduce_scatter,
                            CollectiveOp::all_gather, CollectiveOp::all_to_all}) {
      if (!wanted(to_string(op))) continue;
      for (int64_t bytes = 1 << 10; bytes <= options_.max_bytes; bytes *= 2) {
        // Every size of all_reduce, every fourth of the others.
        if (op != CollectiveOp::all_reduce && (bytes & 0x15555555555ll << 12) == 0) continue;
        collective_of(op, bytes);
      }
    }
    if (wanted("all_reduce_add_rms_norm")) {
      for (int64_t cols : {4096, 8192}) {
        for (int64_t rows : {1, 8, 32}) norm_of(rows, cols);
      }
    }
    if (wanted("reduce_scatter_add_rms_norm_all_gather")) {
      for (int64_t rows : {64, 512, 4096}) scatter_norm_of(rows, 8192);
    }
  }

 private:
  bool wanted(std::string_view op) const { return options_.only.empty() || options_.only == op; }

  // Numbers in (-2, 2): zeros may be faster than data.
  void fill(std::byte* memory) {
    std::vector<uint16_t> tile(std::min<int64_t>(options_.max_bytes, 4 << 20) / 2);
    uint32_t state = 1 + endpoint_.rank();
    for (uint16_t& v : tile) {
      state = state * 1664525 + 1013904223;
      v = static_cast<uint16_t>((state >> 16 & 0x80ff) | 0x3f00);
    }
    const int64_t bytes = std::ssize(tile) * 2;
    for (int64_t at = 0; at + bytes <= options_.max_bytes; at += bytes) {
      check_cuda(cudaMemcpyAsync(memory + at, tile.data(), bytes, cudaMemcpyDefault, stream_),
                 "input");
    }
    check_cuda(cudaStreamSynchronize(stream_), "input");
  }

  void collective_of(CollectiveOp op, int64_t bytes) {
    const CollectiveParams params{.x = x_.data(), .y = y_.data()};
    const CollectiveDesc desc = describe(comm_, op, DType::bf16, endpoint_.world_size(),
                                         bytes / 2 / endpoint_.world_size(), params);
    CommLimits limits;
    const CollectiveConfig chosen = choose(desc, limits);
    std::vector<CollectiveConfig> configs = {chosen};
    if (options_.sweep) add_variants(desc, configs);
    for (const CollectiveConfig& config : configs) {
      for (bool pdl : {false, true}) {
        if (pdl && config.algorithm == CommAlgorithm::copy_engine) continue;
        const double us = time(bytes, [&] {
          collective(comm_, desc, params, config, {stream_, pdl});
        });
        report({std::string(to_string(op)), bytes, to_string(config), config == chosen, pdl, us});
      }
    }
  }

  void add_variants(const CollectiveDesc& desc, std::vector<CollectiveConfig>& configs) {
    const auto add = [&](const CollectiveConfig& c) {
      try {
        verify(desc, c, comm_.limits());
      } catch (const Error&) {
        return;
      }
      configs.push_back(c);
    };
    const int64_t bytes = line_payload(desc);
    for (int data : {8, 12, 16}) {
      for (int ctas : {1, 2, 4, 8, 16, 32, 64, 128}) {
        for (int threads : {64, 128, 256, 512}) {
          // From a line for each thread to sixteen units.
          const int64_t units = bytes / (data * (data == 8 ? 2 : 4));
          if (bytes / data * 2 < int64_t{ctas} * threads || units > int64_t{16} * ctas * threads)
            continue;
          add({.algorithm = CommAlgorithm::line,
               .ctas = ctas,
               .threads = threads,
               .line_data = data});
        }
      }
    }
    if (desc.bytes() >= 256 << 10) {
      for (int ctas : {8, 16, 24, 32, 48, 64, 128}) {
        for (int unroll : {4, 8}) {
          for (int threads : {256, 512}) {
            add({.algorithm = CommAlgorithm::direct,
                 .ctas = ctas,
                 .threads = threads,
                 .unroll = unroll});
          }
        }
      }
    }
    if (desc.op == CollectiveOp::all_gather || desc.op == CollectiveOp::all_to_all) {
      add({.algorithm = CommAlgorithm::copy_engine, .ctas = 1, .threads = 32});
    }
  }

  void norm_of(int64_t rows, int64_t cols) {
    const int64_t n = rows * cols;
    if (10 * n > options_.max_bytes) return;
    auto* const y = reinterpret_cast<std::byte*>(y_.data());
    const ReduceNormParams params{.x = x_.data(),
                                  .r = reinterpret_cast<float*>(y),
                                  .w = x_.data() + 2 * n,
                                  .s = reinterpret_cast<float*>(y + 4 * n),
                                  .y = y + 8 * n,
                                  .rows = rows,
                                  .cols = cols};
    const ReduceNormConfig chosen = choose_reduce_norm(rows, cols, CommLimits{});
    std::vector<ReduceNormConfig> configs = {chosen};
    if (options_.sweep) {
      for (int units : {1, 2, 4}) {
        const int threads = static_cast<int>(round_up(ceil_div(cols / 8, units), 32));
        if (threads > kMaxCommThreads) continue;
        for (int spread : {1, 2, 4, 8}) {
          for (int groups : {8, 32, 64}) {
            if (groups != 8 && groups > rows) continue;
            const int row_groups = static_cast<int>(std::min<int64_t>(groups, rows));
            if (spread * row_groups <= 128) configs.push_back({spread, threads, units, row_groups});
          }
        }
      }
    }
    for (const ReduceNormConfig& config : configs) {
      for (bool pdl : {false, true}) {
        const double us = time(2 * n, [&] {
          all_reduce_add_rms_norm(comm_, params, config, {stream_, pdl});
        });
        report({fmt::format("all_reduce_add_rms_norm {}x{}", rows, cols), 2 * n, to_string(config),
                config == chosen, pdl, us});
      }
    }
  }

  void scatter_norm_of(int64_t rows, int64_t cols) {
    const int64_t n = rows * cols;
    if (6 * n > options_.max_bytes) return;
    const ReduceNormParams params{.x = x_.data(),
                                  .r = reinterpret_cast<float*>(y_.data()),
                                  .w = x_.data() + 2 * n,
                                  .s = reinterpret_cast<float*>(y_.data()),
                                  .y = y_.data() + 4 * n,
                                  .rows = rows,
                                  .cols = cols};
    const ReduceNormConfig chosen =
        choose_scatter_norm(rows, cols, endpoint_.world_size(), CommLimits{});
    std::vector<ReduceNormConfig> configs = {chosen};
    if (options_.sweep) {
      for (int ctas : {32, 64, 128}) {
        for (int threads : {256, 512})
          configs.push_back({1, threads, threads == 256 ? 4 : 2, ctas});
      }
    }
    for (const ReduceNormConfig& config : configs) {
      for (bool pdl : {false, true}) {
        const double us = time(2 * n, [&] {
          reduce_scatter_add_rms_norm_all_gather(comm_, params, config, {stream_, pdl});
        });
        report({fmt::format("reduce_scatter_add_rms_norm_all_gather {}x{}", rows, cols), 2 * n,
                to_string(config), config == chosen, pdl, us});
      }
    }
  }

  // Microseconds of one of the launches of a graph, the largest over the ranks.
  double time(int64_t bytes, const std::function<void()>& launch) {
    const int per_graph = bytes <= 1 << 20 ? 64 : bytes <= 16 << 20 ? 16 : 4;
    const int replays = bytes <= 1 << 20 ? 12 : 6;
    ready_.wait();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), "capture");
    for (int i = 0; i < per_graph; ++i) launch();
    check_cuda(cudaStreamEndCapture(stream_, &graph), "capture");
    check_cuda(cudaGraphInstantiate(&exec, graph, 0), "instantiation");
    check_cuda(cudaGraphUpload(exec, stream_), "upload");
    check_cuda(cudaStreamSynchronize(stream_), "upload");
    ready_.wait();
    for (int i = 0; i < 2; ++i) check_cuda(cudaGraphLaunch(exec, stream_), "launch");
    check_cuda(cudaEventRecord(start_, stream_), "event");
    for (int i = 0; i < replays; ++i) check_cuda(cudaGraphLaunch(exec, stream_), "launch");
    check_cuda(cudaEventRecord(stop_, stream_), "event");
    check_cuda(cudaStreamSynchronize(stream_), "replays");
    comm_.check();
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, start_, stop_), "time");
    times_[endpoint_.rank()] = ms * 1e3 / (replays * per_graph);
    ready_.wait();
    const double us = *std::max_element(times_.begin(), times_.end());
    ready_.wait();
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return us;
  }

  void report(const Row& row) {
    if (endpoint_.rank() == 0) rows_.push_back(row);
  }

  const Options& options_;
  fabric::PeerEndpoint& endpoint_;
  DeviceComm comm_;
  fabric::SymBuf<std::byte> x_;
  fabric::SymBuf<std::byte> y_;
  fabric::HostBarrier ready_;
  std::vector<Row>& rows_;      // of rank 0
  std::vector<double>& times_;  // [ranks]
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr;
  cudaEvent_t stop_ = nullptr;
};

// One line for each size: the chosen config with and without programmatic launch, and the best of
// each kind that was timed.
void print(const std::vector<Row>& rows, bool sweep) {
  fmt::print("| op | KB | chosen | us | us pdl | GB/s |{}\n", sweep ? " best |" : "");
  fmt::print("|---|---|---|---|---|---|{}\n", sweep ? "---|" : "");
  for (size_t i = 0; i < rows.size();) {
    size_t end = i;
    double plain = 0;
    double pdl = 0;
    std::string chosen;
    std::vector<const Row*> best;  // by the first letters of the config
    for (; end < rows.size() && rows[end].op == rows[i].op && rows[end].bytes == rows[i].bytes;
         ++end) {
      const Row& row = rows[end];
      if (row.chosen) {
        chosen = row.config;
        (row.pdl ? pdl : plain) = row.us;
      }
      const auto same = std::find_if(best.begin(), best.end(), [&](const Row* b) {
        return b->config.substr(0, 6) == row.config.substr(0, 6);
      });
      if (same == best.end()) {
        best.push_back(&row);
      } else if (row.us < (*same)->us) {
        *same = &row;
      }
    }
    const auto us = [](double t) { return t > 0 ? fmt::format("{:.2f}", t) : std::string(); };
    const double least = plain > 0 && pdl > 0 ? std::min(plain, pdl) : std::max(plain, pdl);
    fmt::print("| {} | {} | {} | {} | {} | {:.0f} |", rows[i].op, rows[i].bytes >> 10, chosen,
               us(plain), us(pdl), rows[i].bytes / least * 1e-3);
    if (sweep) {
      for (const Row* b : best) fmt::print(" {}{} {:.2f};", b->config, b->pdl ? " pdl" : "", b->us);
      fmt::print(" |");
    }
    fmt::print("\n");
    i = end;
  }
}

void write_json(const std::string& path, const std::vector<Row>& rows, int ranks) {
  std::ofstream out(path);
  out << fmt::format("{{\"ranks\": {}, \"rows\": [", ranks);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row& r = rows[i];
    out << fmt::format(
        "{}\n {{\"op\": \"{}\", \"bytes\": {}, \"config\": \"{}\", \"chosen\": {}, \"pdl\": {}, "
        "\"us\": {:.3f}}}",
        i ? "," : "", r.op, r.bytes, r.config, r.chosen, r.pdl, r.us);
  }
  out << "\n]}\n";
  if (!out) fail(ErrorCode::kResource, "cannot write '{}'", path);
}

int run(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 == argc) fail(ErrorCode::kInvalidArgument, "{} wants a value", arg);
      return argv[++i];
    };
    if (arg == "--sweep") {
      options.sweep = true;
    } else if (arg == "--shared") {
      options.shared = true;
    } else if (arg == "--ranks") {
      options.ranks = std::atoi(value().c_str());
    } else if (arg == "--max-mb") {
      options.max_bytes = std::atoll(value().c_str()) << 20;
    } else if (arg == "--only") {
      options.only = value();
    } else if (arg == "--json") {
      options.json = value();
    } else {
      fail(ErrorCode::kInvalidArgument,
           "'{}': not one of --sweep, --ranks N, --max-mb N, --only OP, --json FILE, --shared",
           arg);
    }
  }
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  const int ranks = options.ranks > 0 ? options.ranks : std::max(count, 1);
  fabric::PeerFabric fabric({.ranks = ranks, .share_devices = options.shared});
  fmt::print("{}; bf16; KB are of the whole value\n\n", fabric.describe());
  std::vector<Row> rows;
  std::vector<double> times(ranks);
  fabric::run_ranks(fabric, [&](fabric::PeerEndpoint& endpoint) {
    Bench bench(endpoint, options, rows, times);
    bench.run();
  });
  print(rows, options.sweep);
  if (!options.json.empty()) write_json(options.json, rows, ranks);
  return 0;
}

}  // namespace
}  // namespace braid::cuda

int main(int argc, char** argv) {
  return braid::cuda::gpu_main("bench_cuda_comm", [&] { return braid::cuda::run(argc, argv); });
}
