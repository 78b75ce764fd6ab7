// One pass of CogVideoX's transformer with random weights on a GPU, and the time of each kind of
// kernel. FILE is configs/cogvideox-2b.json; --frames N (more than once), --size WIDTH HEIGHT,
// --steps N that are timed, --prediction FILE for the first pass's numbers, f32.
#include <cstring>

#include "braid/engine/diffusion/cogvideox_pipeline.h"
#include "gpu_main.h"
#include "network_report.h"

using namespace braid;

namespace {

int run(int argc, char** argv) {
  std::string file, prediction;
  std::vector<int64_t> lengths;
  int64_t width = 720, height = 480, steps = 3;
  for (int i = 1; i < argc; ++i) {
    const auto value = [&] { return i + 1 < argc ? std::atoll(argv[++i]) : 0; };
    if (std::strcmp(argv[i], "--frames") == 0) {
      lengths.push_back(value());
    } else if (std::strcmp(argv[i], "--size") == 0) {
      width = value();
      height = value();
    } else if (std::strcmp(argv[i], "--steps") == 0) {
      steps = std::max<int64_t>(value(), 1);
    } else if (std::strcmp(argv[i], "--prediction") == 0) {
      prediction = i + 1 < argc ? argv[++i] : "";
    } else {
      file = argv[i];
    }
  }
  if (file.empty() || lengths.empty()) {
    fail(ErrorCode::kInvalidArgument, "wanted: FILE --frames N ...");
  }
  fmt::print("matrix rate, 8192^3 in bf16 by cuBLASLt: {:.0f} TFLOP/s\n\n", matrix_rate());
  PipelineParts parts = random_cogvideox(file, DType::bf16);
  CogVideoXTransformer transformer(parts.transformer, std::move(parts.transformer_weights),
                                   {.device = {.cuda = true}, .random = parts.random_transformer});
  const CogVideoXConfig& c = transformer.config();
  const auto text = normals(1, c.text_tokens * c.text_dim);
  const std::vector<int64_t> timesteps(static_cast<size_t>(steps), 500);
  for (const int64_t frames : lengths) {
    const VideoGrid grid{ceil_div((frames - 1) / 4 + 1, c.patch_frames), height / 16, width / 16};
    const auto prepare = Clock::now();
    transformer.begin({.grid = grid, .text_states = text, .timesteps = timesteps});
    const double prepared = ms_since(prepare);
    const auto latents = normals(3, grid.tokens() * c.token_dim());
    std::vector<double> ms;
    for (int64_t i = 0; i < steps + 2; ++i) {
      const auto start = Clock::now();
      transformer.predict(std::max<int64_t>(i - 2, 0), latents);
      ms.push_back(ms_since(start));
    }
    if (!prediction.empty()) {
      const auto v = transformer.predict(0, latents);
      cuda::write_results(prediction, {reinterpret_cast<const char*>(v.data()), v.size_bytes()});
      prediction.clear();
    }
    fmt::print(
        "{} frames of {} x {}, {} + {} tokens: a pass {:.2f} ms; prepared in {:.0f} ms, "
        "first pass {:.0f} ms, second {:.0f} ms; arena {:.2f} GB\n\n",
        frames, width, height, c.text_tokens, grid.tokens(), median({ms.begin() + 2, ms.end()}),
        prepared, ms[0], ms[1],
        static_cast<double>(transformer.bound_step().executor(0).schedule().memory.arena_bytes) /
            1e9);
    print_kinds(transformer.bound_step());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return cuda::gpu_main("bench_cuda_cogvideox", [&] { return run(argc, argv); });
}
