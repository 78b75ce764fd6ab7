// Random weights of a shape from the command line: braid bench image and video, braid image and
// video.
#include <fstream>
#include <sstream>

#include "cli/program.h"

namespace braid::golden {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;
using testing::Not;

class BenchPicturesTest : public CliTest {
 protected:
  // Without a profile of this machine.
  BenchPicturesTest() { setenv("XDG_CACHE_HOME", folder_.c_str(), 1); }
  ~BenchPicturesTest() override { unsetenv("XDG_CACHE_HOME"); }

  std::string file(const char* name, const char* text) {
    std::ofstream(path(name)) << text;
    return " --device cpu -t 1 --random-weights " + path(name);
  }
  std::string flux() { return flux_weights() + " -r 1"; }
  std::string cogvideox() { return cogvideox_weights() + " -r 1"; }
  std::string flux_weights() {
    return file("flux.json", R"({
      "scheduler": {"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 1.0},
      "transformer": {"in_channels": 16, "num_layers": 2, "num_single_layers": 1,
                      "num_attention_heads": 4, "attention_head_dim": 16,
                      "joint_attention_dim": 24, "pooled_projection_dim": 16,
                      "axes_dims_rope": [4, 4, 8]},
      "vae": {"latent_channels": 4, "block_out_channels": [8, 8], "norm_num_groups": 4}})");
  }
  std::string cogvideox_weights() {
    return file("video.json", R"({
      "scheduler": {"_class_name": "CogVideoXDPMScheduler"},
      "transformer": {"in_channels": 4, "out_channels": 4, "num_layers": 2,
                      "num_attention_heads": 4, "attention_head_dim": 16, "text_embed_dim": 24,
                      "time_embed_dim": 32, "max_text_seq_length": 6, "sample_width": 12,
                      "sample_height": 8, "sample_frames": 9,
                      "use_rotary_positional_embeddings": true},
      "vae": {"latent_channels": 4, "block_out_channels": [8, 8], "norm_num_groups": 4,
              "layers_per_block": 1, "scaling_factor": 0.7}})");
  }
  std::string table(const std::string& arguments) {
    const Outcome o = braid("bench " + arguments);
    EXPECT_EQ(o.status, 0) << o.err;
    return o.out;
  }
};

TEST_F(BenchPicturesTest, StepsInEveryMode) {
  const std::string images = table("image" + flux() + " --ranks 2 --size 64,32 --text-tokens 5");
  for (const char* row : {"| 64 x 64 | one rank | 1 x 1 x 1 |", "| 32 x 32 | ring | 1 x 1 x 2 |",
                          "| 64 x 64 | ulysses | 1 x 2 x 1 |"}) {
    EXPECT_THAT(images, HasSubstr(row));
  }
  const std::string videos =
      table("video" + cogvideox() + " --ranks 2 --sp ring --size 64x32 --frames 9 --decode");
  EXPECT_THAT(videos, HasSubstr("2 blocks, 4 heads of 16, 6 text tokens"));
  EXPECT_THAT(videos, HasSubstr("| 64 x 32, 9 frames | ring | 1 x 1 x 2 |"));
  EXPECT_THAT(videos, HasSubstr("| size | ranks | first decode ms | decode ms |"));
  EXPECT_THAT(videos, HasSubstr("| 64 x 32, 9 frames | 2 | "));
  const std::string decode =
      table("image" + flux() + " --ranks 2 --size 64 --text-tokens 5 --decode-only");
  EXPECT_THAT(decode, HasSubstr("| 64 x 64 | 2 | "));
  EXPECT_THAT(decode, Not(HasSubstr("step ms")));
}

