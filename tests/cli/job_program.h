#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "cli/program.h"
#include "processes.h"

namespace braid::golden {

// A process unlike the others.
struct SpecialProcess {
  int process = -1;
  std::string words;   // further ones of env: variables, -C FOLDER
  double life = 50;    // seconds until it is killed
  bool hangs = false;  // it is killed once the others have ended
  int signal = 0;      // that it gets once process 0 has written something
  std::string program = BRAID_BIN_DIR "/braid";
};

// The program as several processes, started as torchrun starts them.
class JobCliTest : public CliTest {
 protected:
  void SetUp() override {
    if (!job::has_jobs()) GTEST_SKIP() << "this build has no UCX";
  }

  // Process r runs the program with arguments[r], or all with arguments[0]. They start in folder_.
  static std::vector<Outcome> job(int processes, const std::vector<std::string>& arguments,
                                  const SpecialProcess& special = {}) {
    const int port = job::free_port();
    std::string script = "cd " + folder_.string() + "; ", wait_for_others = "wait";
    const auto file = [](const char* kind, int r) { return path(fmt::format("{}.{}", kind, r)); };
    for (int r = 0; r < processes; ++r) {
      std::filesystem::remove(file("out", r));  // of an earlier job
      const SpecialProcess it = r == special.process ? special : SpecialProcess{};
      script += fmt::format(
          "(env {} RANK={} WORLD_SIZE={} MASTER_ADDR=127.0.0.1 MASTER_PORT={} timeout -s KILL {} "
          "{} {} > {} 2> {} < /dev/null & echo $! > {}; wait $!; echo $? > {}) & pid{}=$!; ",
          it.words, r, processes, port, it.life, it.program,
          arguments[arguments.size() == 1 ? 0 : static_cast<size_t>(r)], file("out", r),
          file("err", r), file("pid", r), file("status", r), r);
      if (!it.hangs) wait_for_others += fmt::format(" $pid{}", r);
    }
    if (special.signal > 0) {
      script += fmt::format(
          "until [ -s {} ] || ! kill -0 $pid0 2> /dev/null; do sleep 0.01; done; "
          "kill -s {} -- -$(cat {}); ",
          file("out", 0), special.signal, file("pid", special.process));
    }
    script += wait_for_others + "; ";
    // timeout leads a process group.
    if (special.hangs) {
      script +=
          fmt::format("kill -s KILL -- -$(cat {}) 2> /dev/null; ", file("pid", special.process));
    }
    EXPECT_EQ(std::system(("sh -c '" + script + "wait'").c_str()), 0);
    std::vector<Outcome> outcomes;
    for (int r = 0; r < processes; ++r) {
      const std::string status = read(file("status", r));
      outcomes.push_back(
          {status.empty() ? -1 : std::stoi(status), read(file("out", r)), read(file("err", r))});
    }
    return outcomes;
  }

  static std::string answer(const std::string& more) {
    return "run -m " + gguf() +
           " -p \"3 and 9, 4\" -n 12 --json --ignore-eos --logprobs 3 --threads 1 " + more;
  }

  // Status, and one line by rank 0 alone.
  static void expect_job_refused(int processes, const std::vector<std::string>& arguments,
                                 const std::string& text) {
    const std::vector<Outcome> outcomes = job(processes, arguments);
    for (size_t r = 0; r < outcomes.size(); ++r) {
      EXPECT_EQ(outcomes[r].status, 2) << outcomes[r].err;
      EXPECT_EQ(outcomes[r].out, "");
      EXPECT_EQ(std::ranges::count(outcomes[r].err, '\n'), r == 0 ? 1 : 0) << outcomes[r].err;
    }
    EXPECT_THAT(outcomes[0].err, testing::HasSubstr(text));
  }
};

}  // namespace braid::golden
