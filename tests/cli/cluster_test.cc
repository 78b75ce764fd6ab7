// Jobs and what their plans follow from.
#include <array>
#include <sstream>

#include "cli/job_program.h"

namespace braid::golden {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class ClusterCliTest : public JobCliTest {
 protected:
  // Lines "plan HASH: ..." of a text, without repetition, in order.
  static std::vector<std::string> plans_in(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      if (line.starts_with("plan ")) lines.push_back(line);
    }
    return lines;
  }

  // The hash line that `braid plan --cluster` prints for `step`.
  static std::string planned(const std::string& step) {
    const Outcome o =
        braid(fmt::format("plan --cluster {} -m {} {}", path("c.json"), gguf(), step));
    EXPECT_EQ(o.status, 0) << o.err;
    const std::vector<std::string> lines = plans_in(o.out);
    EXPECT_EQ(lines.size(), 1) << o.out;
    return lines.empty() ? "" : lines[0];
  }
};

TEST_F(ClusterCliTest, ADescriptionPlansAsItsJob) {
  struct Case {
    int processes;
    const char* sharing;
  };
  for (const Case& c : {Case{2, "--tp 2"}, Case{4, "--tp 4 --schedule overlap"},
                        Case{2, "--tp 4 --machines 2x2 --schedule nanoflow"},
                        Case{2, "--sp ring --ranks 2"}, Case{4, "--sp torus --machines 2x2"}}) {
    SCOPED_TRACE(c.sharing);
    // A prompt of five tokens, then steps of one.
    const auto outcomes =
        job(c.processes,
            {fmt::format("run -m {} --prompt-ids 3,4,5,6,7 -n 4 --ignore-eos --threads 1 --explain "
                         "--describe {} {}",
                         gguf(), path("c.json"), c.sharing)});
    ASSERT_EQ(outcomes[0].status, 0) << outcomes[0].err;
    const std::vector<std::string> plans = plans_in(outcomes[0].err);
    ASSERT_EQ(plans.size(), 2) << outcomes[0].err;
    EXPECT_EQ(planned("--tokens 5"), plans[0]);
    EXPECT_EQ(planned("--tokens 0 --decodes 1 --depth 5"), plans[1]);
    EXPECT_NE(planned("--tokens 40"), plans[0]);
  }
}

TEST_F(ClusterCliTest, ADescriptionThatDoesNotFitIsRefused) {
  const auto outcomes = job(2, {fmt::format("run -m {} --prompt-ids 3,4 -n 1 --threads 1 --tp 2 "
                                            "--describe {}",
                                            gguf(), path("c.json"))});
  ASSERT_EQ(outcomes[0].status, 0) << outcomes[0].err;
  json c = json::parse(read(path("c.json")));
  const auto refused = [&](const char* field, const json& value, int status, const char* text) {
    json changed = c;
    (changed.contains(field) ? changed[field] : changed["ranks"][0][field]) = value;
    std::ofstream(path("d.json")) << changed;
    expect_refused(fmt::format("plan --cluster {} -m {}", path("d.json"), gguf()), status, text);
  };
  refused("model", "9 bytes", 2, "models differ: the description has '9 bytes'");
  refused("kernels", "avx1024", 1, "the CPUs of the description have 'avx1024', this machine has");
  refused("schedule", "none such", 2, "'none such' is not known");
  refused("format", 7, 1, "'format' is 7");
  expect_refused(fmt::format("plan --cluster {} -m {} --tokens 100000", path("c.json"), gguf()), 2,
                 "do not fit the cache of the description");
  expect_refused("plan --cluster " + path("c.json"), 2, "--cluster plans for the model of -m");
  expect_refused("plan --cluster " + path("none.json") + " -m " + gguf(), 1, "none.json");
  expect_refused(fmt::format("plan --cluster {} -m {} --tp 2", path("c.json"), gguf()), 2, "--tp");
}

