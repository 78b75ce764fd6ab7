// Ctrl-C at random moments of braid image and braid video: each file that is left is whole.
#include <random>

#include "braid/io/media/png.h"
#include "cli/program.h"

namespace braid::golden {
namespace {

class InterruptedPictures : public CliTest {
 protected:
  // Runs `arguments`, which end in the name of a folder, and presses Ctrl-C once after each delay.
  // Moments from loading on are met: a run without Ctrl-C takes some seconds.
  static void press(const std::string& arguments, const std::string& last) {
    const auto seed = std::random_device{}();
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    int ended = 0;
    for (int i = 0; i < 8; ++i) {
      const std::filesystem::path out = folder_ / fmt::format("pressed{}", i);
      std::filesystem::create_directories(out);
      const double delay = std::uniform_real_distribution(0.05, 1.5)(random);
      const std::string command = fmt::format(
          "timeout --preserve-status -s INT -k 60 {:.3f} {}/braid {} --preview-every 1 "
          "--dump-latents {} -o {} > /dev/null 2>&1 < /dev/null",
          delay, BRAID_BIN_DIR, arguments, (out / "latents").string(), (out / last).string());
      const int status = std::system(command.c_str());
      ASSERT_TRUE(WIFEXITED(status)) << command;
      // 130 by the program itself, or by the shell where it had not begun to look.
      EXPECT_EQ(WEXITSTATUS(status), 130) << "after " << delay << " s";
      ended += std::filesystem::is_empty(out) ? 0 : 1;
      for (const auto& file : std::filesystem::directory_iterator(out)) {
        const std::string name = file.path().filename();
        EXPECT_NE(name, "latents");
        EXPECT_NE(name, last);
        EXPECT_TRUE(name.ends_with(".png")) << name;
        EXPECT_GT(decode_png(read(file.path()), name).image.pixels.size(), 0u);
      }
      std::filesystem::remove_all(out);
    }
    EXPECT_GT(ended, 0) << "no run had previews";
  }
};

TEST_F(InterruptedPictures, Image) {
  press("image -m " BRAID_TINY_PIPELINES "/guided -p cat --size 64x64 --steps 3000", "a.png");
}

TEST_F(InterruptedPictures, Video) {
  press("video -m " BRAID_TINY_PIPELINES "/video -p cat --size 32x24 --frames 9 --steps 900",
        "a.y4m");
}

}  // namespace
}  // namespace braid::golden