// A figure's rows with the bound beside: no method beats P ranks' share of one rank's time.
TEST_F(BenchPicturesTest, FiguresOfThePaper) {
  const std::string machines = " --machines 2x1 --link-gbps 1 --size 64";
  const std::string best = table("image" + flux() + machines + " --figure 7 --text-tokens 5");
  for (const char* row : {"| usp, nothing hidden |", "| tas, nothing hidden |", "| torus |"}) {
    EXPECT_THAT(best, HasSubstr(row));
  }
  EXPECT_THAT(best, HasSubstr("Figure 7 of StreamFusion shows"));
  EXPECT_THAT(best, HasSubstr("one rank's time over 2, so that nothing can be more than"));
  const std::string all =
      table("image" + flux() + machines + " --figure 8 --blocks 1 --text-tokens 5");
  EXPECT_THAT(all, HasSubstr("| usp, nothing hidden | 1 x 2 x 1 |"));
  EXPECT_THAT(all, HasSubstr("| usp, nothing hidden | 1 x 1 x 2 |"));
  EXPECT_THAT(all, HasSubstr("1 blocks of each kind"));
  const std::string parts = table("video" + cogvideox() +
                                  " --machines 2x1 --link-gbps 1 --size 64x32 --frames 9 "
                                  "--figure 10 --heads 4,2 --blocks 1 --simulate-one");
  EXPECT_THAT(parts, HasSubstr("1 blocks, 2 heads of 16"));
  EXPECT_THAT(parts, HasSubstr("| torus, nothing hidden | 2 x 1 x 1 |"));
  EXPECT_THAT(parts, Not(HasSubstr("so that nothing can be more")));  // no profile, no bound
}

// Each row's time to plan, warm up and run, on standard error beside the table.
TEST_F(BenchPicturesTest, SaysHowLongEachPhaseTook) {
  const Outcome o = braid("bench image" + flux() +
                          " --machines 2x1 --size 64 --text-tokens 5 --figure 10 --warm-ups 0 "
                          "--phases --simulate-one");
  EXPECT_EQ(o.status, 0);
  EXPECT_THAT(o.err, HasSubstr("torus, nothing hidden, 64 x 64: "));
  EXPECT_THAT(o.err, HasSubstr(" s to plan and load, 0.00 to warm up, "));
  EXPECT_THAT(o.out, Not(HasSubstr("to warm up")));
}

TEST_F(BenchPicturesTest, FiguresOfAttentionAlone) {
  const std::string lengths =
      table("image" + flux() + " --machines 2x1 --link-gbps 1 --figure 9 --tokens 64");
  EXPECT_THAT(lengths, HasSubstr("| 64 tokens, D 128 | torus | 2 x 1 x 1 |"));
  const std::string batches =
      table("image" + flux() + " --machines 2x1 --link-gbps 1 --figure 9 --tokens 64 --batch 1,3");
  for (const char* row : {"| 64 tokens, D 64, batch 1 | usp, nothing hidden |",
                          "| 64 tokens, D 128, batch 3 | torus |",
                          "64 tokens, D 64, batch 3: ", "so that nothing can be more than"}) {
    EXPECT_THAT(batches, HasSubstr(row));
  }
  expect_refused("bench image" + flux() + " --ranks 1 --figure 7 --batch 2", 2,
                 "--batch is of --figure 9");
  expect_refused("bench image" + flux() + " --ranks 1 --figure 9 --batch 0", 2, "--batch is 0");
  const std::string pieces = table("video" + cogvideox() + " --ranks 1 --figure 12 --tokens 64");
  EXPECT_THAT(pieces, HasSubstr("| 64 tokens, D 64, 4 pieces | one rank |"));
}

TEST_F(BenchPicturesTest, FigureOfBatchesIsOfWholeSteps) {
  const std::string steps =
      table("video" + cogvideox() + " --machines 2x1 --size 32 --frames 9 --figure 9 --batch 1,3");
  EXPECT_THAT(steps, HasSubstr("| 32 x 32, 9 frames, batch 1 | one rank |"));
  EXPECT_THAT(steps, HasSubstr("| 32 x 32, 9 frames, batch 3 | usp, nothing hidden | 1 x 2 x 1 |"));
  EXPECT_THAT(steps, HasSubstr("| 32 x 32, 9 frames, batch 3 | torus | 2 x 1 x 1 |"));
  expect_refused("bench video" + cogvideox() + " --ranks 1 --batch 0", 2, "--batch is 0");
}

