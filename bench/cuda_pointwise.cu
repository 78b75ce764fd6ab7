// Pointwise kernels at Llama-3-8B's shapes: GB/s against a copy measured in the same run where
// there are many tokens, us per launch in a graph of dependent launches where there are few. --all
// times every candidate, --json FILE writes the table, --require SHARE fails where a chosen config
// of 8,192 tokens moves less than that share of the copy.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "braid/kernels/cuda/pointwise/device/add.h"
#include "braid/kernels/cuda/pointwise/device/embedding.h"
#include "braid/kernels/cuda/pointwise/device/gated.h"
#include "braid/kernels/cuda/pointwise/device/gather_rows.h"
#include "braid/kernels/cuda/pointwise/device/norm.h"
#include "braid/kernels/cuda/pointwise/device/rope.h"
#include "braid/tensor/half.h"
#include "gpu_main.h"
#include "graph_time.h"

using namespace braid;
using namespace braid::cuda;

namespace {

constexpr int64_t kC = 4096, kF = 14336, kHeads = 32, kKvHeads = 8, kDim = 128, kVocabulary = 32000;

template <class T>
class Device {
 public:
  explicit Device(size_t count) : count_(count) {
    check_cuda(cudaMalloc(&data_, count * sizeof(T)), "bench");
  }
  explicit Device(const std::vector<T>& values) : Device(values.size()) {
    check_cuda(cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice),
               "bench");
  }
  ~Device() { cudaFree(data_); }
  Device(const Device&) = delete;
  T* get() const { return data_; }

 private:
  size_t count_;
  T* data_ = nullptr;
};

// Numbers between -2 and 2 in any float type: a hash of the index gives sign and mantissa.
__global__ void fill_kernel(void* data, size_t n, DType dtype) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < n;
       i += size_t{gridDim.x} * blockDim.x) {
    uint32_t h = static_cast<uint32_t>(i) * 2654435761u;
    h ^= h >> 15;
    h *= 2246822519u;
    const uint32_t bits = (h & 0x807fffffu) | 0x3f800000u;
    if (dtype == DType::f32) {
      static_cast<uint32_t*>(data)[i] = bits;
    } else {
      static_cast<uint16_t*>(data)[i] = static_cast<uint16_t>(bits >> 16);
    }
  }
}

class Tensor {
 public:
  Tensor(DType dtype, Shape shape)
      : dtype_(dtype),
        shape_(shape),
        data_(static_cast<size_t>(shape.rows() * bytes_of(dtype, shape[-1]))) {
    fill_kernel<<<1024, 256>>>(data_.get(), static_cast<size_t>(shape.elems()), dtype);
    check_cuda(cudaGetLastError(), "bench");
  }
  TensorView view() const { return make_view(data_.get(), dtype_, shape_); }

 private:
  DType dtype_;
  Shape shape_;
  Device<std::byte> data_;
};

struct Timer {
  // Us of one of `launches` calls in a captured graph.
  double us(int launches, const std::function<void(int i, const LaunchContext&)>& launch) const {
    return graph_us(
               [&](cudaStream_t stream) {
                 for (int i = 0; i < launches; ++i) launch(i, {.stream = stream, .pdl = pdl});
               },
               15) /
           launches;
  }
  bool pdl = true;
};

struct Row {
  std::string op;
  int64_t tokens;
  std::string config;
  double us, gbs, ratio;
};

struct Bench {
  Timer timer;
  double copy_gbs = 0;
  bool all = false;
  std::vector<Row> rows;

  void report(const std::string& op, int64_t tokens, const std::string& config, double us,
              double bytes) {
    const double gbs = bytes / us / 1e3;
    rows.push_back({op, tokens, config, us, gbs, gbs / copy_gbs});
    std::printf("| %s | %ld | %s | %.2f | %.0f | %.2f |\n", op.c_str(), static_cast<long>(tokens),
                config.c_str(), us, gbs, gbs / copy_gbs);
  }

