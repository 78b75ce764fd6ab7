// braid image on tiny pipelines with random weights.
#include "braid/io/media/png.h"
#include "cli/program.h"

namespace braid::golden {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kGuided = " -m " BRAID_TINY_PIPELINES "/guided";
const std::string kFast = " -m " BRAID_TINY_PIPELINES "/fast";

class ImageTest : public CliTest {
 protected:
  static PngFile png(const std::string& name) { return decode_png(read(folder_ / name), name); }
};

TEST_F(ImageTest, WritesAPictureAndWhatMadeIt) {
  const Outcome o = braid("image" + kGuided + " -p 'a red circle' --size 40x24 --steps 2 --seed 7" +
                          " --text-tokens 16 -o " + path("a.png") + " --json --dump-latents " +
                          path("latents.safetensors"));
  ASSERT_EQ(o.status, 0) << o.err;
  const json report = json::parse(o.out);
  EXPECT_EQ(report["images"][0]["file"], path("a.png"));
  EXPECT_EQ(report["images"][0]["seed"], 7);
  EXPECT_EQ(report["timings"]["step_ms"].size(), 2);
  EXPECT_EQ(report["tokens"]["t5"], 4);
  EXPECT_EQ(report["guidance"], 3.5);
  const PngFile picture = png("a.png");
  EXPECT_EQ(picture.image.width, 40);
  EXPECT_EQ(picture.image.height, 24);
  EXPECT_GT(std::ranges::max(picture.image.pixels), std::ranges::min(picture.image.pixels));
  ASSERT_EQ(picture.texts[0].first, "parameters");
  EXPECT_THAT(picture.texts[0].second, HasSubstr("\"prompt\":\"a red circle\""));
  EXPECT_THAT(read(folder_ / "latents.safetensors"), HasSubstr("\"0.2\""));

  // The picture says all that another like it takes.
  ASSERT_EQ(
      braid("image" + kGuided + " --from-png " + path("a.png") + " -o " + path("b.png")).status, 0);
  EXPECT_EQ(png("b.png").image.pixels, picture.image.pixels);
  const Outcome other =
      braid("image" + kGuided + " --from-png " + path("a.png") + " --seed 8 -o " + path("c.png"));
  EXPECT_EQ(other.out, path("c.png") + "\n");
  EXPECT_NE(png("c.png").image.pixels, picture.image.pixels);
}

TEST_F(ImageTest, SeveralImagesAndRanks) {
  const std::string options = " -p cat -W 16 -H 8 --steps 1 --seed 3 --text-tokens 8 -n 2 -o ";
  const Outcome o = braid("image" + kFast + options + path("x.png"));
  EXPECT_EQ(o.out, path("x-1.png") + "\n" + path("x-2.png") + "\n") << o.err;
  const Outcome divided =
      braid("image" + kFast + options + path("y.png") + " --sp ring --ranks 3 -t 1 --dtype f32");
  EXPECT_EQ(divided.status, 0) << divided.err;
  for (const char* k : {"-1.png", "-2.png"}) {
    const auto a = png(std::string("x") + k).image.pixels,
               b = png(std::string("y") + k).image.pixels;
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1);
  }
  EXPECT_NE(png("x-1.png").image.pixels, png("x-2.png").image.pixels);
}

// By ring each rank reads the keys and values of all others, in each attention; heads are 3 of 24.
TEST_F(ImageTest, ReportsTheBytesThatRanksSend) {
  const std::string run = "image" + kFast + " -p cat -W 16 -H 8 --steps 1 --text-tokens 8 -o " +
                          path("b.png") + " --json";
  const json alone = json::parse(braid(run).out)["sent_bytes"];
  EXPECT_EQ(alone, json({{"step", 0}, {"decode", 0}}));
  const json sent = json::parse(braid(run + " --sp ring --ranks 3 -t 1").out)["sent_bytes"];
  const int64_t rows = 8 + (16 / 4 * 8 / 4), attentions = 1 + 3;
  EXPECT_EQ(sent["step"], 2 * rows * (2 * 3 * 24) * 4 * attentions);
  EXPECT_GT(sent["decode"], 0);
  // With text on each rank no text's keys, but text's results.
  const json whole =
      json::parse(braid(run + " --sp ring --ranks 3 -t 1 --text-rows replicated").out);
  EXPECT_EQ(whole["text_rows"], "replicated");
  EXPECT_EQ(whole["sent_bytes"]["step"],
            2 * ((rows - 8) * (2 * 3 * 24) + 8 * (3 * 24)) * 4 * attentions);
}

