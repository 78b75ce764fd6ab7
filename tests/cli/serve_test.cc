// `braid serve` as a process: settings, and how it ends.
#include "cli/program.h"

namespace braid::golden {
namespace {

using testing::HasSubstr;

class ServeTest : public CliTest {
 protected:
  static void refused(const std::string& settings, int status, const std::string& text) {
    std::ofstream(path("settings.toml")) << settings;
    expect_refused("serve -m " + hf() + " --settings " + path("settings.toml"), status, text);
  }
};

TEST_F(ServeTest, SettingsThatAreWrongAreNamedWithTheirLine) {
  refused("# x\nmax-runing = 3\n", 2, "settings.toml:2: max-runing is no option of serve");
  refused("max-running = \"x\"", 2, "settings.toml:1: max-running: --max-running: 'x' is not");
  refused("max-running = 0", 2, "--max-running is 0, wanted 1 to 4096");
  refused("no-prefix-cache = 3", 2, "wanted true or false");
  refused("port = true", 2, "port is no value that the option takes");
  refused("port = [1, 2]", 2, "settings.toml:1: port: ");
  refused("[serve]\nport = 3", 2, "serve is no option of serve");
  refused("settings = \"x\"", 2, "settings is no option of serve");
  refused("port = [", 1, "settings.toml:1: ");
  expect_refused("serve -m " + hf() + " --settings " + path("absent.toml"), 1, "cannot open");
}

// The command line comes before the file, which comes before the defaults; SIGTERM ends the server
// with status 0.
TEST_F(ServeTest, TakesItsSettingsAndEndsOnASignal) {
  // Without --foreground, timeout sends SIGTERM twice, and the second one stops the server at once.
  std::ofstream(path("settings.toml")) << "port = 0\nmax_running = 3\nmax-waiting = 7\n"
                                          "max-model-len = \"auto\"\n"
                                          "no-prefix-cache = true\nlog = \"none\"\n";
  const std::string script = fmt::format(
      "cd {0}; timeout --foreground 60 {1}/braid serve -m {2} --settings settings.toml "
      "--max-running 5 "
      "--threads 1 2> err & for i in $(seq 600); do grep -q ready err && break; sleep 0.1; done; "
      "kill -TERM $!; wait $!",
      folder_.string(), BRAID_BIN_DIR, hf());
  const int status = std::system(fmt::format("bash -c '{}'", script).c_str());
  EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
  const std::string err = read(path("err"));
  EXPECT_THAT(err, HasSubstr("max-running = 5, "));
  EXPECT_THAT(err, HasSubstr("max-waiting = 7, "));
  EXPECT_THAT(err, HasSubstr("max-model-len = 0, "));
  EXPECT_THAT(err, HasSubstr("no-prefix-cache = true"));
  EXPECT_THAT(err, HasSubstr("drain-timeout = 30, ")) << "defaults are printed, too";
  EXPECT_THAT(err, HasSubstr("no prefix cache"));
  EXPECT_THAT(err, HasSubstr("braid: ready\n"));
}

}  // namespace
}  // namespace braid::golden