// One rank computes a small model's prompt fastest, if the memory has room for one rank's
// activations.
TEST_F(ClusterCliTest, RoomForActivationsBoundsTheChoice) {
  const auto ranks = [](const json& sequence) {
    const json c = {{"format", 1},
                    {"ranks", {{{"host", "a"}, {"count", 2}, {"device", "NVIDIA H200"}}}},
                    {"cache", {{"pages", 8}, {"pages_per_sequence", 8}}},
                    {"sequence", sequence},
                    {"schedule", "sequence_parallel"},
                    {"profile", "h200"}};
    std::ofstream(path("c.json")) << c;
    return planned("--tokens 40");
  };
  EXPECT_THAT(ranks({{"mode", "auto"}}), HasSubstr(": 1 ranks, "));
  EXPECT_THAT(ranks({{"mode", "auto"}, {"step_bytes", 1}}), HasSubstr(": 2 ranks, "));
  EXPECT_THAT(ranks({{"mode", "auto"}, {"step_bytes", 1 << 30}}), HasSubstr(": 1 ranks, "));
}

TEST_F(ClusterCliTest, OtherBuildsAndStrategyLibrariesAreRefused) {
  // The same program but for a byte of the linker's mark, as another build has.
  std::string program = read(BRAID_BIN_DIR "/braid");
  const std::string note("\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0", 16);
  const size_t at = program.find(note);
  if (at == std::string::npos) GTEST_SKIP() << "the linker left no mark in the program";
  program[at + note.size()] ^= 1;
  std::ofstream(path("other"), std::ios::binary) << program;
  std::filesystem::permissions(path("other"), std::filesystem::perms::owner_all);
  const auto builds = job(2, {answer("--tp 2")}, {.process = 1, .program = path("other")});
  EXPECT_THAT(builds[0].err, HasSubstr("builds differ: rank 0 on "));
  for (int r = 0; r < 2; ++r) EXPECT_EQ(builds[static_cast<size_t>(r)].status, 2);

  // The same name at both, other contents.
  namespace fs = std::filesystem;
  const std::string library = std::string(BRAID_STRATEGIES) + "/ends_its_process.so";
  for (const char* folder : {"a", "b"}) {
    fs::create_directories(path(folder));
    fs::copy(library, path(folder) + "/s.so", fs::copy_options::overwrite_existing);
  }
  std::ofstream(path("b") + "/s.so", std::ios::app) << "more";
  fs::copy(path("a") + "/s.so", path("s.so"), fs::copy_options::overwrite_existing);
  const auto libraries =
      job(2, {answer("--tp 2 --schedule ./s.so")}, {.process = 1, .words = "-C " + path("b")});
  EXPECT_THAT(libraries[0].err, HasSubstr("strategy libraries differ: rank 0 on "));
  for (int r = 0; r < 2; ++r) EXPECT_EQ(libraries[static_cast<size_t>(r)].status, 2);
}

// `auto` prices by process 0's profile, whatever profile another process' host has.
TEST_F(ClusterCliTest, TheProfileIsProcess0s) {
  json profile = json::parse(std::ifstream(BRAID_SOURCE_DIR "/profiles/h200.json"));
  for (const char* home : {"home0", "home1"}) {
    std::filesystem::create_directories(path(home) + "/braid/profiles");
    profile["name"] = home;
    std::ofstream(path(home) + "/braid/profiles/cpu-1.json") << profile;
    profile["launch_seconds"] = 0.5;
  }
  setenv("XDG_CACHE_HOME", path("home0").c_str(), 1);
  const std::string command = fmt::format(
      "run -m {} --prompt-ids 3,4,5 -n 2 --threads 1 --tp 2 --schedule auto --explain --describe "
      "{}",
      gguf(), path("c.json"));
  const auto outcomes =
      job(2, {command}, {.process = 1, .words = "XDG_CACHE_HOME=" + path("home1")});
  unsetenv("XDG_CACHE_HOME");
  ASSERT_EQ(outcomes[0].status, 0) << outcomes[0].err;
  EXPECT_EQ(json::parse(read(path("c.json")))["profile"]["name"], "home0");
  EXPECT_EQ(planned("--tokens 3"), plans_in(outcomes[0].err).at(0));
}

