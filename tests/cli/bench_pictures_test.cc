// braid bench image and braid bench video from the command line.
#include <fstream>

#include "cli/program.h"

namespace braid::golden {
namespace {

using testing::HasSubstr;
using testing::Not;

class BenchPicturesTest : public CliTest {
 protected:
  // Without a profile of this machine.
  BenchPicturesTest() { setenv("XDG_CACHE_HOME", folder_.c_str(), 1); }
  ~BenchPicturesTest() override { unsetenv("XDG_CACHE_HOME"); }

  std::string file(const char* name, const char* text) {
    std::ofstream(path(name)) << text;
    return " --device cpu -t 1 -r 1 --random-weights " + path(name);
  }
  std::string flux() {
    return file("flux.json", R"({
      "scheduler": {"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 1.0},
      "transformer": {"in_channels": 16, "num_layers": 2, "num_single_layers": 1,
                      "num_attention_heads": 4, "attention_head_dim": 16,
                      "joint_attention_dim": 24, "pooled_projection_dim": 16,
                      "axes_dims_rope": [4, 4, 8]},
      "vae": {"latent_channels": 4, "block_out_channels": [8, 8], "norm_num_groups": 4}})");
  }
  std::string cogvideox() {
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
  const std::string pieces = table("video" + cogvideox() + " --ranks 1 --figure 12 --tokens 64");
  EXPECT_THAT(pieces, HasSubstr("| 64 tokens, D 64, 4 pieces | one rank |"));
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
