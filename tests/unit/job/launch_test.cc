#include "braid/job/launch/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/base/error.h"

namespace braid::job {
namespace {

using testing::HasSubstr;

const Environment kMpirun = {{"OMPI_COMM_WORLD_RANK", "2"},
                             {"OMPI_COMM_WORLD_SIZE", "4"},
                             {"PMIX_RANK", "2"},
                             {"PMIX_NAMESPACE", "3141"}};
const Environment kSrun = {{"SLURM_PROCID", "1"},
                           {"SLURM_STEP_ID", "0"},
                           {"SLURM_STEP_NUM_TASKS", "3"},
                           {"PMIX_RANK", "1"},
                           {"PMIX_NAMESPACE", "slurm.pmix.7.0"}};
const Environment kTorchrun = {{"RANK", "1"},
                               {"WORLD_SIZE", "2"},
                               {"LOCAL_RANK", "1"},
                               {"MASTER_ADDR", "node1"},
                               {"MASTER_PORT", "1234"}};
const Environment kLws = {
    {"LWS_LEADER_ADDRESS", "leader.group"}, {"LWS_GROUP_SIZE", "2"}, {"LWS_WORKER_INDEX", "0"}};

Environment with(Environment env, const Environment& more) {
  for (const auto& [name, value] : more) env[name] = value;
  return env;
}

std::string refusal(const Environment& env, std::string_view wanted = "auto",
                    bool has_pmix = true) {
  try {
    const Launch launch = choose_launch(env, wanted, has_pmix);
    return fmt::format("accepted: {} {}", to_string(launch.source), launch.process);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Launch, WithoutALauncherThereIsOneProcess) {
  for (const Environment& env :
       {Environment{}, Environment{{"PATH", "/bin"}, {"MASTER_ADDR", "node1"}},
        // A batch script outside srun, and a step of one task.
        Environment{{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}},
        Environment{{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}}) {
    const Launch launch = choose_launch(env, "auto", true);
    EXPECT_EQ(launch.source, LaunchSource::none);
    EXPECT_EQ(launch.processes, 1);
  }
  EXPECT_EQ(choose_launch(kMpirun, "none", true).processes, 1);
}

TEST(Launch, ReadsEachLauncher) {
  Launch launch = choose_launch(kMpirun, "auto", true);
  EXPECT_EQ(launch.source, LaunchSource::pmix);
  EXPECT_EQ(launch.process, 2);
  EXPECT_EQ(launch.processes, 4);
  launch = choose_launch(kSrun, "auto", true);
  EXPECT_EQ(launch.source, LaunchSource::pmix);
  EXPECT_EQ(launch.process, 1);
  EXPECT_EQ(launch.processes, 3);
  launch = choose_launch({{"PMIX_RANK", "5"}, {"PMIX_NAMESPACE", "x"}}, "auto", true);
  EXPECT_EQ(launch.process, 5);
  EXPECT_EQ(launch.processes, 0);  // the server knows
  launch = choose_launch(kTorchrun, "auto", true);
  EXPECT_EQ(launch.source, LaunchSource::env);
  EXPECT_EQ(launch.process, 1);
  EXPECT_EQ(launch.processes, 2);
  EXPECT_EQ(launch.host, "node1");
  EXPECT_EQ(launch.port, 1234);
  launch = choose_launch(kLws, "auto", true);
  EXPECT_EQ(launch.source, LaunchSource::lws);
  EXPECT_EQ(launch.host, "leader.group");
  EXPECT_EQ(launch.port, kDefaultPort);
  launch =
      choose_launch({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MASTER_ADDR", "a"}}, "auto", true);
  EXPECT_EQ(launch.source, LaunchSource::mpi);
}

TEST(Launch, StepsAsideWhereTorchrunsAgentHasThePort) {
  const Environment env = with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_EQ(choose_launch(env, "auto", true).port, 1235);
}

TEST(Launch, WithoutPmixOpenMpiNeedsAPlaceToMeet) {
  EXPECT_THAT(refusal(kMpirun, "auto", false), HasSubstr("MASTER_ADDR is not set"));
  const Launch launch = choose_launch(with(kMpirun, {{"MASTER_ADDR", "node1"}}), "auto", false);
  EXPECT_EQ(launch.source, LaunchSource::mpi);
  EXPECT_EQ(launch.host, "node1");
  EXPECT_THAT(refusal(kSrun, "auto", false), HasSubstr("this build has no PMIx"));
  EXPECT_THAT(refusal(kMpirun, "pmix", false), HasSubstr("libpmix-dev"));
}

TEST(Launch, LaunchersInsidePodsCount) {
  EXPECT_EQ(choose_launch(with(kLws, kTorchrun), "auto", true).source, LaunchSource::env);
  EXPECT_EQ(choose_launch(with(kLws, kMpirun), "auto", true).source, LaunchSource::pmix);
}

TEST(Launch, RefusesAmbiguity) {
  EXPECT_EQ(refusal(with(kSrun, kTorchrun)),
            "two sources of rank and size: pmix says process 1 of 3, env says process 1 of 2: "
            "--job pmix or --job env says which one counts");
  EXPECT_EQ(choose_launch(with(kSrun, kTorchrun), "env", true).processes, 2);
  EXPECT_THAT(refusal(with(kMpirun, {{"PMIX_RANK", "3"}})),
              HasSubstr("pmix says process 3 of 4, mpi says process 2 of 4"));
  EXPECT_THAT(refusal({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}}),
              HasSubstr("a Slurm step of 4 tasks without PMIx"));
}

TEST(Launch, RefusesVariablesThatAreWrong) {
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "2"}})),
              HasSubstr("RANK is '2' in the environment, wanted a number from 0 to 1"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "one"}})), HasSubstr("RANK is 'one'"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"RANK", "1x"}})), HasSubstr("RANK is '1x'"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"WORLD_SIZE", "0"}})),
              HasSubstr("WORLD_SIZE is '0' in the environment, wanted a number from 1 to 1024"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"WORLD_SIZE", ""}})),
              HasSubstr("RANK is set in the environment and WORLD_SIZE is not"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"MASTER_PORT", "99999"}})), HasSubstr("MASTER_PORT"));
  EXPECT_THAT(refusal(with(kTorchrun, {{"MASTER_ADDR", ""}})),
              HasSubstr("env says process 1 of 2, and MASTER_ADDR is not set"));
  EXPECT_THAT(refusal(with(kLws, {{"LWS_LEADER_ADDRESS", ""}})), HasSubstr("LWS_LEADER_ADDRESS"));
  EXPECT_THAT(refusal(kTorchrun, "slurm"), HasSubstr("--job 'slurm': wanted auto, pmix"));
  EXPECT_THAT(refusal({}, "env"), HasSubstr("--job env: RANK and WORLD_SIZE"));
  EXPECT_THAT(refusal({}, "mpi"), HasSubstr("are not set in the environment"));
}

TEST(Launch, ReadsTheVariablesOfThisProcess) {
  setenv("BRAID_LAUNCH_TEST", "a=b", 1);
  EXPECT_EQ(this_environment().at("BRAID_LAUNCH_TEST"), "a=b");
}

}  // namespace
}  // namespace braid::job