  // `launch(i, config, context)` works on the i-th of `sets` sets of operands.
  template <class Launch>
  void rows_op(const std::string& op, int64_t tokens, double bytes, const RowsConfig& chosen,
               const std::vector<RowsConfig>& candidates, Launch launch) {
    const int launches = tokens <= 512 ? 64 : 4;
    const auto time = [&](const RowsConfig& config) {
      const double us = timer.us(
          launches, [&](int i, const LaunchContext& context) { launch(i, config, context); });
      report(op, tokens, to_string(config) + (config == chosen ? "" : " (not chosen)"), us, bytes);
    };
    time(chosen);
    for (const RowsConfig& c : candidates) {
      if (all && !(c == chosen)) time(c);
    }
  }
};

template <class T>
std::vector<std::unique_ptr<T>> many(int n, const std::function<std::unique_ptr<T>()>& make) {
  std::vector<std::unique_ptr<T>> out;
  for (int i = 0; i < n; ++i) out.push_back(make());
  return out;
}

// Four 16-byte loads in flight per thread.
__global__ void __launch_bounds__(512) copy_kernel(const uint4* from, uint4* to) {
  const size_t first = size_t{blockIdx.x} * 4 * blockDim.x + threadIdx.x;
  uint4 x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = from[first + i * blockDim.x];
#pragma unroll
  for (int i = 0; i < 4; ++i) to[first + i * blockDim.x] = x[i];
}

// The faster of a copy by a kernel and one by cudaMemcpyAsync.
void measure_copy(Bench& bench) {
  const size_t bytes = size_t{1} << 30;
  const Tensor a(DType::f32, {1 << 16, 1 << 12}), b(DType::f32, {1 << 16, 1 << 12});
  const auto gbs = [&](double us) { return 2. * static_cast<double>(bytes) / us / 1e3; };
  const double kernel = gbs(bench.timer.us(4, [&](int, const LaunchContext& context) {
    copy_kernel<<<bytes / (16 * 4 * 512), 512, 0, context.stream>>>(
        reinterpret_cast<const uint4*>(a.view().data), reinterpret_cast<uint4*>(b.view().data));
  }));
  const double driver = gbs(bench.timer.us(4, [&](int, const LaunchContext& context) {
    check_cuda(cudaMemcpyAsync(b.view().data, a.view().data, bytes, cudaMemcpyDeviceToDevice,
                               context.stream),
               "bench");
  }));
  bench.copy_gbs = std::max(kernel, driver);
  std::printf(
      "copy of 1 GiB, bytes read and written: %.0f GB/s by a kernel, %.0f by the driver\n\n",
      kernel, driver);
}