// docs/log/streamfusion.md's prediction, from a file with the cluster in it.
TEST_F(ClusterCliTest, ThePredictionForFourMachinesFollowsFromTheirDescription) {
  const std::string page = read(BRAID_SOURCE_DIR "/docs/log/streamfusion.md");
  for (const char* shape : {"flux-3072", "cogvideox-20s"}) {
    const Outcome o = braid(fmt::format(
        "bench attention --shape {} --sp usp,tas,torus --cluster {}/configs/clusters/4x8-a100.json",
        shape, BRAID_SOURCE_DIR));
    ASSERT_EQ(o.status, 0) << o.err;
    const Outcome same = braid(fmt::format(
        "bench attention --shape {} --sp usp,tas,torus --machines 4x8 --profile a100", shape));
    EXPECT_EQ(o.out, same.out);
    // "| flux-3072 | 7.66 (4.96) | 6.18 (3.48) | 4.02 (1.29) | ..."
    const size_t row = page.find(fmt::format("\n| {} | ", shape));
    ASSERT_NE(row, std::string::npos);
    std::istringstream cells(page.substr(row + 1, page.find('\n', row + 1) - row));
    std::string cell;
    for (int i = 0; std::getline(cells, cell, '|'); ++i) {
      if (i < 2 || i > 4) continue;
      constexpr std::array<const char*, 3> kModes = {"usp", "tas", "torus"};
      // "| usp | 1 x 8 x 4 | 7.664 | ..."
      const size_t line =
          o.out.find(fmt::format("\n| {} | ", kModes.at(static_cast<size_t>(i - 2))));
      ASSERT_NE(line, std::string::npos) << o.out;
      const size_t ms = o.out.find(" | ", line + 10) + 3;
      EXPECT_NEAR(std::stod(o.out.substr(ms)), std::stod(cell), 0.0056) << shape << cell;
    }
  }
}

// A lane for each rank, and all on one clock.
TEST_F(ClusterCliTest, ATraceHasAllRanksOnOneClock) {
  // Process 1's clock is far ahead where the kernel lets it be.
  const bool spaces = std::system("unshare -T --monotonic 5000 true 2> /dev/null") == 0;
  const std::string program =
      spaces ? "unshare -T --monotonic 5000 " BRAID_BIN_DIR "/braid" : BRAID_BIN_DIR "/braid";
  const auto outcomes =
      job(3,
          {fmt::format("run -m {} --prompt-ids 3,4,5,6,7,8 -n 5 --ignore-eos --threads 1 "
                       "--sp ring --ranks 3 --trace {}",
                       gguf(), path("trace.json"))},
          {.process = 1, .program = program});
  ASSERT_EQ(outcomes[0].status, 0) << outcomes[0].err;
  const json trace = json::parse(read(path("trace.json")));
  std::array<std::vector<std::pair<double, double>>, 3> slices;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double begin = event["ts"];
    slices.at(event["pid"].get<size_t>()).emplace_back(begin, begin + event["dur"].get<double>());
  }
  double first_end = 1e18, last_begin = 0, last_end = 0;
  for (const auto& rank : slices) {
    ASSERT_GT(rank.size(), 50);
    last_begin = std::max(last_begin, rank.front().first);
    first_end = std::min(first_end, rank.back().second);
    last_end = std::max(last_end, rank.back().second);
  }
  // Every rank waits for every other in each layer: all of them run in the same stretch of time.
  EXPECT_LT(last_begin, first_end);
  EXPECT_LT(last_end, 100e6) << "a clock ahead by 5000 s is not brought back";
}

}  // namespace
}  // namespace braid::golden