TEST_F(ImageTest, LossyFiles) {
  const std::string options = " -p cat --size 32 --steps 1 --seed 3 -n 2 --text-tokens 8 -o ";
  for (const auto& [name, magic] : {std::pair{"a.jpg", "\xff\xd8\xff"}, {"b.webp", "RIFF"}}) {
    const Outcome o = braid("image" + kFast + options + path(name) + " --quality 80");
    if (o.status == 1 && o.err.find("installed") != std::string::npos) continue;
    if (o.err.find("this build writes no") != std::string::npos) continue;
    ASSERT_EQ(o.status, 0) << o.err;
    std::filesystem::path second = path(name);
    second.replace_filename(second.stem().string() + "-2" + second.extension().string());
    EXPECT_TRUE(read(second).starts_with(magic)) << name;
  }
}

// Files of every second step but the last; the pictures stay as they are without.
TEST_F(ImageTest, PreviewsOfSteps) {
  const std::string options = "image" + kGuided + " -p cat --size 16 --seed 3 --text-tokens 8 ";
  ASSERT_EQ(braid(options + "--steps 5 -n 2 --preview-every 2 -o " + path("p.png")).status, 0);
  for (const char* name : {"p-1.png", "p-2.png", "p-1-step-0002.png", "p-1-step-0004.png",
                           "p-2-step-0002.png", "p-2-step-0004.png"}) {
    EXPECT_TRUE(std::filesystem::exists(path(name))) << name;
  }
  EXPECT_FALSE(std::filesystem::exists(path("p-1-step-0005.png")));
  EXPECT_NE(png("p-1-step-0002.png").image.pixels, png("p-1-step-0004.png").image.pixels);
  EXPECT_NE(png("p-1-step-0004.png").image.pixels, png("p-1.png").image.pixels);
  ASSERT_EQ(braid(options + "--steps 5 -n 2 -o " + path("q.png")).status, 0);
  EXPECT_EQ(png("q-2.png").image.pixels, png("p-2.png").image.pixels);
}

// A batch's second picture comes from the second part of a generator's numbers.
TEST_F(ImageTest, FromPngDrawsTheSamePictureOfABatch) {
  const std::string run = "image" + kGuided;
  ASSERT_EQ(braid(run + " -p cat --size 16 --seed 3 --steps 1 --text-tokens 8 -n 3" +
                  " --seed-mode batch -o " + path("n.png"))
                .status,
            0);
  const std::string again = run + " --from-png " + path("n-2.png");
  ASSERT_EQ(braid(again + " -o " + path("same.png")).status, 0);
  EXPECT_EQ(png("same.png").image.pixels, png("n-2.png").image.pixels);
  EXPECT_EQ(png("same.png").texts[0], png("n-2.png").texts[0]);
  ASSERT_EQ(braid(run + " --from-png " + path("same.png") + " -n 2 -o " + path("m.png")).status, 0);
  EXPECT_EQ(png("m-2.png").image.pixels, png("n-3.png").image.pixels);
  // Another mode makes another picture: the seed's own.
  ASSERT_EQ(braid(again + " --seed-mode each -o " + path("each.png")).status, 0);
  EXPECT_EQ(png("each.png").image.pixels, png("n-1.png").image.pixels);
}

TEST_F(ImageTest, ACutPromptIsShownInPart) {
  std::string words;
  for (int i = 0; i < 200; ++i) words += " cat";
  const Outcome o = braid("image" + kFast + " -p '" + words +
                          "' --size 16 --steps 1 --text-tokens 8 -o " + path("cut.png"));
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("the prompt has more than 8 tokens: cut off was '"));
  EXPECT_LT(o.err.size(), 400u);
}

// A picture in tiles is another one, and report, remark and file say so; --from-png makes it again.
TEST_F(ImageTest, TilesAreSaid) {
  const std::string options =
      "image" + kGuided + " -p cat --size 40x24 --seed 3 --steps 1 --text-tokens 8 --json -o ";
  ASSERT_EQ(braid(options + path("exact.png")).status, 0);
  const Outcome o = braid(options + path("tiles.png") + " --vae-tiling");
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("decoded in tiles of 32 x 32 pixels"));
  EXPECT_THAT(o.out, HasSubstr("\"vae_tiling\":true"));
  EXPECT_NE(png("tiles.png").image.pixels, png("exact.png").image.pixels);
  EXPECT_THAT(png("tiles.png").texts[0].second, HasSubstr("\"vae_tiling\":true"));
  ASSERT_EQ(
      braid("image" + kGuided + " --from-png " + path("tiles.png") + " -o " + path("again.png"))
          .status,
      0);
  EXPECT_EQ(png("again.png").image.pixels, png("tiles.png").image.pixels);
}

