// The program as a job.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>

#include "cli/job_program.h"

namespace braid::golden {
namespace {

using nlohmann::json;
using testing::AnyOf;
using testing::ContainsRegex;
using testing::HasSubstr;

TEST_F(JobCliTest, AnswersAreThoseOfOneProcess) {
  for (const auto& [processes, sharing] :
       {std::pair(2, "--tp 2"), std::pair(4, "--tp 4 --schedule overlap"),
        std::pair(2, "--tp 4 --machines 2x2"), std::pair(3, "--sp ring --ranks 3"),
        std::pair(8, "--sp ring --ranks 8"), std::pair(2, "--sp ring --ranks 4 --keep 0.5"),
        std::pair(2, "--tp 2 --keep 0.5 --levels 2")}) {
    SCOPED_TRACE(sharing);
    const Outcome one = braid(fmt::format(
        "run -m {} -p '3 and 9, 4' -n 12 --json --ignore-eos --logprobs 3 --threads 1 {}", gguf(),
        sharing));
    ASSERT_EQ(one.status, 0) << one.err;
    const std::vector<Outcome> several = job(processes, {answer(sharing)});
    for (size_t r = 0; r < several.size(); ++r) {
      ASSERT_EQ(several[r].status, 0) << several[r].err;
      EXPECT_EQ(r > 0 ? several[r].out + several[r].err : "", "");
    }
    json want = json::parse(one.out), got = json::parse(several[0].out);
    for (const char* key : {"output_ids", "text", "logprobs"}) EXPECT_EQ(got[key], want[key]);
  }
}

TEST_F(JobCliTest, LogsOfAllRanksAndPerplexityAndBench) {
  std::ofstream(path("text.txt")) << std::string(400, 'a') + " and some more";
  const std::string score = fmt::format("perplexity -m {} -f {} --ctx 48 --tp 2 --threads 1 --json",
                                        hf(), path("text.txt"));
  const Outcome one = braid(score);
  std::vector<Outcome> two = job(2, {score + " --log-dir " + path("logs")});
  ASSERT_EQ(two[0].status, 0) << two[0].err;
  EXPECT_EQ(two[0].out, one.out);
  for (int r = 0; r < 2; ++r) {
    EXPECT_THAT(read(path(fmt::format("logs/rank-{}.log", r))),
                HasSubstr(fmt::format("rank {} of 2 on {}, pid ", r, job::host_name())));
  }
  two = job(2, {fmt::format("bench -m {} -p 16 -n 4 -r 1 --tp 2 --threads 1 --json", gguf())});
  EXPECT_EQ(two[0].status, 0) << two[0].err;
  EXPECT_TRUE(json::accept(two[0].out)) << two[0].out;
}

// Processes move the bytes that threads move, and process 0 has the times of all ranks.
TEST_F(JobCliTest, BenchAttentionRunsAsAJob) {
  const auto bytes_of = [](const std::string& table) {
    std::vector<std::string> cells;  // mode, degrees, bytes in and between machines
    std::istringstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("| ")) continue;
      std::istringstream row(line);
      std::string cell;
      for (int i = 0; std::getline(row, cell, '|'); ++i) {
        if (i == 1 || i == 2 || i == 6 || i == 7) cells.push_back(cell);
      }
    }
    return cells;
  };
  const std::string shape =
      "bench attention --tokens 90 --text 5 --heads 8 --kv-heads 2 --head-dim 16 --batch 2 -r 1 ";
  for (const auto& [processes, machines] : {std::pair{4, "1x4"}, {2, "2x2"}}) {
    const std::string command = fmt::format("{} --machines {}", shape, machines);
    const Outcome one = braid(command);
    const std::vector<Outcome> several =
        job(processes, {command + " --plot " + path("attention.svg")});
    ASSERT_EQ(several[0].status, 0) << several[0].err;
    EXPECT_THAT(several[0].out, HasSubstr(fmt::format("ranks of {} processes", processes)));
    EXPECT_EQ(bytes_of(several[0].out), bytes_of(one.out)) << several[0].out << one.out;
    EXPECT_THAT(read(path("attention.svg")), HasSubstr("rank 3 side"));
    for (const Outcome& o : several) EXPECT_EQ(o.status, 0) << o.err;
    EXPECT_EQ(several[1].out, "");
  }
  EXPECT_THAT(job(2, {shape})[0].out, HasSubstr("on 1x2 ranks of 2 processes"));
  expect_job_refused(2, {shape + "--machines 1x3"}, "3 ranks in a job of 2 processes");
  expect_job_refused(2, {shape + "--machines 2x1 --link-gbps 1"},
                     "links between the 2 processes of a job are real");
}