// One layer's chain works on its own buffers; several sets keep a large op out of the L2 cache.
void bench_tokens(Bench& bench, int64_t T) {
  const int sets = T <= 512 ? 4 : 2;
  const DType bf16 = DType::bf16, f32 = DType::f32;
  const auto t = static_cast<double>(T);
  const Device<int64_t> live(std::vector<int64_t>{T});
  const auto make = [&](DType dtype, int64_t cols) {
    return many<Tensor>(sets, [&] { return std::make_unique<Tensor>(dtype, Shape{T, cols}); });
  };
  const auto weights = many<Tensor>(64, [&] { return std::make_unique<Tensor>(bf16, Shape{kC}); });
  {
    const auto a = make(f32, kC), s = make(f32, kC);
    const auto b = make(bf16, kC), y = make(bf16, kC);
    const auto norm = [&](int i, bool with_add) {
      const size_t at = static_cast<size_t>(i % sets);
      RmsNormParams p = {.a = a[at]->view(),
                         .w = weights[static_cast<size_t>(i % 64)]->view(),
                         .y = y[at]->view(),
                         .eps = 1e-5f,
                         .group = kC,
                         .rows = live.get()};
      if (with_add) {
        p.b = b[at]->view();
        p.s = s[at]->view();
      }
      return p;
    };
    for (bool with_add : {false, true}) {
      const RowsDesc desc = rms_norm_desc(norm(0, with_add));
      bench.rows_op(with_add ? "add_rms_norm" : "rms_norm", T, t * kC * (with_add ? 12 : 6),
                    choose_norm(desc, kNumSms), norm_candidates(desc),
                    [&](int i, const RowsConfig& config, const LaunchContext& context) {
                      rms_norm(norm(i, with_add), config, context);
                    });
    }
    const auto sum = [&](int i) {
      const size_t at = static_cast<size_t>(i % sets);
      return AddParams{a[at]->view(), b[at]->view(), s[at]->view(), live.get()};
    };
    const RowsDesc desc = add_desc(sum(0));
    bench.rows_op("add", T, t * kC * 10, choose_map(desc, kNumSms), map_candidates(desc),
                  [&](int i, const RowsConfig& config, const LaunchContext& context) {
                    add(sum(i), config, context);
                  });
  }
  {
    const auto gate = make(bf16, kF), up = make(bf16, kF), y = make(bf16, kF);
    const auto params = [&](int i) {
      const size_t at = static_cast<size_t>(i % sets);
      return GatedParams{gate[at]->view(), up[at]->view(), y[at]->view(), ops::Activation::silu,
                         live.get()};
    };
    const RowsDesc desc = gated_desc(params(0));
    bench.rows_op("gated silu", T, t * kF * 6, choose_map(desc, kNumSms), map_candidates(desc),
                  [&](int i, const RowsConfig& config, const LaunchContext& context) {
                    gated(params(i), config, context);
                  });
  }
  std::vector<int32_t> numbers(static_cast<size_t>(T));
  {
    const Tensor table(bf16, {kVocabulary, kC});
    const auto y = make(f32, kC);
    for (size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = static_cast<int32_t>((i * 7919 + 13) % kVocabulary);
    }
    const Device<int32_t> ids(numbers);
    const auto params = [&](int i) {
      return EmbeddingParams{
          .ids = make_view(reinterpret_cast<std::byte*>(ids.get()), DType::i32, {T}),
          .table = table.view(),
          .y = y[static_cast<size_t>(i % sets)]->view(),
          .rows = live.get()};
    };
    const RowsDesc desc = embedding_desc(params(0));
    bench.rows_op("embedding bf16", T, t * kC * 6, choose_map(desc, kNumSms), map_candidates(desc),
                  [&](int i, const RowsConfig& config, const LaunchContext& context) {
                    embedding(params(i), config, context);
                  });
    // As many rows as tokens, from a matrix of that size: at most 32 are wanted in a step.
    const auto x = make(f32, kC);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(T - 1 - i);
    const Device<int32_t> index(numbers);
    BatchPart part;
    part.count.row = T;
    const Device<BatchPart> parts(std::vector<BatchPart>{part});
    const auto gather = [&](int i) {
      const size_t at = static_cast<size_t>(i % sets);
      return GatherRowsParams{x[at]->view(),
                              make_view(reinterpret_cast<std::byte*>(index.get()), DType::i32, {T}),
                              y[at]->view(), parts.get()};
    };
    const RowsDesc gather_desc = gather_rows_desc(gather(0));
    bench.rows_op("gather_rows f32", T, t * kC * 8, choose_map(gather_desc, kNumSms),
                  map_candidates(gather_desc),
                  [&](int i, const RowsConfig& config, const LaunchContext& context) {
                    gather_rows(gather(i), config, context);
                  });
  }
  {
    const int64_t cols = (kHeads + 2 * kKvHeads) * kDim, pages = T / 16 + 1;
    const auto qkv = make(bf16, cols), y = make(bf16, kHeads * kDim);
    const Shape cache_shape = {pages, 16, kKvHeads, kDim};
    const auto k = many<Tensor>(sets, [&] { return std::make_unique<Tensor>(bf16, cache_shape); });
    const auto v = many<Tensor>(sets, [&] { return std::make_unique<Tensor>(bf16, cache_shape); });
    const Tensor norm(bf16, {kDim});
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int32_t>(i);
    const Device<int32_t> counted(numbers);
    ops::RopeAppendAttrs attrs;
    attrs.rope.head_dim = attrs.rope.rotary_dim = kDim;
    attrs.rope.theta = 500000;
    attrs.eps = 1e-6f;
    const Device<uint64_t> turns(rope_turns(attrs.rope, nullptr));
    for (bool norms : {false, true}) {
      const auto params = [&](int i) {
        const size_t at = static_cast<size_t>(i % sets);
        const TensorView all = qkv[at]->view();
        const TensorView index =
            make_view(reinterpret_cast<std::byte*>(counted.get()), DType::i32, {T});
        RopeAppendParams p = {
            .q = slice_cols(all, 0, kHeads * kDim),
            .k = slice_cols(all, kHeads * kDim, (kHeads + kKvHeads) * kDim),
            .v = slice_cols(all, (kHeads + kKvHeads) * kDim, cols),
            .positions = index,
            .slots = index,
            .cache_k = k[at]->view(),
            .cache_v = v[at]->view(),
            .y = y[at]->view(),
            .turns = turns.get(),
            .attrs = attrs,
            .rows = live.get(),
        };
        if (norms) p.q_norm = p.k_norm = norm.view();
        return p;
      };
      const RopeConfig chosen = choose_rope(rope_append_desc(params(0)), kNumSms);
      std::vector<RopeConfig> configs = {chosen};
      for (int heads : {1, 4}) {
        for (int rows : {4, 8, 12, 16, 24}) {
          RopeConfig config = chosen;
          config.rows = rows;
          config.heads_per_row = heads;
          if (bench.all && !(config == chosen)) configs.push_back(config);
        }
      }
      for (const RopeConfig& config : configs) {
        const double us = bench.timer.us(
            T <= 512 ? 64 : 4,
            [&](int i, const LaunchContext& context) { rope_append(params(i), config, context); });
        bench.report(norms ? "rope_append, QK-norm" : "rope_append", T,
                     to_string(config) + (config == chosen ? "" : " (not chosen)"), us,
                     t * static_cast<double>(cols) * 4);
      }
    }
  }
}