// Files are written beside their place first, here to a device that is always full.
TEST_F(ImageTest, FullDisk) {
  const std::string run =
      "image" + kFast + " -p cat --size 16 --steps 2 --text-tokens 8 --preview-every 1 -o ";
  for (const auto& [full, options] :
       {std::pair<std::string, std::string>{"f.png", path("f.png")},
        {"g-step-0001.png", path("g.png")},
        {"l.st", path("h.png") + " --dump-latents " + path("l.st")}}) {
    std::filesystem::create_symlink("/dev/full", path(full + ".part"));
    const Outcome o = braid(run + options);
    EXPECT_EQ(o.status, 1) << full;
    EXPECT_THAT(o.err, HasSubstr(path(full) + ": No space left on device"));
    EXPECT_FALSE(std::filesystem::exists(path(full))) << full;
    EXPECT_FALSE(std::filesystem::is_symlink(path(full + ".part"))) << full;
  }
}

TEST_F(ImageTest, AutoNamesItsChoiceAndEqualsOneRank) {
  const std::string options = "image" + kGuided + " -p cat --size 24x16 --steps 2 --seed 3 -o ";
  std::filesystem::create_directories(path("braid/profiles"));
  std::filesystem::copy(BRAID_SOURCE_DIR "/profiles/h100.json", path("braid/profiles/cpu-1.json"));
  setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  const Outcome o =
      braid(options + path("auto.png") + " --device cpu --sp auto --ranks 4 -t 1 --json");
  unsetenv("XDG_CACHE_HOME");
  ASSERT_EQ(o.status, 0) << o.err;
  const json report = json::parse(o.out);
  EXPECT_EQ(report["ranks"], 4);
  const std::string chosen =
      report["sp"].get<std::string>() + ", " + report["schedule"].get<std::string>();
  std::string best;
  double least = std::numeric_limits<double>::infinity();
  for (const std::string line : report["priced"]) {
    const double ms = std::stod(line.substr(line.rfind(": ") + 2));
    if (ms < least) least = ms, best = line;
  }
  EXPECT_THAT(best, testing::StartsWith(chosen));
  EXPECT_THAT(o.err, HasSubstr("auto: " + chosen));
  EXPECT_GT(report["sent_bytes"]["step"], 0);
  ASSERT_EQ(braid(options + path("one.png")).status, 0);
  const auto a = png("auto.png").image.pixels, b = png("one.png").image.pixels;
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1);
}