TEST_F(JobCliTest, WrongUsageIsSaidOnce) {
  expect_job_refused(2, {answer("--tp 3")}, "3 ranks in a job of 2 processes: --tp 2");
  expect_job_refused(2, {answer("")}, "1 rank in a job of 2 processes: --tp 2");
  expect_job_refused(2, {answer("--tp 2"), answer("--tp 2 --schedule overlap")},
                     "command lines differ: rank 0 on");
  expect_job_refused(2, {answer("--tp 2 --machines 2x1 --link-gbps 1")},
                     "links between the 2 processes of a job are real");
  expect_job_refused(2, {"run --no-such-option"}, "--no-such-option");
  expect_job_refused(2, {"serve -m " + gguf()}, "serve runs in one process so far");
  const std::string pipelines = "-m " BRAID_TINY_PIPELINES;
  expect_job_refused(2, {"image -p x " + pipelines + "/guided"},
                     "image runs in one process so far");
  expect_job_refused(2, {"video -p x --sp ring --ranks 2 " + pipelines + "/video"},
                     "video runs in one process so far");
  const std::string shape = " --random-weights " BRAID_SOURCE_DIR "/configs/";
  expect_job_refused(2, {"bench image" + shape + "flux-1-dev.json"},
                     "bench image runs in one process so far");
  expect_job_refused(2, {"bench video" + shape + "cogvideox-2b.json"},
                     "bench video runs in one process so far");
}

TEST_F(JobCliTest, HostsThatCannotCarryBytesAreNamed) {
  std::vector<Outcome> outcomes =
      job(2, {"ranks --job-timeout 2"}, {.process = 1, .words = "UCX_NET_DEVICES=nosuch0"});
  EXPECT_EQ(outcomes[1].status, 1);
  EXPECT_THAT(outcomes[1].err, HasSubstr("UCX_NET_DEVICES names 'nosuch0': this host has "));
  EXPECT_THAT(outcomes[0].err, HasSubstr("these did not come: 1"));
  const std::string small = path("small.sh");
  std::ofstream(small) << "mount -t tmpfs -o size=1M tmpfs /dev/shm && exec " BRAID_BIN_DIR
                          "/braid \"$@\"\n";
  if (std::system("unshare -m true 2> /dev/null") != 0) GTEST_SKIP() << "mounts need root";
  outcomes = job(2, {"ranks --job-timeout 2"}, {.process = 1, .program = "unshare -m sh " + small});
  EXPECT_EQ(outcomes[1].status, 1);
  EXPECT_THAT(outcomes[1].err, HasSubstr("(/dev/shm has 1.0 MB free: docker run --shm-size"));
  EXPECT_THAT(outcomes[0].err, HasSubstr("these did not come: 1"));
}

TEST_F(JobCliTest, AModelThatIsMissingAtOneRankIsNamed) {
  // The second process starts in another folder.
  const std::vector<Outcome> outcomes =
      job(2, {"run -m model.gguf -p x -n 2 --tp 2 --threads 1"}, {.process = 1, .words = "-C /"});
  for (int r = 0; r < 2; ++r) {
    const Outcome& o = outcomes[static_cast<size_t>(r)];
    EXPECT_EQ(o.status, 1) << o.err;
    EXPECT_EQ(std::ranges::count(o.err, '\n'), 1) << o.err;
    EXPECT_THAT(o.err, HasSubstr(fmt::format("rank 1 on {}", job::host_name())));
    EXPECT_THAT(o.err, HasSubstr("model.gguf"));
  }
}

