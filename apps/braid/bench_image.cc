// braid bench image: a denoising step of Flux on one device and over ranks, with random weights,
// beside the simulator's prediction.
#include <fmt/format.h>

#include "braid/bench_pictures.h"
#include "braid/engine/diffusion/flux_pipeline.h"
#include "braid/options.h"
#include "braid/step_bench.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

struct ImageBench : StepBenchOptions {
  std::vector<int64_t> sizes, batches;
  int64_t text_tokens = 512;
};

class FluxStep : public BenchedStep {
 public:
  FluxStep(const PipelineParts& parts, const ImageBench& o, const NetworkConfig& network)
      : o_(o), transformer_(parts.transformer, *parts.transformer_weights, network) {}

  void begin(size_t i) override {
    const FluxConfig& c = transformer_.config();
    const int64_t side = o_.sizes[i] / 16;
    const auto text = normals(1, o_.text_tokens * c.text_dim), pooled = normals(2, c.pooled_dim);
    const std::vector<float> sigmas = {0.5f};
    transformer_.begin({.token_rows = side,
                        .token_columns = side,
                        .text = text,
                        .pooled = pooled,
                        .sigmas = sigmas,
                        .guidance = 3.5f});
    latents_ = normals(3, side * side * c.in_channels);
  }
  void run() override { transformer_.velocity(0, latents_); }
  BoundNetwork& network() override { return transformer_.bound_step(); }
  void divide_by(const SequenceMesh& mesh, const std::string& schedule) override {
    transformer_.divide_by(mesh, schedule);
  }

 private:
  const ImageBench& o_;
  FluxTransformer transformer_;
  std::vector<float> latents_;
};

StepFamily family_of(const PipelineParts& parts, const ImageBench& o, const BenchPlace& place) {
  const FluxConfig config = read_flux_config(parts.transformer);
  FluxConfig part = config;
  part.blocks = part.single_blocks = 1;
  const auto step = [&o, dtype = place.dtype()](const FluxConfig& flux, size_t i) {
    const int64_t side = o.sizes[i] / 16;
    return flux_step(
        flux, {.text = o.text_tokens, .image = side * side},
        [dtype](std::string_view) { return dtype; }, dtype);
  };
  StepFamily family{
      .title = fmt::format("{}: {} text tokens, {}{}", o.weights, o.text_tokens,
                           o.blocks > 0 ? fmt::format("{} blocks of each kind, ", o.blocks) : "",
                           place.description()),
      .heads = config.heads,
      .random = parts.random_transformer,
      .make = [&](const NetworkConfig& n) { return std::make_unique<FluxStep>(parts, o, n); },
      .step = [=](size_t i) { return step(config, i); },
      .part = [=](size_t i) { return step(part, i); },
      .rows = FluxTransformer::row_parts()};
  for (int64_t size : o.sizes) family.sizes.push_back(fmt::format("{0} x {0}", size));
  return family;
}

class PictureDecoder : public BenchedDecoder {
 public:
  PictureDecoder(const PipelineParts& parts, const ImageBench& o, const NetworkConfig& network)
      : o_(o), decoder_(parts.vae, parts.vae_weights, network) {}

  void decode(size_t i) override {
    const int64_t side = o_.sizes[i] / decoder_.scale(), n = side * side * decoder_.channels();
    if (std::ssize(latents_) != n) latents_ = normals(4, n);
    decoder_.decode(latents_, side, side);
  }
  BoundNetwork& bound(size_t i) override {
    const int64_t side = o_.sizes[i] / decoder_.scale();
    return decoder_.bound(side, side);
  }

 private:
  const ImageBench& o_;
  VaeDecoder decoder_;
  std::vector<float> latents_;
};

void bench_image(ImageBench o) {
  if (o.sizes.empty())
    o.sizes = o.figure != 0 ? std::vector<int64_t>{3072, 4096} : std::vector<int64_t>{1024};
  for (int64_t size : o.sizes) {
    require_between("--size", size, 16, 8192);
    if (size % 16 == 0) continue;
    fail(ErrorCode::kInvalidArgument, "--size is {}, wanted is a multiple of 16", size);
  }
  require_between("--text-tokens", o.text_tokens, 1, 512);
  for (int64_t batch : o.batches) require_between("--batch", batch, 1, 64);
  if (!o.batches.empty() && o.figure != 9) {
    fail(ErrorCode::kInvalidArgument,
         "--batch is of --figure 9: over ranks a step has one picture");
  }
  o.check();
  const BenchPlace place(o);
  JsonChanges changes;
  if (o.blocks > 0) changes = {{"num_layers", o.blocks}, {"num_single_layers", o.blocks}};
  const PipelineParts parts = random_flux(o.weights, place.dtype(), changes);
  if (const auto sizes = attention_sizes(o.figure, o.tokens, o.batches); !sizes.empty()) {
    const int64_t heads = read_flux_config(parts.transformer).heads;
    return print_steps(attention_family(heads, sizes, place), o, place);
  }
  const StepFamily family = family_of(parts, o, place);
  if (!o.decode_only) print_steps(family, o, place);
  if (!o.decode) return;
  print_decodes(family.sizes, o, place, parts.random_vae, [&](const NetworkConfig& n) {
    return std::make_unique<PictureDecoder>(parts, o, n);
  });
}

}  // namespace

void add_bench_image(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "image", "Times a step of Flux on one device and over ranks, with random weights");
  const auto o = std::make_shared<ImageBench>();
  o->add_to(*command, "configs/flux-1-dev.json");
  command
      ->add_option("--size", o->sizes,
                   "pixels of a side, several with commas (default 1024; of figures 3072,4096)")
      ->delimiter(',');
  command->add_option("--text-tokens", o->text_tokens, "tokens of text")->capture_default_str();
  command->add_option("--batch", o->batches, "of figure 9: sequences at once, several with commas")
      ->delimiter(',');
  command->footer(
      "Examples:\n"
      "  braid bench image --random-weights configs/flux-1-dev.json --device cuda:0,1\n"
      "  braid bench image --random-weights configs/flux-1-dev.json --device cuda:0,1,2,3 "
      "--machines 2x2 --link-gbps 12.5 --figure 7\n"
      "  braid bench image --random-weights configs/flux-1-dev.json --profile a100 --machines 4x8 "
      "--figure 7");
  command->callback([o, &bench] {
    require_no_options(bench, "image");
    require_one_process(o->job, "bench image");
    bench_image(*o);
  });
}

}  // namespace braid::app