TEST_F(ImageTest, MistakesGetOneLine) {
  const std::string small = " -W 16 -H 16 --steps 1 -o " + path("no.png");
  expect_refused("image -p x", 2, "image needs a model: -m FOLDER");
  expect_refused("image" + kGuided + small, 2, "image needs a prompt");
  expect_refused("image" + kGuided + " -p x -W 20 -H 16", 2, "multiple of 8: 16 or 24");
  expect_refused("image" + kGuided + " -p x --size 16by16", 2, "--size is '16by16'");
  expect_refused("image" + kGuided + " -p x --size 16 -W 16", 2, "give one of them");
  expect_refused("image" + kGuided + " -p x -o a.gif", 2, ".jpg, .jpeg or .webp");
  expect_refused("image" + kGuided + small + " -p x --quality 0", 2, "--quality is 0");
  expect_refused("image" + kGuided + small + " -p x --preview-every -1", 2, "--preview-every");
  expect_refused("image" + kGuided + small + " -p x --seed-mode all", 2, "each or batch");
  expect_refused("image" + kGuided + small + " -p x --ranks 2", 2, "--ranks goes with --sp");
  expect_refused("image" + kGuided + small + " -p x --sp ulysses --ranks 4", 2, "2 query heads");
  expect_refused("image" + kGuided + small + " -p x --sp rings --ranks 2", 2, "'rings'");
  const std::string ring = "image" + kGuided + small + " -p x --sp ring --ranks 2 --text-rows ";
  expect_refused(ring + "whole", 2, "--text-rows is whole, wanted is split, replicated or auto");
  expect_refused(ring + "auto", 2, "wanted is --sp auto or --schedule auto");
  expect_refused("image" + kGuided + small + " -p x --dtype fp16", 2, "bf16, f16 or f32");
  for (const char* option :
       {"--schedule overlap", "--link-gbps 5", "--ulysses-degree 2", "--text-rows split"}) {
    const std::string text = option;
    expect_refused("image" + kGuided + small + " -p x " + text, 2,
                   text.substr(0, text.find(' ')) + " goes with --sp");
  }
  for (const char* name : {"cfg_passes", "tokenweave", "comet", "dbo", "none"}) {
    expect_refused("image" + kGuided + small + " -p x --sp ring --ranks 2 --schedule " + name, 2,
                   fmt::format("--schedule '{}' does nothing for steps of images", name));
  }
  expect_refused("image" + kGuided + small + " -p x --dtype f16", 2, "--dtype f16 is a GPU's");
  expect_refused("image" + kGuided + small + " -p x --text-encoder host", 2,
                 "--text-encoder is host, wanted is auto, gpu, load or cpu");
  for (const std::string place : {"gpu", "load"}) {
    expect_refused("image" + kGuided + small + " -p x --text-encoder " + place, 2, "--device cuda");
  }
  expect_refused("image" + kGuided + small + " -p x --cfg-ranks 2", 2, "Flux.1 has one pass");
  expect_refused("image" + kGuided + small + " -p x --text-tokens 1 --sp ring --ranks 6", 2,
                 "5 tokens cannot be divided over 6 ranks: at most --ranks 5");
  expect_refused("image -m " BRAID_TINY_PIPELINES "/video -p x", 1,
                 "braid video takes this folder");
  expect_refused("image" + kGuided + small + " -p x --device cpu --sp ring", 2, "--ranks N");
  expect_refused("image" + kGuided + " -p x -W 16 -H 16 -o /no/such/folder/a.png", 1,
                 "/no/such/folder/a.png");
  expect_refused("image -m " + hf() + " -p x", 1, "it has no model_index.json");
  expect_refused("image -m " + gguf() + " -p x", 2, "is a file");
  expect_refused("image" + kGuided + small + " --from-png " + gguf(), 1, "model.gguf");
  expect_refused("image" + kGuided + small + " -p x --variant int8", 1, "'int8'");
  const Outcome o =
      braid("image" + kFast + small + " -p x --text-tokens 4 --negative y --guidance 2");
  EXPECT_EQ(o.status, 0);
  EXPECT_THAT(o.err, HasSubstr("--negative is ignored"));
  EXPECT_THAT(o.err, HasSubstr("--guidance is ignored"));
}

TEST_F(ImageTest, ComponentsThatAreMissingOrUnusedAreNamed) {
  namespace fs = std::filesystem;
  const fs::path copy = folder_ / "pipeline";
  fs::copy(BRAID_TINY_PIPELINES "/fast", copy, fs::copy_options::recursive);
  const std::string run =
      "image -m " + copy.string() + " -p x -W 16 -H 16 --steps 1 -o " + path("n.png");
  fs::rename(copy / "vae", copy / "away");
  expect_refused(run, 1, "has no folder 'vae'");
  fs::rename(copy / "away", copy / "vae");
  fs::rename(copy / "vae/config.json", copy / "away.json");
  expect_refused(run, 1, "vae: has no config.json: -m takes a pipeline whose components");
  fs::rename(copy / "away.json", copy / "vae/config.json");
  json index = json::parse(read(copy / "model_index.json"));
  index["transformer"][1] = "SD3Transformer2DModel";
  std::ofstream(copy / "model_index.json") << index;
  expect_refused(run, 1, "'transformer' is of class 'SD3Transformer2DModel'");
  index["transformer"][1] = "FluxTransformer2DModel";
  index["_class_name"] = "StableDiffusionPipeline";
  std::ofstream(copy / "model_index.json") << index;
  expect_refused(run, 1, "of class StableDiffusionPipeline");
  index["_class_name"] = "FluxPipeline";
  std::ofstream(copy / "model_index.json") << index;
  json config = json::parse(read(copy / "transformer/config.json"));
  json scheduler = json::parse(read(copy / "scheduler/scheduler_config.json"));
  const json before = scheduler;
  scheduler["use_karras"] = true;
  std::ofstream(copy / "scheduler/scheduler_config.json") << scheduler;
  expect_refused(run, 1, "scheduler: the field 'use_karras', here 'true'");
  std::ofstream(copy / "scheduler/scheduler_config.json") << before;
  config["_class_name"] = "SD3Transformer2DModel";
  std::ofstream(copy / "transformer/config.json") << config;
  expect_refused(run, 1, "its tensors have the names of a FluxTransformer2DModel");
  config["_class_name"] = "FluxTransformer2DModel";
  config["num_single_layers"] = 2;
  std::ofstream(copy / "transformer/config.json") << config;
  expect_refused(run, 1, "no use for tensor 'single_transformer_blocks.2.");
}

}  // namespace
}  // namespace braid::golden
