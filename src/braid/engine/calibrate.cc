#include "braid/engine/calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <random>

#include "braid/engine/bandwidth.h"
#include "braid/engine/batch.h"
#include "braid/engine/batch_cut.h"
#include "braid/engine/timed_step.h"
#include "braid/fabric/collectives/all_reduce.h"
#include "braid/fabric/local/run_ranks.h"
#include "braid/kernels/cpu/register.h"
#include "braid/model/decoder.h"
#include "braid/ops/attention.h"
#include "braid/ops/fusion.h"
#include "braid/ops/norm.h"
#include "braid/tensor/quant.h"

namespace braid {
namespace {

constexpr int64_t kDepth = 1024;

// A decoder with common proportions: every block format divides its widths.
ModelConfig small_decoder(int64_t layers) {
  ModelConfig c{.family = "calibration",
                .layers = layers,
                .C = 768,
                .F = 2048,
                .V = 4096,
                .Hq = 12,
                .Hkv = 4,
                .D = 64,
                .context = 2 * kDepth};
  c.rope = {.head_dim = c.D, .rotary_dim = c.D};
  c.windows.assign(layers, 0);
  return c;
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) {
      return line.substr(line.find(": ") + 2);
    }
  }
  return "CPU";
}

// Blocks with any codes and scales of usual size.
std::vector<std::byte> random_blocks(DType dtype, int64_t elems) {
  std::mt19937 rng(1);
  std::uniform_real_distribution<float> uniform(-0.05f, 0.05f);
  std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(dtype, elems)));
  if (is_float(dtype)) {
    std::vector<float> values(elems);
    for (float& v : values) v = uniform(rng);
    quantize_row(dtype, values.data(), bytes.data(), elems);
    return bytes;
  }
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
  const auto block = static_cast<size_t>(info(dtype).block_bytes);
  const bool has_minimum =
      dtype == DType::q4_1 || dtype == DType::q5_1 || dtype == DType::q4_k || dtype == DType::q5_k;
  for (size_t at = 0; at < bytes.size(); at += block) {
    const auto put = [&](size_t offset) {
      const f16 factor = to_f16(0.01f * uniform(rng));
      std::memcpy(bytes.data() + at + offset, &factor, sizeof(factor));
    };
    put(dtype == DType::q6_k ? offsetof(BlockQ6_K, d) : 0);
    if (has_minimum) put(sizeof(f16));
  }
  return bytes;
}

// Seconds and amounts of work, by kind of op and dtype.
struct Sum {
  double seconds = 0, flops = 0, bytes = 0;
};
struct Key {
  std::string kind, dtype;
  bool operator<(const Key& o) const { return std::tie(kind, dtype) < std::tie(o.kind, o.dtype); }
};

class Calibration {
 public:
  explicit Calibration(const CalibrateConfig& config)
      : config_(config),
        threads_(config.threads > 0 ? config.threads : cpu::usable_cores()),
        pool_(threads_),
        table_(threads_) {
    if (threads_ > cpu::ThreadPool::kMaxThreads) {
      fail(ErrorCode::kInvalidArgument, "{} threads: at most {}", threads_,
           cpu::ThreadPool::kMaxThreads);
    }
    cpu::add_cpu_kernels(table_);
    const long l3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    const int64_t cache = std::clamp<int64_t>(l3, int64_t{32} << 20, int64_t{256} << 20);
    evicting_.assign(static_cast<size_t>(2 * cache) / sizeof(uint64_t), 1);
    if (config_.dtypes.empty()) {
      for (int i = 0; i < kNumDTypes; ++i) {
        if (static_cast<DType>(i) != DType::i32) config_.dtypes.push_back(static_cast<DType>(i));
      }
    }
  }

  Profile run() {
    const int cores = cpu::usable_cores();
    profile_.name = cpu_profile_name(threads_);
    profile_.device = fmt::format("{}, {} of {} cores", cpu_model(), threads_, cores);
    profile_.units = std::max(cores, threads_);
    profile_.shared_units = true;
    profile_.stream_units = {static_cast<double>(threads_), 1, 1};
    say("memory");
    profile_.memory_bytes_per_second = measure_read_bandwidth(threads_);
    profile_.total_memory_bytes_per_second = std::max(
        profile_.memory_bytes_per_second, measure_read_bandwidth(std::max(cores, threads_)));
    say("launches");
    measure_launches();
    for (size_t i = 0; i < config_.dtypes.size(); ++i) {
      say(fmt::format("{} weights", name(config_.dtypes[i])));
      measure_steps(config_.dtypes[i], i == 0 ? DType::f16 : DType::f32, i == 0);
    }
    for (DType kv : {DType::bf16, DType::f32}) {
      say(fmt::format("{} KV cache", name(kv)));
      measure_kv(kv);
    }
    say("collectives");
    measure_collectives();
    return std::move(profile_);
  }

 private:
  void say(const std::string& what) const {
    if (config_.progress) config_.progress(what);
  }