void write_json(const Bench& bench, const char* path) {
  std::FILE* file = std::fopen(path, "w");
  if (!file) fail(ErrorCode::kNotFound, "cannot write {}", path);
  std::fprintf(file, "{\"copy_gbs\": %.1f, \"rows\": [", bench.copy_gbs);
  for (size_t i = 0; i < bench.rows.size(); ++i) {
    const Row& r = bench.rows[i];
    std::fprintf(
        file,
        "%s\n {\"op\": \"%s\", \"tokens\": %ld, \"config\": \"%s\", \"us\": %.3f, \"gbs\": "
        "%.1f, \"of_copy\": %.3f}",
        i ? "," : "", r.op.c_str(), static_cast<long>(r.tokens), r.config.c_str(), r.us, r.gbs,
        r.ratio);
  }
  std::fprintf(file, "\n]}\n");
  std::fclose(file);
}

int count_slow(const Bench& bench, double share) {
  int slow = 0;
  for (const Row& r : bench.rows) {
    const bool chosen = r.config.find("not chosen") == std::string::npos;
    if (!chosen || r.tokens < 8192 || r.ratio >= share) continue;
    std::fprintf(stderr, "bench_cuda_pointwise: %s of %ld tokens: %.2f of a copy, wanted %.2f\n",
                 r.op.c_str(), static_cast<long>(r.tokens), r.ratio, share);
    ++slow;
  }
  return slow;
}

}  // namespace

int main(int argc, char** argv) {
  return gpu_main("bench_cuda_pointwise", [&] {
    Bench bench;
    const char* json = nullptr;
    double require = 0;
    std::vector<int64_t> tokens = {1, 8, 32, 512, 8192};
    for (int i = 1; i < argc; ++i) {
      if (!std::strcmp(argv[i], "--all")) bench.all = true;
      if (!std::strcmp(argv[i], "--no-pdl")) bench.timer.pdl = false;
      if (!std::strcmp(argv[i], "--json") && i + 1 < argc) json = argv[++i];
      if (!std::strcmp(argv[i], "--require") && i + 1 < argc) require = std::atof(argv[++i]);
      if (!std::strcmp(argv[i], "--tokens") && i + 1 < argc) tokens = {std::atoll(argv[++i])};
    }
    measure_copy(bench);
    std::printf("| op | tokens | config | us | GB/s | of copy |\n|---|---|---|---|---|---|\n");
    for (int64_t t : tokens) bench_tokens(bench, t);
    if (json) write_json(bench, json);
    return count_slow(bench, require) > 0 ? 1 : 0;
  });
}
