// braid video on tiny pipelines with random weights.
#include "braid/io/media/png.h"
#include "braid/io/media/video_file.h"
#include "cli/program.h"

namespace braid::golden {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const std::string kVideo = " -m " BRAID_TINY_PIPELINES "/video";
const std::string kRotary = " -m " BRAID_TINY_PIPELINES "/video_rotary";

class VideoTest : public CliTest {
 protected:
  static PngFile png(const std::string& name) { return decode_png(read(folder_ / name), name); }
};

TEST_F(VideoTest, WritesAVideoAndAReport) {
  const Outcome o = braid("video" + kVideo +
                          " -p 'a red circle' --size 32x24 --frames 9 --steps 2" + " --seed 7 -o " +
                          path("a.y4m") + " --json --dump-latents " + path("latents.safetensors"));
  ASSERT_EQ(o.status, 0) << o.err;
  const json report = json::parse(o.out);
  EXPECT_EQ(report["videos"][0]["file"], path("a.y4m"));
  EXPECT_EQ(report["timings"]["step_ms"].size(), 2);
  EXPECT_EQ(report["guidance"], 6.0);
  EXPECT_EQ(report["fps"], 8);
  EXPECT_EQ(report["tokens"]["text"], 16);
  const std::string file = read(folder_ / "a.y4m");
  EXPECT_TRUE(file.starts_with("YUV4MPEG2 W32 H24 F8:1 "));
  EXPECT_EQ(file.size() - file.find('\n') - 1, 9u * (6 + (32 * 24 * 3 / 2)));
  EXPECT_THAT(read(folder_ / "latents.safetensors"), HasSubstr("\"0.2\""));
}

TEST_F(VideoTest, FramesAsPicturesOverRanks) {
  const std::string options =
      " -p cat -W 16 -H 8 --frames 9 --steps 1 --seed 3 --text-tokens 8 -n 2 -o ";
  const Outcome o = braid("video" + kRotary + options + path("x.png"));
  EXPECT_EQ(o.out, path("x-1.png") + "\n" + path("x-2.png") + "\n") << o.err;
  const Outcome divided = braid("video" + kRotary + options + path("y.png") +
                                " --sp ulysses --ranks 4 --cfg-ranks 2 -t 1 --json");
  EXPECT_EQ(divided.status, 0) << divided.err;
  EXPECT_EQ(json::parse(divided.out)["ranks"], 4);
  for (const char* k : {"-1-0001.png", "-1-0009.png", "-2-0005.png"}) {
    const PngFile a = png(std::string("x") + k), b = png(std::string("y") + k);
    ASSERT_EQ(a.image.pixels.size(), 16u * 8 * 3);
    for (size_t i = 0; i < a.image.pixels.size(); ++i) {
      EXPECT_NEAR(a.image.pixels[i], b.image.pixels[i], 1);
    }
    EXPECT_THAT(a.texts[0].second, HasSubstr("\"prompt\":\"cat\""));
  }
  EXPECT_NE(png("x-1-0001.png").image.pixels, png("x-2-0001.png").image.pixels);
  EXPECT_FALSE(std::filesystem::exists(path("x-1-0010.png")));
}

// DPM's noise of each step comes from the generator too.
TEST_F(VideoTest, OneGeneratorForAll) {
  const std::string options =
      "video" + kRotary + " -p cat -W 16 -H 8 --frames 9 --steps 2 --seed 3 --text-tokens 8 -o ";
  const Outcome o = braid(options + path("b.png") + " -n 2 --seed-mode batch --json");
  ASSERT_EQ(o.status, 0) << o.err;
  const json report = json::parse(o.out);
  EXPECT_EQ(report["seed_mode"], "batch");
  EXPECT_EQ(report["videos"][1]["seed"], 3);
  const PngFile second = png("b-2-0001.png");
  EXPECT_THAT(second.texts[0].second,
              HasSubstr("\"seed_mode\":\"batch\",\"video\":1,\"videos\":2"));
  ASSERT_EQ(braid(options + path("e.png") + " -n 2 --seed-mode each").status, 0);
  EXPECT_NE(png("e-2-0001.png").image.pixels, second.image.pixels);
  expect_refused(options + path("r.png") + " --seed-mode all", 2, "--seed-mode is all");
}

TEST_F(VideoTest, PreviewsAreFirstFrames) {
  const std::string options =
      "video" + kVideo + " -p cat --size 32x24 --frames 9 --steps 3 --seed 7 -o ";
  ASSERT_EQ(braid(options + path("p.y4m") + " --preview-every 1").status, 0);
  const PngFile first = png("p-step-0001.png"), second = png("p-step-0002.png");
  EXPECT_EQ(first.image.width, 32);
  EXPECT_EQ(first.image.height, 24);
  EXPECT_NE(first.image.pixels, second.image.pixels);
  EXPECT_FALSE(std::filesystem::exists(path("p-step-0003.png")));
  ASSERT_EQ(braid(options + path("q.y4m")).status, 0);
  EXPECT_EQ(read(folder_ / "q.y4m"), read(folder_ / "p.y4m"));
}

TEST_F(VideoTest, FullDisk) {
  const std::string run =
      "video" + kVideo + " -p cat --size 16x8 --frames 1 --steps 1 --text-tokens 8 -o ";
  for (const auto& [name, full] :
       {std::pair{"f.y4m", "f.y4m"}, {"f.png", "f-0001.png"}, {"f.mp4", "f.mp4"}}) {
    if (!has_video_codecs() && std::string(name) == "f.mp4") continue;
    std::filesystem::create_symlink("/dev/full", path(full) + std::string(".part"));
    expect_refused(run + path(name), 1, path(full) + ": No space left on device");
    EXPECT_FALSE(std::filesystem::exists(path(full)));
  }
}

TEST_F(VideoTest, AutoChoosesRanks) {
  const std::string options = " -p cat -W 16 -H 16 --frames 9 --steps 1 --seed 3 -o ";
  std::filesystem::create_directories(path("braid/profiles"));
  std::filesystem::copy(BRAID_SOURCE_DIR "/profiles/h100.json", path("braid/profiles/cpu-1.json"));
  setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  const Outcome o = braid("video" + kVideo + options + path("a.y4m") +
                          " --device cpu --sp auto --ranks 4 -t 1 --json");
  unsetenv("XDG_CACHE_HOME");
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.err, HasSubstr("auto: "));
  const json report = json::parse(o.out);
  EXPECT_EQ(report["ranks"], 4);
  for (const char* passes :
       {"one after another", "as one batch", "by turns", "on two groups of ranks"}) {
    const bool groups = std::string(passes).starts_with("on two");
    const std::string wanted = groups ? "cfg ranks 2, " : passes;
    EXPECT_TRUE(std::ranges::any_of(report["priced"], [&](const std::string line) {
      return line.find(wanted) != line.npos;
    })) << passes;
    if (report["passes"] == passes) {
      EXPECT_THAT(o.err, HasSubstr(fmt::format("passes {}", passes)));
      EXPECT_EQ(report["cfg_ranks"] == 2, groups);
    }
  }
  EXPECT_GT(report["memory"]["free"], report["memory"]["most"]);
}

