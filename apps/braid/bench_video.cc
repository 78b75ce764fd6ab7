// braid bench video: a denoising pass of CogVideoX on one device and over ranks, with random
// weights, beside the simulator's prediction.
#include <fmt/format.h>

#include "braid/bench_pictures.h"
#include "braid/engine/diffusion/cogvideox_pipeline.h"
#include "braid/options.h"
#include "braid/picture_options.h"
#include "braid/step_bench.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

struct VideoBench : StepBenchOptions {
  std::string size;
  std::vector<int64_t> frames, heads, batches;
};

// A video's sides and frames, and the texts in a step.
struct Length {
  int64_t width = 0, height = 0, frames = 0, batch = 1;
  int64_t latent_frames() const { return ((frames - 1) / 4) + 1; }
  VideoGrid grid(const CogVideoXConfig& c) const {
    return {ceil_div(latent_frames(), c.patch_frames), height / 16, width / 16};
  }
};

class CogVideoXStep : public BenchedStep {
 public:
  CogVideoXStep(const PipelineParts& parts, const std::vector<Length>& sizes,
                const NetworkConfig& network)
      : sizes_(sizes), transformer_(parts.transformer, parts.transformer_weights, network) {}

  void begin(size_t i) override {
    const CogVideoXConfig& c = transformer_.config();
    const auto text = normals(1, sizes_[i].batch * c.text_tokens * c.text_dim);
    const std::vector<int64_t> timesteps = {500};
    const VideoGrid grid = sizes_[i].grid(c);
    transformer_.begin({.grid = grid,
                        .texts = sizes_[i].batch,
                        .text_states = text,
                        .timesteps = timesteps,
                        .order = TextOrder::batch});
    latents_ = normals(3, grid.tokens() * c.token_dim());
  }
  void run() override { transformer_.predict(0, latents_); }
  BoundNetwork& network() override { return transformer_.bound_step(); }
  void divide_by(const SequenceMesh& mesh, const std::string& schedule) override {
    transformer_.divide_by(mesh, schedule);
  }

 private:
  const std::vector<Length>& sizes_;
  CogVideoXTransformer transformer_;
  std::vector<float> latents_;
};

std::string passes_of(const VideoBench& o) {
  if (o.cfg_ranks == 0) return "a pass of one text";
  return o.cfg_ranks == 1 ? "both passes of guidance, one after another"
                          : "both passes of guidance, each on half of the ranks";
}

StepFamily family_of(const PipelineParts& parts, const std::vector<Length>& sizes,
                     const VideoBench& o, const BenchPlace& place) {
  const CogVideoXConfig config = read_cogvideox_config(parts.transformer);
  CogVideoXConfig part = config;
  part.blocks = 1;
  const auto step = [&sizes, dtype = place.dtype()](const CogVideoXConfig& c, size_t i) {
    return cogvideox_step(
        c, {.texts = sizes[i].batch, .text = c.text_tokens, .tokens = sizes[i].grid(c).tokens()},
        [dtype](std::string_view) { return dtype; }, dtype);
  };
  StepFamily family{
      .title = fmt::format("{}: {} blocks, {} heads of {}, {} text tokens, {}, {}", o.weights,
                           config.blocks, config.heads, config.head_dim, config.text_tokens,
                           passes_of(o), place.description()),
      .heads = config.heads,
      .random = parts.random_transformer,
      .make =
          [&](const NetworkConfig& n) { return std::make_unique<CogVideoXStep>(parts, sizes, n); },
      .step = [=](size_t i) { return step(config, i); },
      .part = [=](size_t i) { return step(part, i); },
      .rows = CogVideoXTransformer::row_parts()};
  for (const Length& s : sizes) {
    family.sizes.push_back(
        fmt::format("{} x {}, {} frames{}", s.width, s.height, s.frames,
                    o.batches.empty() ? "" : fmt::format(", batch {}", s.batch)));
  }
  return family;
}

class CogVideoXDecoder : public BenchedDecoder {
 public:
  CogVideoXDecoder(const PipelineParts& parts, const std::vector<Length>& sizes,
                   const NetworkConfig& network)
      : sizes_(sizes), decoder_(parts.vae, parts.vae_weights, network) {}

  void decode(size_t i) override {
    const VideoLatentSize size = latents(i);
    const int64_t n = size.frames * size.height * size.width * decoder_.channels();
    if (std::ssize(latents_) != n) latents_ = normals(4, n);
    decoder_.each_chunk(latents_, size, [](std::span<const float>) {});
  }
  BoundNetwork& bound(size_t i) override { return decoder_.bound(latents(i)); }

