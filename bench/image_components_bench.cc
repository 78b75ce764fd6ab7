// The encoders and the autoencoder of image pipelines at full width, on random weights:
//   image_components_bench --benchmark_filter=decode
// tools/bench_image_components.py times the same in PyTorch.
#include <benchmark/benchmark.h>

#include <cmath>
#include <map>
#include <random>

#include "braid/engine/diffusion/network.h"
#include "braid/model/autoencoder_kl.h"
#include "braid/model/t5_encoder.h"
#include "braid/tensor/quant.h"

namespace braid {
namespace {

constexpr int kThreads = 2;

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

void run(benchmark::State& state, const Program& program, const std::string& input, bool ids) {
  const RandomSource source(program);
  Network network(program.name, source, {.threads = kThreads});
  BoundNetwork& bound = network.plan("", [&] { return program; });
  const ValueType& type = program.value(*program.find(input)).type;
  std::mt19937 random(2);
  if (ids) {
    std::vector<int32_t> values(static_cast<size_t>(type.shape.elems()));
    for (int32_t& x : values) x = static_cast<int32_t>(random() % 32000);
    bound.write(input, values);
  } else {
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<size_t>(type.shape.elems()));
    for (float& x : values) x = normal(random);
    bound.write(input, values);
  }
  double flops = 0;
  for (const Op& op : program.ops) flops += program.cost(op, {.extents = program.capacity}).flops;
  for (auto _ : state) bound.run();
  state.counters["flops"] =
      benchmark::Counter(flops, benchmark::Counter::kIsIterationInvariantRate);
}

// Flux.1's autoencoder: latents of side x side.
void decode(benchmark::State& state) {
  const AutoencoderKlConfig config{
      .latent_channels = 16, .channels = {128, 256, 512, 512}, .post_quant = false};
  run(state,
      autoencoder_kl_decode(config, {.height = state.range(0), .width = state.range(0)},
                            [](std::string_view) { return DType::f32; }),
      "latents", false);
}
BENCHMARK(decode)
    ->Arg(32)
    ->Arg(64)
    ->Arg(128)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->MeasureProcessCPUTime();

// Layers of T5 XXL in bf16 (of 24), 512 tokens.
void t5(benchmark::State& state) {
  const T5EncoderConfig config{.vocab = 32128, .layers = state.range(0)};
  run(state, t5_encoder(config, {.length = 512}, [](std::string_view) { return DType::bf16; }),
      "token_ids", true);
}
BENCHMARK(t5)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime()->MeasureProcessCPUTime();

}  // namespace
}  // namespace braid

BENCHMARK_MAIN();