  // Reads more than the caches hold. Writing would leave lines that a step has to write back.
  void evict() {
    pool_.run([this](const cpu::Team& team) {
      const Range share = team.share(std::ssize(evicting_));
      uint64_t sum = 0;
      for (int64_t i = share.begin; i < share.end; i += 8) sum += evicting_[i];
      read_.fetch_add(sum, std::memory_order_relaxed);
    });
  }

  void measure_launches() {
    constexpr int kLaunches = 200;
    Builder b("launches", {1, 1, 1});
    ValueId x = b.input("x", {DType::f32, {1, 16}});
    for (int i = 0; i < kLaunches; ++i) x = ops::add(b, x, x);
    TimedStep step(b.finish({x}), table_, pool_, {});
    std::fill_n(step.executor().input("x").as<float>(), 16, 0.0f);
    profile_.launch_seconds = median(step.run({1, 1, 1}, 20, {}));
    // Between steps the host works and threads fall asleep: as in use.
    step.run({1, 1, 1}, 10, [this] { evict(); });
    profile_.step_seconds = step.overhead();
  }

  // Weights of a dtype: some random blocks, again and again.
  std::span<std::byte> weights(DType dtype, int64_t bytes) {
    const std::vector<std::byte> pattern = random_blocks(dtype, 1 << 16);
    const auto size = static_cast<int64_t>(pattern.size());
    if (filled_with_ != dtype) filled_ = 0;
    filled_with_ = dtype;
    weights_.resize(std::max(weights_.size(), static_cast<size_t>(bytes)));
    for (int64_t& at = filled_; at < bytes; at += size) {
      std::memcpy(weights_.data() + at, pattern.data(), std::min(size, std::ssize(weights_) - at));
    }
    return {weights_.data(), static_cast<size_t>(bytes)};
  }