// Times that a soak repeats a death.
int soak(int otherwise) {
  const char* const times = std::getenv("BRAID_JOB_DEATHS");
  return times ? std::atoi(times) : otherwise;
}

TEST_F(JobCliTest, AFullDiskAtOneRankIsNamed) {
  for (int i = 0; i < soak(2); ++i) {
    const int victim = i % 2;
    std::filesystem::create_directories(path("full"));
    std::filesystem::remove(path("full/rank-1.log"));
    std::filesystem::remove(path("full/rank-0.log"));
    std::filesystem::create_symlink("/dev/full", path(fmt::format("full/rank-{}.log", victim)));
    const std::vector<Outcome> outcomes = job(2, {answer("--tp 2 --log-dir " + path("full"))});
    for (const Outcome& o : outcomes) {
      EXPECT_EQ(o.status, 1) << o.err;
      EXPECT_THAT(o.err, HasSubstr(fmt::format("rank {} on {}", victim, job::host_name())));
      EXPECT_THAT(o.err, HasSubstr("No space left on device"));
      EXPECT_EQ(std::ranges::count(o.err, '\n'), 1) << o.err;
    }
  }
}

// What process 0 writes in steps, and at the end.
TEST_F(JobCliTest, AFullDiskOfProcess0IsNamed) {
  std::ofstream(path("full.sh")) << "exec " BRAID_BIN_DIR "/braid \"$@\" > /dev/full\n";
  std::filesystem::remove(path("no_room"));
  std::filesystem::create_symlink("/dev/full", path("no_room"));
  for (int i = 0; i < soak(1); ++i) {
    for (const char* option : {"", "--trace", "--describe", "--plot"}) {
      SCOPED_TRACE(option);
      SpecialProcess special;
      std::string more = "--tp 2";
      if (*option != 0) {
        more += fmt::format(" {} {}", option, path("no_room"));
      } else {
        special = {.process = 0, .program = "sh " + path("full.sh")};
      }
      const std::vector<Outcome> outcomes = job(2, {answer(more)}, special);
      for (const Outcome& o : outcomes) {
        EXPECT_EQ(o.status, 1) << o.err;
        EXPECT_THAT(o.err, HasSubstr("rank 0 on " + job::host_name()));
        EXPECT_THAT(o.err, HasSubstr("No space left on device"));
      }
    }
  }
}

// A process ends in the middle of the work, each time by another way.
TEST_F(JobCliTest, ADeathEndsAllAndIsNamed) {
  const std::string strategy = std::string(BRAID_STRATEGIES) + "/ends_its_process.so";
  struct Way {
    std::string variables;
    const char* why;
  };
  for (const Way& way : {Way{"BRAID_TEST_ENDS=1", "the process ended"},
                         Way{"BRAID_TEST_ENDS=3 BRAID_TEST_SIGNAL=9", "the process ended"},
                         Way{"BRAID_TEST_ENDS=3 BRAID_TEST_SIGNAL=19", "no sign of life for 1.5 s"},
                         Way{"BRAID_TEST_ENDS=3 BRAID_TEST_SIGNAL=15", "SIGTERM"}}) {
    for (int victim : {0, 1}) {
      SCOPED_TRACE(fmt::format("{} at rank {}", way.variables, victim));
      const std::vector<Outcome> outcomes =
          job(3, {answer("--tp 3 --job-timeout 1.5 --schedule " + strategy)},
              {.process = victim, .words = way.variables, .hangs = true});
      for (int r = 0; r < 3; ++r) {
        if (r == victim) continue;
        const Outcome& o = outcomes[static_cast<size_t>(r)];
        EXPECT_EQ(o.status, 1) << o.err;
        EXPECT_EQ(o.err.find("braid: rank"), o.err.rfind("braid: rank")) << o.err;  // once
        EXPECT_THAT(o.err,
                    HasSubstr(fmt::format("braid: rank {} on {}: ended in ", r, job::host_name())));
        EXPECT_THAT(o.err, HasSubstr(fmt::format("since rank {} on {} failed in ", victim,
                                                 job::host_name())));
        EXPECT_THAT(o.err, HasSubstr(way.why));
      }
    }
  }
}

