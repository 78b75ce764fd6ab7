// Parts of image pipelines at full width, on random weights:
//   image_components_bench --threads=16 --benchmark_filter=decode
// tools/bench_image_components.py times decoders and T5 in PyTorch, tools/peer/image all parts in
// stable-diffusion.cpp.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <string_view>

#include "braid/engine/diffusion/network.h"
#include "braid/model/autoencoder_kl.h"
#include "braid/model/flux.h"
#include "braid/model/t5_encoder.h"
#include "braid/tensor/quant.h"

namespace braid {
namespace {

int threads = 2;  // --threads

// The weights of a Program, random; those of norms are near 1.
class RandomSource : public WeightSource {
 public:
  explicit RandomSource(const Program& program) {
    std::mt19937 random(1);
    for (const Value& value : program.values) {
      if (value.kind != ValueKind::weight) continue;
      Tensor& tensor = tensors_[value.name];
      tensor.type = value.type;
      const Shape& shape = value.type.shape;
      const double fan_in = shape.rank() > 1 ? static_cast<double>(shape.elems() / shape[0]) : 1e4;
      std::uniform_real_distribution<float> draw(-1, 1);
      const auto spread = static_cast<float>(1 / std::sqrt(fan_in));
      std::vector<float> values(static_cast<size_t>(shape.elems()));
      for (float& x : values) x = spread * draw(random);
      if (value.name.find("norm") != std::string::npos && value.name.ends_with("weight")) {
        for (float& x : values) x += 1;
      }
      tensor.bytes.resize(static_cast<size_t>(bytes_of(value.type)));
      quantize_row(value.type.dtype, values.data(), tensor.bytes.data(), std::ssize(values));
    }
  }

  std::optional<TensorView> find(std::string_view name) const override {
    const auto at = tensors_.find(name);
    if (at == tensors_.end()) return std::nullopt;
    auto* data = const_cast<std::byte*>(at->second.bytes.data());
    return make_view(data, at->second.type.dtype, at->second.type.shape);
  }
  std::optional<TensorType> find_type(std::string_view name) const override {
    const auto view = find(name);
    return view ? std::optional<TensorType>({view->dtype, view->shape}) : std::nullopt;
  }
  std::vector<TensorInfo> tensors() const override { return {}; }
  const std::string& path() const override { return path_; }
  std::string description() const override { return path_; }

 private:
  struct Tensor {
    ValueType type;
    std::vector<std::byte> bytes;
  };
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::string path_ = "random weights";
};

// Ids of tokens, or normal numbers.
void write_random(BoundNetwork& bound, const Value& input, std::mt19937& random) {
  const auto n = static_cast<size_t>(input.type.shape.elems());
  if (input.type.dtype == DType::i32) {
    std::vector<int32_t> values(n);
    for (int32_t& x : values) x = static_cast<int32_t>(random() % 32000);
    return bound.write(input.name, values);
  }
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& x : values) x = normal(random);
  bound.write(input.name, values);
}

void run(benchmark::State& state, const Program& program) {
  const RandomSource source(program);
  Network network(program.name, source, {.threads = threads});
  BoundNetwork& bound = network.plan("", [&] { return program; });
  std::mt19937 random(2);
  double flops = 0;
  for (const Op& op : program.ops) flops += program.cost(op, {.extents = program.capacity}).flops;
  for (auto _ : state) {
    state.PauseTiming();  // a run may reuse the memory of inputs
    for (const Value& value : program.values) {
      if (value.kind == ValueKind::input) write_random(bound, value, random);
    }
    state.ResumeTiming();
    bound.run();
  }
  state.counters["flops"] =
      benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

// Matrices in `dtype`, norms and biases (relative ones, too) in f32.
WeightDtype matrices(DType dtype) {
  return [dtype](std::string_view name) {
    const bool small =
        name.find("bias") != std::string_view::npos || name.find("norm") != std::string_view::npos;
    return small ? DType::f32 : dtype;
  };
}

void options(benchmark::internal::Benchmark* bench) {
  bench->Unit(benchmark::kMillisecond)->UseRealTime()->MeasureProcessCPUTime();
}

// Flux.1's autoencoder: latents of side x side.
void decode(benchmark::State& state) {
  const AutoencoderKlConfig config{
      .latent_channels = 16, .channels = {128, 256, 512, 512}, .post_quant = false};
  run(state, autoencoder_kl_decode(config, {.height = state.range(0), .width = state.range(0)},
                                   matrices(DType::f32)));
}
BENCHMARK(decode)->Arg(32)->Arg(64)->Arg(128)->Apply(options);

// Layers of T5 XXL (of 24), 512 tokens.
void t5(benchmark::State& state, DType dtype) {
  const T5EncoderConfig config{.vocab = 32128, .layers = state.range(0)};
  run(state, t5_encoder(config, {.length = 512}, matrices(dtype)));
}
BENCHMARK_CAPTURE(t5, bf16, DType::bf16)->Arg(2)->Apply(options);
BENCHMARK_CAPTURE(t5, f16, DType::f16)->Arg(2)->Apply(options);
BENCHMARK_CAPTURE(t5, q8_0, DType::q8_0)->Arg(2)->Apply(options);

// A step of Flux.1 with a block of two streams and two single blocks (of 19 and 38), 512 text
// tokens, pictures of side x side pixels.
void flux(benchmark::State& state, DType dtype) {
  const FluxConfig config{.blocks = 1, .single_blocks = 2, .guidance = true};
  const int64_t side = state.range(0) / 16;
  run(state, flux_step(config, {.text = 512, .image = side * side}, matrices(dtype)));
}
BENCHMARK_CAPTURE(flux, f16, DType::f16)->Arg(512)->Arg(1024)->Apply(options);
BENCHMARK_CAPTURE(flux, q8_0, DType::q8_0)->Arg(512)->Arg(1024)->Apply(options);

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  constexpr std::string_view kThreads = "--threads=";
  std::vector<char*> others;
  for (int i = 0; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option.starts_with(kThreads)) {
      braid::threads = std::max(1, std::atoi(argv[i] + kThreads.size()));
    } else {
      others.push_back(argv[i]);
    }
  }
  int count = static_cast<int>(others.size());
  benchmark::Initialize(&count, others.data());
  if (benchmark::ReportUnrecognizedArguments(count, others.data())) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