 private:
  VideoLatentSize latents(size_t i) const {
    return {sizes_[i].latent_frames(), sizes_[i].height / 8, sizes_[i].width / 8};
  }

  const std::vector<Length>& sizes_;
  VideoDecoder decoder_;
  std::vector<float> latents_;
};

void bench_video(VideoBench o) {
  const bool figure = o.figure != 0;
  if (o.size.empty()) o.size = figure ? "1360x768" : "720x480";
  // 20 and 40 seconds at 8 frames each.
  if (o.frames.empty())
    o.frames = figure ? std::vector<int64_t>{161, 321} : std::vector<int64_t>{49};
  o.check();
  const auto [width, height] = parse_size(o.size);
  std::vector<Length> sizes;
  for (int64_t frames : o.frames) {
    require_between("--frames", frames, 1, 1 << 16);
    for (int64_t batch : o.batches.empty() ? std::vector<int64_t>{1} : o.batches) {
      require_between("--batch", batch, 1, 64);
      sizes.push_back({width, height, frames, batch});
    }
  }
  for (int64_t side : {width, height}) {
    require_between("--size", side, 16, 16384);
    if (side % 16 == 0) continue;
    fail(ErrorCode::kInvalidArgument, "--size is {}, wanted are multiples of 16", o.size);
  }
  const BenchPlace place(o);
  const int64_t heads = read_cogvideox_config(random_parts(o.weights).transformer).heads;
  if (o.heads.empty()) o.heads = {heads};
  for (const int64_t count : o.heads) {
    require_between("--heads", count, 1, 1024);
    const auto lengths = attention_sizes(o.figure, o.tokens, {});
    if (!lengths.empty() && o.batches.empty()) {
      print_steps(attention_family(count, lengths, place), o, place);
      continue;
    }
    JsonChanges changes = {{"num_attention_heads", count}};
    if (o.blocks > 0) changes.emplace_back("num_layers", o.blocks);
    const PipelineParts parts = random_cogvideox(o.weights, place.dtype(), changes);
    const StepFamily family = family_of(parts, sizes, o, place);
    if (!o.decode_only) print_steps(family, o, place);
    if (!o.decode || count != o.heads[0]) continue;
    print_decodes(family.sizes, o, place, parts.random_vae, [&](const NetworkConfig& n) {
      return std::make_unique<CogVideoXDecoder>(parts, sizes, n);
    });
  }
}

}  // namespace

void add_bench_video(CLI::App& bench) {
  auto* command = bench.add_subcommand(
      "video", "Times a pass of CogVideoX on one device and over ranks, with random weights");
  const auto o = std::make_shared<VideoBench>();
  o->add_to(*command, "configs/cogvideox-5b.json");
  command->add_option("--size", o->size, "WIDTHxHEIGHT (default 720x480; of figures 1360x768)");
  command
      ->add_option("--frames", o->frames,
                   "frames, several with commas (default 49; of figures 161,321: 20 and 40 s)")
      ->delimiter(',');
  command
      ->add_option("--heads", o->heads,
                   "heads in place of the model's, several with commas: the paper prints 24")
      ->delimiter(',');
  command
      ->add_option("--batch", o->batches,
                   "texts in a step, several with commas; with --figure 9 whole steps in place of "
                   "attention alone")
      ->delimiter(',');
  command
      ->add_option("--cfg-ranks", o->cfg_ranks,
                   "of a simulation: both passes of guidance, on 1 or 2 groups of ranks at once")
      ->check(CLI::Range(1, 2))
      ->needs(command->get_option("--profile"));
  command->footer(
      "Examples:\n"
      "  braid bench video --random-weights configs/cogvideox-5b.json --device cuda:0,1\n"
      "  braid bench video --random-weights configs/cogvideox-5b.json --device cuda:0,1 "
      "--machines 2x1 --link-gbps 12.5 --figure 7 --heads 48,24 --simulate-one\n"
      "  braid bench video --random-weights configs/cogvideox-5b.json --profile a100 "
      "--machines 4x8 --figure 7 --heads 24");
  command->callback([o, &bench] {
    require_no_options(bench, "video");
    require_one_process(o->job, "bench video");
    bench_video(*o);
  });
}

}  // namespace braid::app