// A process that holds a part of the keys ends, or stops, while tokens are made.
TEST_F(JobCliTest, ALostHolderOfKeysEndsTheAnswerAndIsNamed) {
  struct Way {
    int signal;
    int victim;
    const char* why;
  };
  for (const Way& way :
       {Way{SIGKILL, 2, "the process ended"}, Way{SIGSTOP, 1, "no sign of life for 1.5 s"},
        Way{SIGTERM, 1, "SIGTERM"}}) {
    SCOPED_TRACE(way.why);
    const std::vector<Outcome> outcomes =
        job(3,
            {"run -m " + gguf() +
             " -p \"3 and 9, 4\" -n 490 --ignore-eos --threads 1 --sp ring --ranks 3 "
             "--job-timeout 1.5"},
            {.process = way.victim, .hangs = true, .signal = way.signal});
    for (int r = 0; r < 3; ++r) {
      if (r == way.victim) continue;
      const Outcome& o = outcomes[static_cast<size_t>(r)];
      EXPECT_EQ(o.status, 1) << o.err;
      EXPECT_EQ(o.err.find("braid: rank"), o.err.rfind("braid: rank")) << o.err;  // once
      // Others know the phase that a rank has told last.
      EXPECT_THAT(o.err, ContainsRegex(
                             fmt::format("braid: rank {} on {}: ended in (a|the first) step, since "
                                         "rank {} on {} failed in (a|the first) step: ",
                                         r, job::host_name(), way.victim, job::host_name())));
      EXPECT_THAT(o.err, HasSubstr(way.why));
    }
    EXPECT_NE(outcomes[0].out, "") << "text that was there remains";
  }
}

// From the first moment to the last, in whatever phase that is.
TEST_F(JobCliTest, AKillAtAnyTimeEndsAll) {
  const std::vector<std::string> command = {answer("--tp 3 --job-timeout 4")};
  const auto start = std::chrono::steady_clock::now();
  ASSERT_EQ(job(3, command)[0].status, 0);
  const double whole =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  std::mt19937_64 rng(seed);
  const int kills = 6 * soak(2);  // of six phases
  for (int i = 0; i < kills; ++i) {
    const int victim = i % 3;
    const double life = whole * std::uniform_real_distribution<>(0.02, 1)(rng);
    SCOPED_TRACE(
        fmt::format("seed {}: rank {} after {:.3f} of {:.3f} s", seed, victim, life, whole));
    const std::vector<Outcome> outcomes = job(3, command, {.process = victim, .life = life});
    for (int r = 0; r < 3; ++r) {
      const Outcome& o = outcomes[static_cast<size_t>(r)];
      if (r == victim || o.status == 0) continue;  // 0: all was said when the victim ended
      EXPECT_EQ(o.status, 1) << o.err;
      EXPECT_THAT(o.err,
                  AnyOf(HasSubstr(fmt::format("since rank {} on ", victim)),
                        HasSubstr(fmt::format("did not come: {}", victim)), HasSubstr("process 0"),
                        HasSubstr(fmt::format("rank {} failed: the process ended", victim)),
                        HasSubstr(fmt::format("no connection to process {}", victim))));
    }
  }
}

TEST_F(JobCliTest, RanksShowsEachProcessAndPair) {
  const std::vector<Outcome> outcomes = job(3, {"ranks"});
  ASSERT_EQ(outcomes[0].status, 0) << outcomes[0].err;
  for (const char* text : {"rank  host", "  0   1", "  0   2", "  1   2"}) {
    EXPECT_THAT(outcomes[0].out, HasSubstr(text));
  }
  expect_refused("ranks", 2, "one process, which has nobody to talk to");
}

TEST_F(JobCliTest, WithoutAJobNothingChanges) {
  expect_refused("run -m " + gguf() + " -p x --job env", 2, "--job env: RANK and WORLD_SIZE");
  expect_refused("run -m " + gguf() + " -p x --job-timeout 0", 2, "--job-timeout is 0");
}

}  // namespace
}  // namespace braid::golden