class SimulatedStepsTest : public BenchPicturesTest {
 protected:
  static std::string flux() {
    return " --random-weights " BRAID_SOURCE_DIR "/configs/flux-1-dev.json";
  }
  static std::string cogvideox() {
    return " --random-weights " BRAID_SOURCE_DIR "/configs/cogvideox-5b.json";
  }
  // Each line of a simulation's output.
  std::vector<Json> simulated(const std::string& arguments) {
    std::istringstream lines(table(arguments + " --json"));
    std::vector<Json> all;
    for (std::string line; std::getline(lines, line);) all.push_back(Json::parse(line));
    return all;
  }
  static double ms_of(const Json& size, const std::string& label) {
    for (const Json& row : size["rows"]) {
      if (row["label"] == label) return row["ms"];
    }
    ADD_FAILURE() << label << " in " << size;
    return 0;
  }
};

// The figures' steps on GPUs of a profile, with none here.
TEST_F(SimulatedStepsTest, FiguresOfThePaper) {
  const std::string pictures =
      "image" + flux() + " --profile h100 --machines 4x1 --link-gbps 12.5 --figure 7 --blocks 2";
  const std::string once = table("" + pictures);
  EXPECT_EQ(table(pictures), once);
  for (const char* text :
       {"4 ranks as 4x1, links of 12.5 GB/s, simulated from the profile 'h100'",
        "| 3072 x 3072 | one rank |", "| 4096 x 4096 | torus |", "torus over usp 1.35x on average",
        "Here, simulated, over usp, nothing hidden: tas, nothing hidden ",
        "one rank's simulated time over 4, so that", "USP over NCCL"}) {
    EXPECT_THAT(once, HasSubstr(text));
  }
  for (const char* machines : {"4x1", "2x2", "2x1"}) {
    const auto of = [&](const std::string& arguments) {
      return simulated(arguments + " --profile h100 --link-gbps 12.5 --figure 7 --blocks 1" +
                       " --machines " + machines);
    };
    const Json image = of("image" + flux()).at(0);
    const std::vector<Json> videos = of("video" + cogvideox() + " --heads 24,48");
    ASSERT_EQ(videos.size(), 2u);
    EXPECT_EQ(videos[0]["heads"], 24);
    for (const Json& table : {image, videos[0], videos[1]}) {
      ASSERT_EQ(table["sizes"].size(), 2u);
      for (const Json& size : table["sizes"]) {
        EXPECT_LE(ms_of(size, "torus"), ms_of(size, "usp")) << machines << size;
        EXPECT_LT(ms_of(size, "torus"), ms_of(size, "usp, nothing hidden")) << machines << size;
        EXPECT_GE(ms_of(size, "torus"), size["bound_ms"]) << machines << size;
      }
    }
  }
}

// Of eight A100 on each of four machines, as in the paper.
TEST_F(SimulatedStepsTest, ManyRanks) {
  const Json table =
      simulated("image" + flux() + " --profile a100 --machines 4x8 --figure 8 --size 3072" +
                " --blocks 1")
          .at(0);
  EXPECT_EQ(table["ranks"], 32);
  EXPECT_EQ(table["figure"]["here"].size(), 2u);
  EXPECT_GT(table["figure"]["here"][1]["mean"], 1.2);
  const std::string modes =
      this->table("image" + flux() + " --profile h200 --machines 4x8 --size 1024 --blocks 1");
  EXPECT_THAT(modes, HasSubstr("| 1024 x 1024 | ring | 1 x 1 x 32 |"));
  EXPECT_THAT(modes, HasSubstr("\nulysses: ulysses attention, torus 1 x ulysses 32 x ring 1"));
}

