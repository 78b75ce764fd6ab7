// A pass of CogVideoX's transformer and a decode with random weights on a GPU, and the time of each
// kind of kernel. FILE is configs/cogvideox-2b.json; --frames N of a pass, --decode N frames (both
// more than once), --size WIDTH HEIGHT, --steps N that are timed; --prediction FILE takes the first
// pass's numbers, f32, --pixels FILE a decode's, f32, in FILE-FRAMES.
#include <cstring>

#include "braid/engine/diffusion/cogvideox_pipeline.h"
#include "gpu_main.h"
#include "network_report.h"

using namespace braid;

namespace {

struct Picture {
  int64_t width = 720;
  int64_t height = 480;
};

struct Passes {
  std::span<const int64_t> lengths;
  int64_t steps;
  std::string prediction;
};

void time_passes(CogVideoXTransformer& transformer, const Picture& size, Passes p) {
  const CogVideoXConfig& c = transformer.config();
  const auto text = normals(1, c.text_tokens * c.text_dim);
  const std::vector<int64_t> timesteps(static_cast<size_t>(p.steps), 500);
  for (const int64_t frames : p.lengths) {
    const VideoGrid grid{ceil_div((frames - 1) / 4 + 1, c.patch_frames), size.height / 16,
                         size.width / 16};
    const auto prepare = Clock::now();
    transformer.begin({.grid = grid, .text_states = text, .timesteps = timesteps});
    const double prepared = ms_since(prepare);
    const auto latents = normals(3, grid.tokens() * c.token_dim());
    std::vector<double> ms;
    for (int64_t i = 0; i < p.steps + 2; ++i) {
      const auto start = Clock::now();
      transformer.predict(std::max<int64_t>(i - 2, 0), latents);
      ms.push_back(ms_since(start));
    }
    if (!p.prediction.empty()) {
      const auto v = transformer.predict(0, latents);
      cuda::write_results(p.prediction, {reinterpret_cast<const char*>(v.data()), v.size_bytes()});
      p.prediction.clear();
    }
    fmt::print(
        "{} frames of {} x {}, {} + {} tokens: a pass {:.2f} ms; prepared in {:.0f} ms, "
        "first pass {:.0f} ms, second {:.0f} ms; arena {:.2f} GB\n\n",
        frames, size.width, size.height, c.text_tokens, grid.tokens(),
        median({ms.begin() + 2, ms.end()}), prepared, ms[0], ms[1],
        static_cast<double>(transformer.bound_step().executor(0).schedule().memory.arena_bytes) /
            1e9);
    print_kinds(transformer.bound_step());
  }
}

void decode(VideoDecoder& decoder, const Picture& size, int64_t frames, int64_t steps,
            const std::string& pixels) {
  const VideoLatentSize latent{.frames = (frames - 1) / 4 + 1,
                               .height = size.height / decoder.scale(),
                               .width = size.width / decoder.scale()};
  const auto latents =
      normals(4, latent.frames * latent.height * latent.width * decoder.channels());
  std::vector<double> ms;
  for (int64_t i = 0; i < steps + 2; ++i) {
    const auto start = Clock::now();
    decoder.each_chunk(latents, latent, [](std::span<const float>) {});
    if (i > 1) ms.push_back(ms_since(start));
  }
  if (!pixels.empty()) {
    const auto made = decoder.pixels(latents, latent);
    cuda::write_results(fmt::format("{}-{}", pixels, frames),
                        {reinterpret_cast<const char*>(made.data()), 4 * made.size()});
  }
  BoundNetwork& network = decoder.bound(latent);
  fmt::print(
      "decode {} frames of {} x {}: {:.2f} ms with their pixels on the host; arena {:.2f} GB\n\n",
      frames, size.width, size.height, median(ms),
      static_cast<double>(network.executor(0).schedule().memory.arena_bytes) / 1e9);
  print_kinds(network);
}

int run(int argc, char** argv) {
  std::string file, prediction, pixels;
  std::vector<int64_t> lengths, decodes;
  Picture size;
  int64_t steps = 3;
  for (int i = 1; i < argc; ++i) {
    const auto value = [&] { return i + 1 < argc ? std::atoll(argv[++i]) : 0; };
    if (std::strcmp(argv[i], "--frames") == 0) {
      lengths.push_back(value());
    } else if (std::strcmp(argv[i], "--size") == 0) {
      size.width = value();
      size.height = value();
    } else if (std::strcmp(argv[i], "--decode") == 0) {
      decodes.push_back(value());
    } else if (std::strcmp(argv[i], "--pixels") == 0) {
      pixels = i + 1 < argc ? argv[++i] : "";
    } else if (std::strcmp(argv[i], "--steps") == 0) {
      steps = std::max<int64_t>(value(), 1);
    } else if (std::strcmp(argv[i], "--prediction") == 0) {
      prediction = i + 1 < argc ? argv[++i] : "";
    } else {
      file = argv[i];
    }
  }
  if (file.empty() || (lengths.empty() && decodes.empty())) {
    fail(ErrorCode::kInvalidArgument, "wanted: FILE --frames N or --decode N ...");
  }
  fmt::print("matrix rate, 8192^3 in bf16 by cuBLASLt: {:.0f} TFLOP/s\n\n", matrix_rate());
  PipelineParts parts = random_cogvideox(file, DType::bf16);
  NetworkConfig config{.device = {.cuda = true}, .random = parts.random_transformer};
  if (!lengths.empty()) {
    CogVideoXTransformer transformer(parts.transformer, std::move(parts.transformer_weights),
                                     config);
    time_passes(transformer, size, {lengths, steps, prediction});
  }
  if (decodes.empty()) return 0;
  config.random = parts.random_vae;
  VideoDecoder decoder(parts.vae, std::move(parts.vae_weights), config);
  for (const int64_t frames : decodes) decode(decoder, size, frames, steps, pixels);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return cuda::gpu_main("bench_cuda_cogvideox", [&] { return run(argc, argv); });
}
