// TFLOP/s of segment attention per shape: the chosen kernel, every candidate (--all), the same work
// cut into segments and into a chain of calls (--segments). Ratios to other libraries come from
// tools/bench_attention_peer.py, which runs them in turns on one machine.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "braid/kernels/cuda/attention/device/launch.h"
#include "braid/tensor/half.h"
#include "gpu_main.h"

using namespace braid;
using namespace braid::cuda;

namespace {

struct Shape {
  int length, q_heads, kv_heads, head_dim;
  bool causal;
};

constexpr Shape kShapes[] = {
    {4096, 24, 24, 128, false},  {16384, 24, 24, 128, false}, {32768, 24, 24, 128, false},
    {65536, 24, 24, 128, false}, {4096, 24, 24, 128, true},   {16384, 24, 24, 128, true},
    {4096, 24, 24, 64, false},   {16384, 24, 24, 64, false},  {65536, 24, 24, 64, false},
    {16384, 24, 24, 64, true},   {16384, 64, 8, 128, false},  {16384, 64, 8, 128, true},
    {16384, 24, 24, 96, false},  {8192, 16, 16, 256, false},  {8192, 16, 16, 256, true},
    {512, 9, 3, 64, true},       {1000, 32, 8, 128, true},    {2048, 32, 8, 128, true},
};

template <class T>
struct DeviceArray {
  T* data = nullptr;
  explicit DeviceArray(size_t n) { check_cuda(cudaMalloc(&data, n * sizeof(T)), "bench"); }
  ~DeviceArray() { cudaFree(data); }
  DeviceArray(const DeviceArray&) = delete;
};

// N(0, 1): a block of random numbers, repeated at an odd period.
class Normal {
 public:
  Normal() : block_(8000009) {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    for (bf16& x : block_) x = to_bf16(normal(rng));
  }
  void fill(bf16* out, size_t n, size_t skip) const {
    for (size_t at = 0; at < n;) {
      const size_t begin = (at + skip) % block_.size();
      const size_t count = std::min(n - at, block_.size() - begin);
      check_cuda(cudaMemcpy(out + at, &block_[begin], 2 * count, cudaMemcpyHostToDevice), "fill");
      at += count;
    }
  }