// `braid image --sp auto` takes the mode and the price of the table.
TEST_F(SimulatedStepsTest, PricesAreThoseOfAuto) {
  Json profile = Json::parse(std::ifstream(BRAID_SOURCE_DIR "/profiles/h100.json"));
  profile["name"] = "cpu-1", profile["activations"] = "f32", profile["shared_units"] = true;
  std::filesystem::create_directories(folder_ / "braid/profiles");
  std::ofstream(folder_ / "braid/profiles/cpu-1.json") << profile;
  std::string tiny = file("flux.json", R"({
      "scheduler": {"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 1.0},
      "transformer": {"in_channels": 16, "num_layers": 1, "num_single_layers": 2,
                      "num_attention_heads": 4, "attention_head_dim": 16,
                      "joint_attention_dim": 24, "pooled_projection_dim": 16,
                      "axes_dims_rope": [4, 4, 8]},
      "vae": {"latent_channels": 4, "block_out_channels": [8, 8, 8, 8], "norm_num_groups": 4}})");
  tiny = " --random-weights " + path("flux.json") + " --size ";
  const Outcome o =
      braid("image" + tiny + "64x64 --steps 1 --text-tokens 5 --device cpu -t 1" +
            " --ranks 2 --machines 2x1 --sp auto --text-rows split --json -o " + path("a.png"));
  ASSERT_EQ(o.status, 0) << o.err;
  std::vector<std::string> priced = Json::parse(o.out)["priced"];
  const Json size = simulated("image" + tiny + "64 --text-tokens 5 --profile cpu-1 --machines 2x1")
                        .at(0)["sizes"][0];
  for (const char* mode : {"ring", "ulysses"}) {
    const auto line = std::ranges::find_if(
        priced, [&](const std::string& text) { return text.starts_with(mode); });
    ASSERT_NE(line, priced.end()) << mode;
    EXPECT_THAT(*line, HasSubstr(fmt::format(": {:.3f} ms", ms_of(size, mode))));
  }
  double least = 1e9, of_table = 1e9;
  for (const std::string& line : priced) {
    least = std::min(least, std::stod(line.substr(line.rfind(": ") + 2)));
  }
  for (const Json& row : size["rows"]) of_table = std::min<double>(of_table, row["ms"]);
  EXPECT_EQ(fmt::format("{:.3f}", of_table), fmt::format("{:.3f}", least));
  std::filesystem::remove_all(folder_ / "braid");
}

// A batch costs less than its texts one after another, and at this size not much less.
TEST_F(SimulatedStepsTest, BatchesOfTexts) {
  const Json sizes =
      simulated("video" + cogvideox() + " --profile h200 --machines 2x1 --size " +
                "720x480 --frames 49 --blocks 1 --link-gbps 12.5 --figure 9 " + "--batch 1,2,4")
          .at(0)["sizes"];
  ASSERT_EQ(sizes.size(), 3u);
  for (const char* row : {"usp, nothing hidden", "torus"}) {
    for (const int i : {1, 2}) {
      const double more = ms_of(sizes[i], row) / ms_of(sizes[i - 1], row);
      EXPECT_GT(more, 1.8) << row;
      EXPECT_LT(more, 2) << row;
    }
  }
}

// Sequences of a batch cost as much as one after another.
TEST_F(SimulatedStepsTest, BatchesOfAttention) {
  const Json sizes = simulated("image" + flux() +
                               " --profile h200 --machines 2x1 --link-gbps 12.5 --figure 9 "
                               "--tokens 32768 --batch 1,2,4")
                         .at(0)["sizes"];
  ASSERT_EQ(sizes.size(), 6u);
  for (const char* row : {"usp, nothing hidden", "torus"}) {
    for (const size_t i : {1, 2, 4, 5}) {
      const double more = ms_of(sizes[i], row) / ms_of(sizes[i - 1], row);
      EXPECT_GT(more, 1.9) << row;
      EXPECT_LT(more, 2.05) << row;
    }
  }
}