TEST_F(VideoTest, Mp4HoldsWhatMadeIt) {
  if (!has_video_codecs()) GTEST_SKIP() << "built without libavcodec";
  for (const char* name : {"v.mp4", "v.webm"}) {
    const Outcome o =
        braid("video" + kVideo + " -p 'a big sea' --size 16 --frames 9 --steps 1 -o " + path(name));
    ASSERT_EQ(o.status, 0) << o.err;
    EXPECT_EQ(o.out, path(name) + "\n");
    EXPECT_THAT(read(folder_ / name), HasSubstr("\"prompt\":\"a big sea\""));
  }
}

TEST_F(VideoTest, MistakesGetOneLine) {
  const std::string small = " -W 16 -H 16 --frames 9 --steps 1 -o " + path("no.y4m");
  expect_refused("video -p x", 2, "video needs a model: -m FOLDER");
  expect_refused("video" + kVideo + small, 2, "video needs a prompt");
  expect_refused("video" + kVideo + small + " -p x --fps 0", 2, "--fps is 0");
  expect_refused("video" + kVideo + small + " -p x --cfg-ranks 3", 2, "--cfg-ranks is 3");
  expect_refused("video" + kVideo + small + " -p x --cfg-ranks 2 --guidance 1", 2, "2 cfg ranks");
  expect_refused("video" + kVideo + small + " -p x --sp ring --ranks 3 --cfg-ranks 2", 2,
                 "3 ranks make no 2 equal groups");
  expect_refused("video" + kVideo + small + " -p x --ranks 2", 2, "--ranks goes with --sp");
  expect_refused("video" + kVideo + " -p x -o a.avi", 2, "wanted is .mp4, .webm or .y4m");
  expect_refused("video" + kVideo + " -p x --frames 10 -o " + path("no.y4m"), 2,
                 "8 k + 1: 9 or 17");
  expect_refused("video" + kVideo + " -p x -W 20 -H 16 -o " + path("no.y4m"), 2,
                 "multiple of 8: 16 or 24");
  expect_refused("video" + kVideo + " -p x -o /no/such/folder/a.y4m", 1, "/no/such/folder/a.y4m");
  expect_refused("video -m " BRAID_TINY_PIPELINES "/guided -p x -o " + path("no.y4m"), 1,
                 "of class FluxPipeline, wanted is CogVideoXPipeline: braid image takes");
  expect_refused("video" + kVideo + small + " -p x --link-us 5", 2, "--link-us goes with --sp");
  expect_refused("video" + kVideo + small + " -p x --sp ring --ranks 2 --schedule dbo", 2,
                 "overlap, sequential, auto, cfg_passes");
  expect_refused(
      "video" + kVideo + small + " -p x --sp ring --ranks 4 --cfg-ranks 2 --schedule cfg_passes", 2,
      "wanted is one of them");
  expect_refused("video" + kVideo + small + " -p x --dtype bf16", 2, "--dtype bf16 is a GPU's");
  const Outcome o = braid("video" + kVideo + small + " -p x --guidance 1 --negative y");
  EXPECT_EQ(o.status, 0);
  EXPECT_THAT(o.err, HasSubstr("--negative is ignored"));
  const Outcome empty = braid("video" + kVideo + small + " -p x --guidance 1 --negative ''");
  EXPECT_EQ(empty.status, 0);
  EXPECT_EQ(empty.err.find("--negative"), std::string::npos) << empty.err;
}