 private:
  std::vector<bf16> block_;
};

double median_seconds(double flops, const std::function<void()>& run) {
  const int inner = std::clamp(static_cast<int>(.04 / (flops / 550e12)), 1, 2000);
  cudaEvent_t begin, end;
  check_cuda(cudaEventCreate(&begin), "event");
  check_cuda(cudaEventCreate(&end), "event");
  std::vector<double> seconds;
  for (int round = 0; round < 6; ++round) {
    check_cuda(cudaEventRecord(begin), "event");
    for (int i = 0; i < inner; ++i) run();
    check_cuda(cudaEventRecord(end), "event");
    check_cuda(cudaEventSynchronize(end), "attention");
    float ms = 0;
    check_cuda(cudaEventElapsedTime(&ms, begin, end), "event");
    if (round > 0) seconds.push_back(ms / 1e3 / inner);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
  return seconds[seconds.size() / 2];
}

class Problem {
 public:
  Problem(const Shape& s, const Normal& normal)
      : shape_(s),
        q_(size_t(s.length) * s.q_heads * s.head_dim),
        k_(size_t(s.length) * s.kv_heads * s.head_dim),
        v_(size_t(s.length) * s.kv_heads * s.head_dim),
        o_(size_t(s.length) * s.q_heads * s.head_dim),
        state_o_(size_t(s.length) * s.q_heads * s.head_dim),
        state_l_(size_t(s.length) * s.q_heads),
        state_m_(size_t(s.length) * s.q_heads),
        workspace_(kAttentionWorkspaceBytes) {
    normal.fill(q_.data, size_t(s.length) * s.q_heads * s.head_dim, 1 * 1000003);
    normal.fill(k_.data, size_t(s.length) * s.kv_heads * s.head_dim, 2 * 1000003);
    normal.fill(v_.data, size_t(s.length) * s.kv_heads * s.head_dim, 3 * 1000003);
    check_cuda(cudaMemset(workspace_.data, 0, kAttentionWorkspaceBytes), "workspace");
    desc_.num_q_heads = s.q_heads;
    desc_.num_kv_heads = s.kv_heads;
    desc_.head_dim_qk = desc_.head_dim_v = s.head_dim;
    desc_.scale = 1.f / std::sqrt(static_cast<float>(s.head_dim));
    if (s.causal) desc_.window_right = 0;
  }

  double flops() const {
    return 4. * shape_.length * shape_.length * shape_.q_heads * shape_.head_dim *
           (shape_.causal ? .5 : 1.);
  }

  // `parts` Q and KV segments, the KV segments over `calls` calls.
  void cut(int q_parts, int kv_parts, int calls) {
    calls_ = calls;
    q_segments_.clear();
    kv_segments_.clear();
    const int64_t q_token = int64_t{shape_.q_heads} * shape_.head_dim;
    const int64_t kv_token = int64_t{shape_.kv_heads} * shape_.head_dim;
    for (int i = 0; i < q_parts; ++i) {
      const int begin = static_cast<int>(int64_t{shape_.length} * i / q_parts);
      QTensor s;
      s.length = static_cast<int>(int64_t{shape_.length} * (i + 1) / q_parts) - begin;
      s.offset = begin;
      s.q = q_.data + begin * q_token;
      s.o = o_.data + begin * q_token;
      s.state_o = state_o_.data + begin * q_token;
      s.state_l = state_l_.data + begin;
      s.state_m = state_m_.data + begin;
      s.q_stride = s.o_stride = s.state_stride = {0, q_token, shape_.head_dim};
      s.row_stride = {0, 1, shape_.length};
      s.kv_end = kv_parts;
      q_segments_.push_back(s);
    }
    for (int j = 0; j < kv_parts; ++j) {
      const int begin = static_cast<int>(int64_t{shape_.length} * j / kv_parts);
      KvTensor s;
      s.length = static_cast<int>(int64_t{shape_.length} * (j + 1) / kv_parts) - begin;
      s.offset = begin;
      s.k = k_.data + begin * kv_token;
      s.v = v_.data + begin * kv_token;
      s.k_stride = s.v_stride = {0, kv_token, shape_.head_dim};
      kv_segments_.push_back(s);
    }
  }

  AttentionParams params() const { return {q_segments_, kv_segments_}; }
  const AttentionDesc& desc() const { return desc_; }

  void run(const AttentionConfig& config) {
    const int parts = static_cast<int>(kv_segments_.size());
    for (int c = 0; c < calls_; ++c) {
      AttentionDesc desc = desc_;
      desc.load_state = c > 0;
      desc.finalize = c == calls_ - 1;
      for (QTensor& s : q_segments_) {
        s.kv_begin = parts * c / calls_;
        s.kv_end = parts * (c + 1) / calls_;
      }
      attention(desc, params(), config, workspace_.data, nullptr);
    }
  }

 private:
  Shape shape_;
  AttentionDesc desc_;
  int calls_ = 1;
  DeviceArray<bf16> q_, k_, v_, o_;       // [L, H, D]
  DeviceArray<float> state_o_;            // [L, Hq, D]
  DeviceArray<float> state_l_, state_m_;  // [Hq, L]
  DeviceArray<char> workspace_;
  std::vector<QTensor> q_segments_;
  std::vector<KvTensor> kv_segments_;
};

}  // namespace

int main(int argc, char** argv) {
  bool all = false;
  bool segments = false;
  for (int i = 1; i < argc; ++i) {
    all |= !std::strcmp(argv[i], "--all");
    segments |= !std::strcmp(argv[i], "--segments");
  }
  return gpu_main("bench_cuda_attention", [&] {
    const AttentionDevice device = attention_device();
    const Normal normal;
    for (const Shape& shape : kShapes) {
      Problem problem(shape, normal);
      const auto report = [&](const char* what, const AttentionConfig& config) {
        const double s = median_seconds(problem.flops(), [&] { problem.run(config); });
        std::printf("  %-16s %-34s %9.1f us %6.0f TFLOP/s\n", what, to_string(config).c_str(),
                    s * 1e6, problem.flops() / s / 1e12);
        std::fflush(stdout);
      };
      problem.cut(1, 1, 1);
      std::printf("%s L %d\n", to_string(problem.desc()).c_str(), shape.length);
      const AttentionConfig chosen = choose(problem.desc(), problem.params(), device);
      report("chosen", chosen);
      if (all) {
        for (const auto& config : candidates(problem.desc(), problem.params(), device)) {
          report("candidate", config);
        }
      }
      if (segments && shape.length >= 4096) {
        for (int parts : {2, 8}) {
          problem.cut(parts, parts, 1);
          report(parts == 2 ? "2 x 2 segments" : "8 x 8 segments",
                 choose(problem.desc(), problem.params(), device));
        }
        problem.cut(1, 4, 4);
        report("chain of 4", choose(problem.desc(), problem.params(), device));
      }
    }
    return 0;
  });
}