// Two groups of ranks take a pass each; a group of all takes both.
TEST_F(SimulatedStepsTest, PassesOfGuidance) {
  const auto ms = [&](const std::string& more) {
    const Json size =
        simulated("video" + cogvideox() + " --profile h100 --blocks 1 --sp ring" + more)
            .at(0)["sizes"][0];
    return std::pair(ms_of(size, "ring"), size["one_rank_ms"].get<double>());
  };
  const auto [one, alone] = ms(" --ranks 4");
  EXPECT_DOUBLE_EQ(ms(" --ranks 4 --cfg-ranks 1").first, 2 * one);
  EXPECT_DOUBLE_EQ(ms(" --ranks 4 --cfg-ranks 1").second, 2 * alone);
  EXPECT_DOUBLE_EQ(ms(" --ranks 4 --cfg-ranks 2").first, ms(" --ranks 2").first);
  EXPECT_DOUBLE_EQ(ms(" --ranks 4 --cfg-ranks 2").second, 2 * alone);
}

TEST_F(SimulatedStepsTest, MistakesGetOneLine) {
  const std::string image = "bench image" + flux() + " --blocks 1 --size 1024 ";
  expect_refused(image + "--profile h100 --machines 4y8", 2, "machines '4y8'");
  expect_refused(image + "--profile h100 --machines 999x1", 2, "ranks is 999, wanted 1 to 256");
  expect_refused(image + "--profile h100", 2, "wanted --machines MACHINESxDEVICES or --ranks N");
  expect_refused(image + "--profile none --machines 2x1", 1, "no profile 'none'");
  expect_refused(image + "--profile h100 --machines 2x1 --device cpu", 2, "--device excludes");
  expect_refused(image + "--profile h100 --machines 2x1 --decode", 2, "excludes --decode");
  expect_refused(image + "--json", 2, "--json requires --profile");
  expect_refused(image + "--profile h100 --machines 4x8 --sp ulysses", 2,
                 "32 head groups, one for each torus and ulysses rank, and only 24 heads");
  expect_refused(image + "--profile h100 --machines 2x1 --schedule none", 2, "'none'");
  const std::string video = "bench video" + cogvideox() + " --blocks 1 ";
  expect_refused(video + "--profile h100 --machines 3x1 --cfg-ranks 2", 2, "no 2 equal groups");
  expect_refused(video + "--cfg-ranks 2", 2, "--cfg-ranks requires --profile");
}

// A CPU computes in f32: random weights have this type, with --dtype f32 and without, and reports
// say so.
TEST_F(BenchPicturesTest, RandomWeightsOfACpuAreF32) {
  const std::string commands[] = {"image" + flux_weights() + " --size 32 --text-tokens 5",
                                  "video" + cogvideox_weights() + " --size 32 --frames 9"};
  for (const std::string& command : commands) {
    SCOPED_TRACE(command);
    std::vector<std::string> latents;
    for (const char* type : {"", " --dtype f32"}) {
      const Outcome o = braid(command + type + " --steps 1 --seed 3 --json -o " + path("a.png") +
                              " --dump-latents " + path("latents"));
      ASSERT_EQ(o.status, 0) << o.err;
      const auto report = nlohmann::json::parse(o.out);
      EXPECT_EQ(report["dtype"], "f32");
      // The weights that diffusers' classes count.
      EXPECT_EQ(report["weight_bytes"]["transformer"], 4 * (command[0] == 'i' ? 398960 : 162128));
      latents.push_back(read(folder_ / "latents"));
    }
    EXPECT_EQ(latents[0], latents[1]);
  }
}

TEST_F(BenchPicturesTest, MistakesGetOneLine) {
  expect_refused("bench image" + flux() + " --ranks 2 --figure 11", 2, "wanted is 7, 8, 9, 10");
  expect_refused("bench image" + flux() + " --ranks 1 --warm-ups -1", 2, "--warm-ups is -1");
  expect_refused("bench image" + flux() + " --ranks 1 --size 40", 2, "a multiple of 16");
  expect_refused("bench image" + flux() + " --ranks 1 --figure 12 --tokens 6", 2, "multiple of 4");
  expect_refused("bench video" + cogvideox() + " --ranks 1 --size 40x32", 2, "multiples of 16");
  expect_refused("bench video" + cogvideox() + " --ranks 1 --frames 0", 2, "--frames is 0");
}

}  // namespace
}  // namespace braid::golden
