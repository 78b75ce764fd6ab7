// One denoising step and one decode of Flux.1 with random weights on a GPU, and what each kind of
// kernel takes of them. FILE is configs/flux-1-dev.json; --size PIXELS (of a side, more than once),
// --decode PIXELS, --encode FOLDER (a diffusers folder's text encoders), --steps N that are timed.
// --velocity FILE takes the first size's velocity, f32; --pixels FILE a decode's, f32, in
// FILE-PIXELS.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "braid/engine/diffusion/flux_pipeline.h"
#include "gpu_main.h"
#include "network_report.h"

using namespace braid;

namespace {

// Milliseconds of each of `turns` runs of `work`, behind two runs without a clock.
template <class Work>
std::vector<double> times_of(int64_t turns, const Work& work) {
  std::vector<double> ms;
  for (int64_t i = 0; i < turns + 2; ++i) {
    const auto start = Clock::now();
    work();
    if (i > 1) ms.push_back(ms_since(start));
  }
  return ms;
}

void encode(const std::string& path, int64_t turns) {
  const DiffusersFolder folder(path);
  const NetworkConfig config{.device = {.cuda = true}};
  ClipEncoder clip(folder, config, "");
  T5Encoder t5(folder, config, "", "_2");
  const std::string prompt = "a red box on the sea in the light of the sun";
  const double pooled = median(times_of(turns, [&] { clip.encode(prompt); }));
  const double states = median(times_of(turns, [&] { t5.encode(prompt, 512); }));
  std::printf("encode: CLIP %.2f ms, T5 with 512 tokens %.2f ms\n\n", pooled, states);
}

int run(int argc, char** argv) {
  std::string file, velocity, pixels, folder;
  std::vector<int64_t> sizes, decodes;
  int64_t steps = 5;
  for (int i = 1; i < argc; ++i) {
    const auto value = [&] { return i + 1 < argc ? std::atoll(argv[++i]) : 0; };
    if (std::strcmp(argv[i], "--size") == 0) {
      sizes.push_back(value());
    } else if (std::strcmp(argv[i], "--decode") == 0) {
      decodes.push_back(value());
    } else if (std::strcmp(argv[i], "--encode") == 0) {
      if (i + 1 == argc) fail(ErrorCode::kInvalidArgument, "--encode wants a FOLDER");
      folder = argv[++i];
    } else if (std::strcmp(argv[i], "--steps") == 0) {
      steps = std::max<int64_t>(value(), 1);
    } else if (std::strcmp(argv[i], "--velocity") == 0) {
      velocity = i + 1 < argc ? argv[++i] : "";
    } else if (std::strcmp(argv[i], "--pixels") == 0) {
      pixels = i + 1 < argc ? argv[++i] : "";
    } else {
      file = argv[i];
    }
  }
  if (file.empty()) fail(ErrorCode::kInvalidArgument, "wanted: FILE [--size PIXELS] ...");
  std::printf("matrix rate, 8192^3 in bf16 by cuBLASLt: %.0f TFLOP/s\n\n", matrix_rate());
  PipelineParts parts = random_flux(file, DType::bf16);
  NetworkConfig config{.device = {.cuda = true}, .random = parts.random_transformer};
  const auto begin = Clock::now();
  if (!sizes.empty()) {
    FluxTransformer transformer(parts.transformer, *parts.transformer_weights, config);
    const FluxConfig& c = transformer.config();
    const auto text = normals(1, 512 * c.text_dim), pooled = normals(2, c.pooled_dim);
    for (const int64_t size : sizes) {
      const int64_t side = size / 16;
      const std::vector<float> sigmas(static_cast<size_t>(steps), 0.5f);
      const auto prepare = Clock::now();
      transformer.begin({.token_rows = side,
                         .token_columns = side,
                         .text = text,
                         .pooled = pooled,
                         .sigmas = sigmas,
                         .guidance = 4});
      const auto latents = normals(3, side * side * c.in_channels);
      const double prepared = ms_since(prepare);
      std::vector<double> ms;
      double first = 0, second = 0;
      for (int64_t i = 0; i < steps + 2; ++i) {
        const auto start = Clock::now();
        transformer.velocity(std::max<int64_t>(i - 2, 0), latents);
        (i == 0 ? first : i == 1 ? second : ms.emplace_back()) = ms_since(start);
      }
      if (!velocity.empty()) {
        const auto v = transformer.velocity(0, latents);
        cuda::write_results(velocity, {reinterpret_cast<const char*>(v.data()), v.size_bytes()});
        velocity.clear();
      }
      std::printf(
          "%lld x %lld, 512 text tokens: step %.2f ms (least %.2f); prepared in %.0f ms, first "
          "step "
          "%.0f ms, second %.0f ms; since start %.1f s\n",
          static_cast<long long>(size), static_cast<long long>(size), median(ms),
          *std::ranges::min_element(ms), prepared, first, second, ms_since(begin) / 1e3);
      std::printf(
          "arena %.2f GB\n\n",
          static_cast<double>(transformer.bound_step().executor(0).schedule().memory.arena_bytes) /
              1e9);
      print_kinds(transformer.bound_step());
    }
  }
  if (!folder.empty()) encode(folder, steps);
  if (decodes.empty()) return 0;
  config.random = parts.random_vae;
  VaeDecoder decoder(parts.vae, std::move(parts.vae_weights), config);
  for (const int64_t size : decodes) {
    const int64_t side = size / decoder.scale();
    const auto latents = normals(4, side * side * decoder.channels());
    std::span<const float> made;
    const auto ms = times_of(steps, [&] { made = decoder.decode(latents, side, side); });
    if (!pixels.empty()) {
      cuda::write_results(fmt::format("{}-{}", pixels, size),
                          {reinterpret_cast<const char*>(made.data()), made.size_bytes()});
    }
    BoundNetwork& network = decoder.bound(side, side);
    std::printf("decode %lld x %lld: %.2f ms with its pixels on the host; arena %.2f GB\n\n",
                static_cast<long long>(size), static_cast<long long>(size), median(ms),
                static_cast<double>(network.executor(0).schedule().memory.arena_bytes) / 1e9);
    print_kinds(network);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return cuda::gpu_main("bench_cuda_flux", [&] { return run(argc, argv); });
}
