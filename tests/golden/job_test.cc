// Whole models over the processes of a job: every logit has the bits that one process computes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "braid/engine/loaded_model.h"
#include "braid/engine/plan_agreement.h"
#include "braid/engine/step_records.h"
#include "braid/schedule/strategies/registry.h"
#include "golden/support/forward.h"
#include "golden/support/random_model.h"
#include "golden/support/slow_machines.h"
#include "namespaces.h"
#include "processes.h"
#include "unit/io/temp_folder.h"

namespace braid::golden {
namespace {

// How ranks share the work.
struct Sharing {
  const char* name;
  int processes;
  int ranks;
  const char* sp = "";  // a mode of sequence parallelism, or auto; empty: tensor parallelism
  const char* schedule = "sequential";
  int machines = 1;
  Thinning thinning = {};
  int64_t step_bytes = 0;  // of a step's activations; 1: as many as all ranks take
};

const Sharing kSharings[] = {
    {"Tp2", 2, 2},
    {"Tp3", 3, 3},
    {"Tp4Overlap", 4, 4, "", "overlap"},
    {"Tp4Tokenweave", 4, 4, "", "tokenweave"},
    {"Tp4OfTwoProcesses", 2, 4},
    {"Tp4OnTwoMachines", 4, 4, "", "overlap", 2},
    {"Ring3", 3, 3, "ring"},
    {"Ulysses2", 2, 2, "ulysses"},
    {"Torus4", 4, 4, "torus", "sequence_parallel", 2},
    {"Usp4OfTwoProcesses", 2, 4, "usp", "sequential", 2},
    {"Tas4", 4, 4, "tas", "overlap", 2},
    {"Auto4", 4, 4, "auto", "sequence_parallel", 2},
    {"Auto4OfTwoProcesses", 2, 4, "auto", "sequence_parallel", 2},
    {"Auto4InLittleMemory", 4, 4, "auto", "sequence_parallel", 2, {}, 1},
};

RunnerConfig config_of(const Sharing& s) {
  RunnerConfig config{.tp = s.ranks, .threads = 1, .schedule = s.schedule};
  config.device.cuda = false;
  config.cache = {.pages = kPages, .page_size = kPageSize, .pages_per_sequence = kPages};
  config.links.machines = s.machines;
  config.thinning = s.thinning;
  if (s.sp == std::string_view("auto")) {
    config.sp = SequenceParallel{.step_bytes = s.step_bytes};
    config.profile = slow_machines(DType::f32);
  } else if (*s.sp) {
    config.sp = SequenceParallel{.mode = parse_sp_mode(s.sp)};
  }
  return config;
}

// Logits of a prompt in two pieces, then of some tokens one by one.
std::vector<float> logits_of(const Model& model, const RunnerConfig& config) {
  Runner runner(model, config);
  Batch batch(kPageSize);
  std::vector<std::vector<int64_t>> sequences = {{11, 8, 1, 1, 1, 1}};
  const bool by_length = config.sp && !config.sp->mode;
  // Memory grows, also that of ranks without a part.
  if (by_length) sequences.push_back({40, 60, 1});
  if (config.thinning) sequences.push_back({90, 57, 1});
  std::vector<float> all;
  for (const std::vector<int64_t>& steps : sequences) {
    std::vector<int32_t> ids;
    const int64_t tokens = std::accumulate(steps.begin(), steps.end(), int64_t{0});
    for (int i = 0; i < tokens; ++i) ids.push_back(static_cast<int32_t>(i * 37 % model.config().V));
    std::vector<int32_t> pages;
    KvPages(kPages, kPageSize).reserve(pages, tokens);
    int64_t done = 0;
    for (int64_t n : steps) {
      batch.clear();
      batch.add(std::span(ids).subspan(static_cast<size_t>(done), static_cast<size_t>(n)), done,
                pages, 1);
      const TensorView logits = runner.run(batch);
      const float* row = logits.row_as<float>(0);
      all.insert(all.end(), row, row + logits.cols());
      done += n;
    }
  }
  // By the profile a part of the ranks computes prompts, if memory allows.
  if (by_length && config.sp->step_bytes == 0) expect_two_ranks(runner.explain());
  for (const std::string& line : runner.explain()) {
    if (!by_length || config.sp->step_bytes == 0 || !line.starts_with("prompt of ")) continue;
    EXPECT_LT(line.find("one rank refused: wants "), line.size()) << line;
  }
  EXPECT_EQ(runner.approximation().has_value(), static_cast<bool>(config.thinning));
  return all;
}

using Param = std::tuple<std::string, Sharing>;
class JobGolden : public testing::TestWithParam<Param> {};

TEST_P(JobGolden, LogitsHaveTheBitsOfOneProcess) {
  if (!job::has_jobs()) GTEST_SKIP() << "this build has no UCX";
  const std::string& model_name = std::get<0>(GetParam());
  const Sharing& sharing = std::get<1>(GetParam());
  const bool in_storm = model_name.ends_with("@storm");
  const bool on_hosts = model_name.ends_with("@hosts") || in_storm;
  const std::string name = model_name.substr(0, model_name.find('@'));
  std::optional<job::Namespaces> hosts;
  std::optional<job::Weather> weather;
  if (in_storm)
    weather = {.most_delay = std::chrono::milliseconds(20),
               .loss = 0.01,
               .bytes_per_second = 12.5e6,
               .seed = 5};
  if (on_hosts && !hosts.emplace(sharing.processes, weather).here()) {
    GTEST_SKIP() << "network namespaces need root, iproute2 and, to lose frames, /dev/net/tun";
  }
  // Of a name of its own: a killed test of an equal process number may have left another model.
  const test::TempFolder folder;
  write_hf_folder(load_random_model(name), folder.path());
  const RunnerConfig config = config_of(sharing);
  std::vector<float> want;
  try {
    want = logits_of(Model(folder.path()), config);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    GTEST_SKIP() << error.what();  // the model does not divide so
  }
  job::ProcessOptions options{.processes = sharing.processes};
  if (on_hosts) {
    options.host = job::Namespaces::address(0);
    options.launch = [&](int p, job::Launch&) { ASSERT_TRUE(hosts->enter(p)); };
  }
  const auto endings = job::run_processes(options, [&](job::Job& job) {
    const Model model(folder.path());
    if (follow(&job, model)) return;
    RunnerConfig in_job = config;
    in_job.job = &job;
    if (on_hosts) in_job.links.machines = 1;  // the job finds them
    const std::vector<float> got = logits_of(model, in_job);
    ASSERT_EQ(got.size(), want.size());
    EXPECT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0);
    end_followers(job);
  });
  for (const job::Ending& ending : endings) EXPECT_TRUE(ending.done) << ending.text;
  if (in_storm) {
    EXPECT_GT(hosts->network()->lost(), 0) << hosts->network()->carried();
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, JobGolden,
    testing::Combine(testing::Values("llama2_mha", "llama3_gqa", "qwen3_qk_norm", "smollm2"),
                     testing::ValuesIn(kSharings)),
    [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param).name; });

// Far keys are thinned among ranks of several processes.
const Sharing kThinned[] = {
    {.name = "Ring2",
     .processes = 2,
     .ranks = 2,
     .sp = "ring",
     .thinning = {.keep = {0.5}, .importance = Importance::probe, .drop_queries = true}},
    {.name = "Ring4OfTwoProcesses",
     .processes = 2,
     .ranks = 4,
     .sp = "ring",
     .schedule = "sequence_parallel",
     .machines = 2,
     .thinning = {.keep = {0.6, 0.25}, .groups = {2, 4}}},
    {.name = "Previous3",
     .processes = 3,
     .ranks = 3,
     .sp = "ring",
     .thinning = {.keep = {0.4}, .groups = {}, .importance = Importance::previous}},
    {.name = "Auto4",
     .processes = 4,
     .ranks = 4,
     .sp = "auto",
     .schedule = "sequence_parallel",
     .machines = 2,
     .thinning = {.keep = {0.5}}},
    {.name = "Tp2", .processes = 2, .ranks = 2, .thinning = {.keep = {0.5}, .groups = {2, 8}}}};

INSTANTIATE_TEST_SUITE_P(Thinned, JobGolden,
                         testing::Combine(testing::Values("llama3_gqa"),
                                          testing::ValuesIn(kThinned)),
                         [](const auto& info) {
                           return std::string(std::get<1>(info.param).name);
                         });

const Sharing kOfExperts[] = {
    {"Tp2", 2, 2}, {"Tp4Overlap", 4, 4, "", "overlap"}, {"Ring3", 3, 3, "ring"}};

INSTANTIATE_TEST_SUITE_P(
    Experts, JobGolden, testing::Combine(testing::Values("mixtral"), testing::ValuesIn(kOfExperts)),
    [](const auto& info) { return std::string(std::get<1>(info.param).name); });

// Every strategy that fits a dense model.
std::vector<Sharing> by_strategy() {
  static const std::vector<std::string> names = strategy_names();
  std::vector<Sharing> all;
  for (const std::string& name : names) all.push_back({name.c_str(), 2, 2, "", name.c_str()});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Strategies, JobGolden,
                         testing::Combine(testing::Values("llama2_mha"),
                                          testing::ValuesIn(by_strategy())),
                         [](const auto& info) {
                           return std::string(std::get<1>(info.param).name);
                         });

const Sharing kOnHosts[] = {{"Tp4", 4, 4, "", "overlap", 4},
                            {"Ring3", 3, 3, "ring", "sequential", 3},
                            {"Torus4", 4, 4, "torus", "sequence_parallel", 4},
                            {"Tp4OfTwoProcesses", 2, 4, "", "tokenweave", 2},
                            {"Auto4OfTwoProcesses", 2, 4, "auto", "overlap", 2}};

const Sharing kOnFewAndManyHosts[] = {{"Tp2", 2, 2, "", "sequential", 2},
                                      {"Ulysses2", 2, 2, "ulysses", "sequential", 2},
                                      {"Usp4", 4, 4, "usp", "overlap", 4},
                                      {"Tas4", 4, 4, "tas", "overlap", 4},
                                      {"Ring8", 8, 8, "ring", "sequential", 8}};

// A host for each process: network namespaces joined by TCP. Hosts are machines untold.
INSTANTIATE_TEST_SUITE_P(Hosts, JobGolden,
                         testing::Combine(testing::Values("llama3_gqa@hosts"),
                                          testing::ValuesIn(kOnFewAndManyHosts)),
                         [](const auto& info) {
                           return std::string(std::get<1>(info.param).name);
                         });
INSTANTIATE_TEST_SUITE_P(Namespaces, JobGolden,
                         testing::Combine(testing::Values("llama3_gqa@hosts"),
                                          testing::ValuesIn(kOnHosts)),
                         [](const auto& info) {
                           return std::string(std::get<1>(info.param).name);
                         });

// Links of 100 Mbit/s: frames take up to 20 ms more, and one in a hundred is lost.
INSTANTIATE_TEST_SUITE_P(Storm, JobGolden,
                         testing::Combine(testing::Values("llama3_gqa@storm"),
                                          testing::ValuesIn(kOnHosts)),
                         [](const auto& info) {
                           return std::string(std::get<1>(info.param).name);
                         });

// The third process is on the first one's host again.
TEST(JobGolden, ProcessesRoundRobinOverHostsAreRefusedWithTheOrderThatWorks) {
  if (!job::has_jobs()) GTEST_SKIP() << "this build has no UCX";
  const job::Namespaces hosts(2);
  if (!hosts.here()) GTEST_SKIP() << "network namespaces need root and iproute2";
  const test::TempFolder folder;
  write_hf_folder(load_random_model("llama2_mha"), folder.path());
  const auto endings =
      job::run_processes({.processes = 4,
                          .host = job::Namespaces::address(0),
                          .launch = [&](int p, job::Launch&) { ASSERT_TRUE(hosts.enter(p % 2)); }},
                         [&](job::Job& job) {
                           const Model model(folder.path());
                           if (follow(&job, model)) return;
                           RunnerConfig config = config_of({"", 4, 4});
                           config.job = &job;
                           Runner(model, config);
                         });
  for (const job::Ending& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(std::string(ending.text),
              fmt::format("processes lie on hosts {0} {1} {0} {1}: wanted equal numbers, those of "
                          "one host after each other (mpirun --map-by slot, srun "
                          "--distribution=block)",
                          hosts.host_of(0), hosts.host_of(1)));
  }
}

// Processes that plan differently, for whatever reason, end before the first use of the plan.
TEST(JobGolden, PlansThatDifferAreNamedWithTheFirstLaunch) {
  if (!job::has_jobs()) GTEST_SKIP() << "this build has no UCX";
  for (const bool same : {true, false}) {
    const auto endings = job::run_processes({.processes = 2}, [&](job::Job& job) {
      const test::TempFolder folder;
      write_hf_folder(load_random_model("llama2_mha"), folder.path());
      const Model model(folder.path());
      const Runner runner(model, config_of({"", 1, 2}));
      Batch batch(kPageSize);
      const std::array<int32_t, 5> ids = {3, 4, 5, 6, 7};
      const std::array<int32_t, 1> pages = {0};
      batch.add(ids, 0, pages, 1);
      BatchCut cut;
      const auto strategy = find_strategy(same || job.process() == 0 ? "sequential" : "overlap");
      const PlannedForward planned = runner.planner().plan(*strategy, batch, cut);
      EXPECT_EQ(agree_on_plan(job, planned), plan_line(planned));
    });
    for (const job::Ending& ending : endings) {
      EXPECT_EQ(ending.done, same) << ending.text;
      if (same) continue;
      EXPECT_EQ(ending.code, ErrorCode::kInvalidArgument);
      EXPECT_THAT(ending.text, testing::MatchesRegex(fmt::format(
                                   "plans differ: rank 0 on {0} has '.+', rank 1 on {0} has '.+'",
                                   job::host_name())));
    }
  }
}

// One process has another model, or another profile of the same name.
TEST(JobGolden, OtherModelsAreRefused) {
  if (!job::has_jobs()) GTEST_SKIP() << "this build has no UCX";
  const auto endings = job::run_processes({.processes = 2}, [&](job::Job& job) {
    const test::TempFolder folder;
    write_hf_folder(load_random_model(job.process() == 0 ? "llama2_mha" : "llama3_gqa"),
                    folder.path());
    const Model model(folder.path());
    follow(&job, model);
  });
  for (const job::Ending& ending : endings) {
    EXPECT_EQ(ending.code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(ending.text, testing::HasSubstr("models differ: rank 0 on"));
  }
}

}  // namespace
}  // namespace braid::golden