TEST_F(VideoTest, ComponentsThatAreUnknownAreNamed) {
  namespace fs = std::filesystem;
  const fs::path copy = folder_ / "pipeline";
  fs::copy(BRAID_TINY_PIPELINES "/video", copy, fs::copy_options::recursive);
  const std::string run =
      "video -m " + copy.string() + " -p x -W 16 -H 16 --frames 1 --steps 1 -o " + path("n.y4m");
  const auto with = [&](const char* file, const char* key, const json& value,
                        const std::string& message) {
    json config = json::parse(read(copy / file));
    const json before = config;
    config[key] = value;
    std::ofstream(copy / file) << config;
    expect_refused(run, 1, message);
    std::ofstream(copy / file) << before;
  };
  with("scheduler/scheduler_config.json", "_class_name", "PNDMScheduler", "'PNDMScheduler'");
  with("transformer/config.json", "num_layers", 1, "no use for tensor 'transformer_blocks.1.");
  with("transformer/config.json", "ofs_embed_dim", 512, "models that take a picture as input");
  with("transformer/config.json", "text_embed_dim", 16, "text_proj.weight");
  with("vae/config.json", "use_post_quant_conv", true, "use_post_quant_conv is true");
  // Flux's weights under a class that is nobody's.
  const fs::path flux = BRAID_TINY_PIPELINES "/fast/transformer", own = copy / "transformer";
  fs::remove_all(own);
  fs::copy(flux, own, fs::copy_options::recursive);
  with("transformer/config.json", "_class_name", "AnyTransformer",
       "of class 'AnyTransformer', wanted is CogVideoXTransformer3DModel: that class has no "
       "'context_embedder.bias', 'context_embedder.weight', '");
  fs::remove(copy / "vae/diffusion_pytorch_model.safetensors");
  expect_refused(run, 1, "vae");
}

}  // namespace
}  // namespace braid::golden
