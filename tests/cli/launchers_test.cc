// The same job from each launcher: Open MPI with and without PMIx, torchrun's variables,
// LeaderWorkerSet's, Slurm.
#include "cli/job_program.h"

namespace braid::golden {
namespace {

using nlohmann::json;

class LaunchersTest : public JobCliTest {
 protected:
  void expect_the_answer(const std::string& out, const std::string& err) {
    ASSERT_TRUE(json::accept(out)) << out << err;
    const Outcome one = braid(answer("--tp 2"));
    ASSERT_EQ(one.status, 0) << one.err;
    const json want = json::parse(one.out), got = json::parse(out);
    for (const char* key : {"output_ids", "text", "logprobs"}) EXPECT_EQ(got[key], want[key]);
  }

  static bool works(const std::string& command) {
    return std::system(("timeout 20 " + command + " > /dev/null 2>&1").c_str()) == 0;
  }

  // Runs a command as two processes; process r has the environment `variables(r)`.
  void expect_by_variables(const std::function<std::string(int)>& variables,
                           const std::string& source) {
    std::string script;
    for (int r = 0; r < 2; ++r) {
      script +=
          fmt::format("env {} timeout 60 {}/braid {} --job {} > {}.{} 2> {}.{} & ", variables(r),
                      BRAID_BIN_DIR, answer("--tp 2"), source, path("out"), r, path("err"), r);
    }
    ASSERT_EQ(std::system(("sh -c '" + script + "wait'").c_str()), 0);
    expect_the_answer(read(path("out.0")), read(path("err.0")) + read(path("err.1")));
    EXPECT_EQ(read(path("out.1")), "");
  }

  void expect_by(const std::string& launcher) {
    const std::string command =
        fmt::format("timeout 100 {} {}/braid {} > {} 2> {} < /dev/null", launcher, BRAID_BIN_DIR,
                    answer("--tp 2"), path("out"), path("err"));
    EXPECT_EQ(std::system(command.c_str()), 0) << read(path("err"));
    expect_the_answer(read(path("out")), read(path("err")));
  }
};

constexpr const char* kMpirun = "mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2";

TEST_F(LaunchersTest, TorchrunsVariables) {
  const int port = job::free_port();
  expect_by_variables(
      [port](int r) {
        return fmt::format(
            "RANK={} WORLD_SIZE=2 LOCAL_RANK={} MASTER_ADDR=127.0.0.1 MASTER_PORT={}", r, r, port);
      },
      "auto");
}

TEST_F(LaunchersTest, LeaderWorkerSet) {
  const int port = job::free_port();
  expect_by_variables(
      [port](int r) {
        return fmt::format(
            "LWS_WORKER_INDEX={} LWS_GROUP_SIZE=2 LWS_LEADER_ADDRESS=127.0.0.1 MASTER_PORT={}", r,
            port);
      },
      "auto");
}

TEST_F(LaunchersTest, PmiVariablesWithAMeetingPlace) {
  const int port = job::free_port();
  expect_by_variables(
      [port](int r) {
        return fmt::format("PMI_RANK={} PMI_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={}", r, port);
      },
      "mpi");
}

TEST_F(LaunchersTest, MpirunWithPmix) {
  if (!job::has_pmix()) GTEST_SKIP() << "this build has no PMIx";
  if (!works(std::string(kMpirun) + " true")) GTEST_SKIP() << "mpirun does not start programs here";
  expect_by(kMpirun);
}

TEST_F(LaunchersTest, MpirunByItsVariables) {
  if (!works(std::string(kMpirun) + " true")) GTEST_SKIP() << "mpirun does not start programs here";
  expect_by(fmt::format("{} -x MASTER_ADDR=127.0.0.1 -x MASTER_PORT={} env -u PMIX_NAMESPACE",
                        kMpirun, job::free_port()));
}

TEST_F(LaunchersTest, SrunWithPmix) {
  if (!job::has_pmix()) GTEST_SKIP() << "this build has no PMIx";
  const std::string srun = "srun --mpi=pmix --overcommit -N 1 -n 2";
  if (!works(srun + " true")) GTEST_SKIP() << "no Slurm with PMIx answers here";
  expect_by(srun);
}

}  // namespace
}  // namespace braid::golden