  // Time by kind of op for a step with T tokens behind `cached` tokens, through `layers` layers.
  std::map<Key, Sum> measure_step(DType dtype, DType kv, int64_t T, int64_t cached, int64_t layers,
                                  int runs, Work* work_out) {
    const Extents counts = {T, 1, 1};
    const int64_t pages = ceil_div(cached + T, kPageSize);
    const auto dtype_of = [&](std::string_view name) {
      return name.ends_with("norm") ? DType::f32 : dtype;
    };
    Program program = fuse(decoder::forward(small_decoder(layers),
                                            {.capacity = counts,
                                             .pages = pages,
                                             .page_size = kPageSize,
                                             .pages_per_sequence = pages,
                                             .kv_dtype = kv,
                                             .every_row = T == 1},
                                            dtype_of),
                           fusions());
    const int64_t bytes = timed_weight_bytes(program);
    TimedStep step(std::move(program), table_, pool_, weights(dtype, bytes));
    Batch batch(kPageSize);
    std::vector<int32_t> tokens(T), page_list(pages);
    for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i);
    for (size_t i = 0; i < page_list.size(); ++i) page_list[i] = static_cast<int32_t>(i);
    batch.add(tokens, cached, page_list, 1);
    BatchCut cut;
    cut.assign(batch, {{0, T}}, "calibration");
    cut.write(step.executor());
    // Many rows leave the caches' first contents no part.
    const std::function<void()> evicting = [this, T] {
      if (T <= 32) evict();
    };
    const std::vector<double> seconds = step.run(counts, runs, evicting);
    const Program& fused = step.executor().program();
    std::map<Key, Sum> sums;
    for (size_t i = 0; i < seconds.size(); ++i) {
      const Op& op = fused.ops[step.executor().schedule().launches[i].op];
      const Cost cost = fused.cost(op, batch.work());
      const bool is_attention = op.def == &ops::kAttention;
      const bool is_linear = op.def == &ops::kLinear || op.def == &ops::kGatedLinear;
      // The head's product has few rows in any step.
      if (is_linear && fused.value(op.outputs[0]).type.axis == BatchAxis::row && T > 1) continue;
      // Only the first layer's operands come from outside the caches.
      if (!is_linear && layers > 1 && op.scope.starts_with("layers.0.")) continue;
      const DType typed = fused.value(op.inputs[1]).type.dtype;
      Sum& sum = sums[{std::string(op.def->kind),
                       is_attention || is_linear ? std::string(name(typed)) : ""}];
      // A launch that takes little more than any launch still takes something.
      sum.seconds += std::max(seconds[i] - profile_.launch_seconds, 0.05 * seconds[i]);
      sum.flops += cost.flops;
      sum.bytes += cost.bytes;
    }
    *work_out = batch.work();
    return sums;
  }

  void add_point(const Key& key, Rate::Unit unit, double m, double per_second) {
    const auto same = [&](const Rate& r) { return r.kind == key.kind && r.dtype == key.dtype; };
    auto it = std::ranges::find_if(profile_.rates, same);
    if (it == profile_.rates.end()) {
      profile_.rates.push_back({key.kind, key.dtype, unit, true, {}});
      it = profile_.rates.end() - 1;
    }
    it->points.push_back({m, per_second});
  }

  // Products by weights of a dtype at growing sizes; attention and the rest if asked.
  void measure_steps(DType dtype, DType kv, bool all_kinds) {
    for (const auto& [T, layers, runs] : {std::tuple<int64_t, int64_t, int>{1, 3, 9},
                                          {8, 3, 5},
                                          {16, 1, 3},
                                          {32, 1, 3},
                                          {128, 1, 3},
                                          {512, 1, 2}}) {
      if (T > config_.most_rows) break;
      Work work;
      const auto sums =
          measure_step(dtype, kv, T, all_kinds && T <= 8 ? kDepth : 0,
                       all_kinds ? std::max<int64_t>(layers, 2) : layers, runs, &work);
      add(sums, work, T, true, all_kinds, all_kinds);
    }
  }

  void measure_kv(DType kv) {
    for (const auto& [T, cached] :
         {std::pair{1, kDepth}, {8, kDepth}, {32, 0}, {128, 0}, {512, 0}}) {
      if (T > config_.most_rows) break;
      Work work;
      const auto sums = measure_step(config_.dtypes[0], kv, T, cached, 2, 3, &work);
      add(sums, work, T, false, true, false);
    }
  }

  void add(const std::map<Key, Sum>& sums, const Work& work, int64_t T, bool linear, bool attention,
           bool rest) {
    for (const auto& [key, sum] : sums) {
      const bool is_attention = key.kind == ops::kAttention.kind;
      const bool is_linear = !is_attention && !key.dtype.empty();
      if (!(is_attention ? attention : is_linear ? linear : rest)) continue;
      const bool by_flops = is_attention || is_linear;
      // For attention the mean number of queries per key; otherwise rows.
      const double m =
          is_attention ? static_cast<double>(work.attended) / static_cast<double>(work.kv_tokens)
                       : static_cast<double>(T);
      // All sizes have a single row, and a single token has none.
      if (key.kind == "gather_rows" && T != 8) continue;
      add_point(key, by_flops ? Rate::Unit::flops : Rate::Unit::bytes, m,
                (by_flops ? sum.flops : sum.bytes) / sum.seconds);
    }
  }

  // Median seconds for all-reduces of n floats between two one-threaded ranks.
  static double all_reduce_seconds(const fabric::LocalFabricConfig& config, int64_t n, int runs) {
    double seconds = 0;
    fabric::run_ranks(config, [&](fabric::Endpoint& endpoint) {
      fabric::Comm comm(endpoint, fabric::Group::world(config.ranks), {.name = "calibrate"});
      std::vector<float> x(n), y(n);
      std::vector<double> samples;
      for (int i = 0; i < runs; ++i) {
        const auto start = std::chrono::steady_clock::now();
        fabric::all_reduce(comm, cpu::Team{}, x.data(), y.data(), n);
        samples.push_back(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      }
      if (endpoint.rank() == 0) seconds = median(std::move(samples));
    });
    return seconds;
  }

  // A tiny collective is all latency, a large collective all copies and sums.
  void measure_collectives() {
    constexpr int64_t kSmall = 64, kLarge = 1 << 18;
    const double small = all_reduce_seconds({.ranks = 2}, kSmall, 500);
    const double large = all_reduce_seconds({.ranks = 2}, kLarge, 30);
    profile_.collective_seconds = small;
    // In a single shot a rank sends all floats, in two shots it sends half the floats twice.
    const double sent = static_cast<double>(kLarge * sizeof(float));
    profile_.unit_bytes_per_second = sent / std::max(large - small, 0.05 * large);
    // Memory is the link; its latency is in collective_seconds.
    profile_.machine_link = {profile_.total_memory_bytes_per_second, 0, false};
    profile_.cluster_link = profile_.machine_link;
    const Link link = {.bytes_per_second = 1e10, .latency_seconds = 1e-4};
    fabric::LocalFabricConfig emulated{.ranks = 2};
    emulated.links.machine_link = link;
    profile_.emulated_message_seconds =
        std::max(0.0, all_reduce_seconds(emulated, kSmall, 100) - link.latency_seconds - small);
  }

  CalibrateConfig config_;
  const int threads_;
  cpu::ThreadPool pool_;
  cpu::KernelTable table_;
  std::vector<uint64_t> evicting_;
  std::atomic<uint64_t> read_{0};  // keeps evict()'s reads alive
  std::vector<std::byte> weights_;
  DType filled_with_ = DType::i32;  // the first filled_ bytes of weights_
  int64_t filled_ = 0;
  Profile profile_;
};

}  // namespace

Profile calibrate_cpu(const CalibrateConfig& config) {
  if (config.threads < 0) {
    fail(ErrorCode::kInvalidArgument, "{} threads: at least 1, or 0 for all cores", config.threads);
  }
  return Calibration(config).run();
}

}  // namespace braid
