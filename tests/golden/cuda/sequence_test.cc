// GPUs that divide a sequence's tokens, each with whole weights: every model in every mode gives
// what one GPU gives, within and between emulated machines, and a rank that does not come ends the
// job.
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "braid/engine/generate.h"
#include "braid/engine/loaded_model.h"
#include "braid/engine/sequence_ranks.h"
#include "braid/engine/world.h"
#include "braid/schedule/strategies/registry.h"
#include "golden/support/expect_greedy.h"
#include "golden/support/forward.h"
#include "golden/support/golden.h"
#include "golden/support/random_model.h"
#include "golden/support/rounding.h"
#include "golden/support/sequences.h"

namespace braid::golden {
namespace {

struct Division {
  SpMode mode;
  int machines = 1;
  SpRequest degrees;
  std::string schedule = "sequence_parallel";
  int ranks = 2;
};

const std::vector<Division> kDivisions = {
    {SpMode::ring},     {SpMode::ring, 1, {}, "sequential"},
    {SpMode::ulysses},  {SpMode::torus, 1, {.torus = 2, .ulysses = 1}},
    {SpMode::usp, 2},   {SpMode::tas, 2},
    {SpMode::torus, 2},
};
const std::vector<Division> kOverFour = {
    {.mode = SpMode::ring, .ranks = 4},
    {.mode = SpMode::ulysses, .ranks = 4},
    {.mode = SpMode::torus, .machines = 2, .ranks = 4},
    {.mode = SpMode::torus, .degrees = {.torus = 2, .ulysses = 1}, .ranks = 4},
    {.mode = SpMode::usp, .machines = 2, .ranks = 4},
    {.mode = SpMode::tas, .machines = 2, .ranks = 4},
};

std::string to_string(const Division& d) {
  return fmt::format("{} of {} ranks over {} machines, {}", braid::to_string(d.mode), d.ranks,
                     d.machines, d.schedule);
}

// Of caches whose keys GPUs keep apart.
constexpr int64_t kPagesApart = int64_t{1} << 14;

RunnerConfig divided(const Division& d) {
  RunnerConfig config = cuda_runner(d.ranks);
  config.sp = SequenceParallel{d.mode, d.degrees};
  config.schedule = d.schedule;
  config.links.machines = d.machines;
  return config;
}

class CudaSequence : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (const char* why = cannot_run(2)) GTEST_SKIP() << why;
    folder_.emplace(GetParam() + "_sequence");
    write_hf_folder(load_random_model(GetParam()), folder_->path());
    loaded_.emplace(folder_->path().string());
    golden_ = load_golden(GetParam());
    tolerance_ = tolerance_of(loaded_->model, golden_);
  }

  std::optional<Folder> folder_;
  std::optional<LoadedModel> loaded_;
  Golden golden_;
  double tolerance_ = 0;
};

// In one step, and in chunks: keys stay where they were computed. A chunk of 7 leaves tails shorter
// than the ranks, which rank 0 computes alone. Twice: a replayed graph gives the same bits.
TEST_P(CudaSequence, LogitsAreThoseOfOneGpu) {
  Runner one(loaded_->model, cuda_runner());
  std::vector<Division> divisions = kDivisions;
  divisions.insert(divisions.end(), kOverFour.begin(), kOverFour.end());
  for (const Division& d : divisions) {
    if (d.mode == SpMode::ulysses && loaded_->model.config().Hq < d.ranks) continue;
    if (cannot_run(d.ranks)) continue;
    SCOPED_TRACE(to_string(d));
    int64_t steps = 0;
    Runner ranks(loaded_->model, divided(d));
    const std::string over = fmt::format("over {} ranks, ", d.ranks);
    for (const Case& c : golden_.cases) {
      for (size_t chunk : {512, 7}) {
        SCOPED_TRACE(fmt::format("{} tokens in chunks of {}", c.prompt.size(), chunk));
        const Rows rows = prompt_logits(ranks, c.prompt, chunk);
        expect_logits(golden_, c, rows, tolerance_);
        const Rows want = prompt_logits(one, c.prompt, chunk);
        ASSERT_EQ(rows.size(), want.size());
        for (size_t t = 0; t < rows.size(); ++t) {
          ASSERT_LT(relative_distance(rows[t], want[t]), tolerance_) << "token " << t;
        }
        EXPECT_TRUE(prompt_logits(ranks, c.prompt, chunk) == rows) << "the same again";
      }
    }
    for (const std::string& line : ranks.explain()) {
      steps += line.find(over) < line.size() && line.find(" keys") < line.size();
    }
    EXPECT_GT(steps, 3) << "too few steps were divided";
  }
}

// A prompt over the GPUs, its keys to the first, and the loop there.
TEST_P(CudaSequence, GreedyTokensAreThoseOfOneGpu) {
  for (const Division& d : kDivisions) {
    SCOPED_TRACE(to_string(d));
    Generator generator(loaded_->model, loaded_->tokenizer,
                        {.device = gpus_for(2),
                         .tp = 2,
                         .sp = SequenceParallel{d.mode, d.degrees},
                         .threads = 1,
                         .schedule = d.schedule,
                         .links = {.machines = d.machines}});
    for (const Case& c : golden_.cases) {
      expect_greedy(generator, c, tolerance_, 2);
      if (HasFatalFailure()) return;
    }
  }
}

// The runner with a large cache, whose keys several GPUs keep apart.
RunnerConfig large(RunnerConfig config) {
  if (config.sp) config.sp->apart = true;
  config.cache.pages = config.cache.pages_per_sequence = kPagesApart;
  return config;
}

// GPUs that keep their own keys alone: queries go to the keys.
TEST_P(CudaSequence, KeysStayWhereTheyAre) {
  Runner one(loaded_->model, large(cuda_runner()));
  for (int P : {2, 4}) {
    if (cannot_run(P)) continue;
    SCOPED_TRACE(fmt::format("{} GPUs", P));
    Runner ranks(loaded_->model, large(divided({.mode = SpMode::ring, .ranks = P})));
    join_and_leave([&](const Batch& batch) { expect_alike(ranks, one, batch, 2 * tolerance_); });
    if (HasFatalFailure()) return;
    for (int r = 0; r < P; ++r) {
      for (const Value& value : ranks.last_step(r).executor->program().values) {
        if (value.kind != ValueKind::state) continue;
        EXPECT_EQ(value.type.shape[0], kPagesApart / P) << value.name;
      }
    }
  }
}

// Few new tokens behind many keys go to the keys, in any mode.
TEST_P(CudaSequence, FewTokensGoToTheKeys) {
  Runner one(loaded_->model, large(cuda_runner()));
  for (const Division& d :
       {Division{SpMode::ring}, Division{SpMode::ulysses},
        Division{SpMode::ring, 1, {}, "sequential"}, Division{.mode = SpMode::ring, .ranks = 4}}) {
    if (cannot_run(d.ranks)) continue;
    SCOPED_TRACE(to_string(d));
    Runner ranks(loaded_->model, large(divided(d)));
    turns_behind_a_prefix(
        [&](const Batch& batch) { expect_alike(ranks, one, batch, 2 * tolerance_); });
    if (HasFatalFailure()) return;
    const std::vector<std::string> lines = ranks.explain();
    EXPECT_GT(std::ranges::count_if(
                  lines, [](const auto& l) { return l.find("queries move") < l.size(); }),
              1);
  }
}

// GPUs with sequences of their own beside a divided one.
TEST_P(CudaSequence, RanksHaveSequencesOfTheirOwn) {
  Runner one(loaded_->model, large(cuda_runner()));
  for (int P : {2, 4}) {
    if (cannot_run(P)) continue;
    SCOPED_TRACE(fmt::format("{} GPUs", P));
    Runner ranks(loaded_->model, large(divided({.mode = SpMode::ring, .ranks = P})));
    join_ranks_and_leave(
        P, [&](const Batch& batch) { expect_alike(ranks, one, batch, 2 * tolerance_); });
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CudaSequence,
                         testing::ValuesIn(random_models_without(
                             {"num_experts", "num_local_experts", "n_routed_experts"})),
                         [](const auto& info) { return info.param; });

// The keys of what the loop generated are on the first GPU alone, or in large caches on both: a
// prompt that goes on from there finds them.
TEST(CudaSequenceTurns, APromptGoesOnAfterALoop) {
  if (const char* why = cannot_run(2)) GTEST_SKIP() << why;
  const Folder folder("sequence_turns");
  write_hf_folder(load_random_model("llama3_gqa"), folder.path());
  const LoadedModel loaded(folder.path().string());
  const double tolerance = tolerance_of(loaded.model, load_golden("llama3_gqa"));
  const std::vector<int32_t> pages = {5, 2, 9, 11};
  const auto text = [&](Runner& runner) {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 21; ++i) ids.push_back((i * 37 + 5) % 100);
    Batch batch(kPageSize);
    batch.add(ids, 0, pages, 1);
    runner.step(batch);
    {
      const std::vector<int32_t> prompt = ids;
      const auto loop = runner.loop(
          {.sequences = {{.prompt = prompt,
                          .hold = [&](int64_t) { return std::span<const int32_t>(pages); }}},
           .limit = 9});
      for (int i = 0; i < 9; ++i) ids.push_back(loop->next()[0].id);
    }
    const auto cached = std::ssize(ids) - 1;  // the last one was not computed
    std::vector<int32_t> more = {ids.back(), 3, 1, 4, 1, 5, 9, 2};
    batch.clear();
    batch.add(more, cached, pages, std::ssize(more));
    Rows rows;
    append_rows(runner.run(batch), rows);
    return std::pair(ids, rows);
  };
  Runner one(loaded.model, cuda_runner());
  const auto want = text(one);
  int compared = 0;
  for (const Division& d : kDivisions) {
    for (int64_t pages : {kPages, kPagesApart}) {
      SCOPED_TRACE(fmt::format("{}, {} pages", to_string(d), pages));
      RunnerConfig config = divided(d);
      config.sp->apart = pages == kPagesApart;
      config.cache.pages = config.cache.pages_per_sequence = pages;
      Runner ranks(loaded.model, config);
      const auto got = text(ranks);
      if (got.first != want.first) continue;  // two logits within rounding of each other
      ++compared;
      for (size_t t = 0; t < want.second.size(); ++t) {
        EXPECT_LT(relative_distance(got.second[t], want.second[t]), 2 * tolerance) << "token " << t;
      }
    }
  }
  EXPECT_GT(compared, 1);
}

// A model bound on two ranks that divide a prompt: rank 1 comes `late`, or does not come.
void step_with(const Division& d, std::optional<std::chrono::milliseconds> late) {
  const std::string name = "llama2_mha";
  const Folder folder(name + "_sequence_stopped");
  write_hf_folder(load_random_model(name), folder.path());
  const LoadedModel loaded(folder.path().string());
  const Topology topology{.machines = d.machines, .devices = 2 / d.machines};
  const SequenceMesh mesh = sequence_mesh(d.mode, topology, loaded.model.config().Hq, d.degrees);
  const RunnerConfig config = divided(d);
  const auto world = make_cuda_world(
      loaded.model,
      {.ranks = 2, .links = config.links, .deadline_ms = 500, .sequence = {mesh.mesh}},
      config.device);
  for (int r = 0; r < 2; ++r) world->rank(r).back_pages(config.cache.pages);
  const ForwardPlanner planner(
      [&](const ForwardShape& s) { return loaded.model.forward(s); }, config.cache,
      {&world->rank(0).backend().catalog(), &world->rank(1).backend().catalog()}, topology, mesh);
  std::vector<int32_t> ids, pages = {0, 1, 2};
  for (int32_t i = 0; i < 41; ++i) ids.push_back(i);
  Batch batch(kPageSize);
  batch.add(ids, 0, pages, 1);
  KvOwners owners(2, kPages * kPageSize);
  const SequenceStep step(batch, kPageSize, owners, 2);
  const ContextKey key = key_for_tokens(step.q(), step.kv(), 1);
  const auto executors = world->bind(
      planner.plan_tokens(*find_strategy(d.schedule), step.q(), step.kv(), key.micro_batches[0]));
  std::vector<Extents> counts;
  for (int r = 0; r < 2; ++r) {
    step.write(*executors[static_cast<size_t>(r)], r);
    counts.push_back({.token = 41, .sequence = 1, .row = 1, .shard = step.q().rows(r)});
  }
  for (size_t r : {0u, 1u}) executors[r]->prepare({&counts[r], 1});
  std::exception_ptr error;
  std::thread other([&] {
    if (!late) return;
    std::this_thread::sleep_for(*late);
    try {
      executors[1]->run({&counts[1], 1});
    } catch (...) {
      error = std::current_exception();
    }
  });
  try {
    executors[0]->run({&counts[0], 1});
    executors[0]->host_output(0, 1);
  } catch (...) {
    other.join();
    throw;
  }
  other.join();
  if (error) std::rethrow_exception(error);
}

[[noreturn]] void exit_as_the_program(const Division& d,
                                      std::optional<std::chrono::milliseconds> late) {
  int status = 0;
  try {
    step_with(d, late);
  } catch (const Error& e) {
    std::fprintf(stderr, "braid: error: %s\n", e.what());
    status = 1;
  }
  std::exit(status);
}

TEST(CudaSequenceFaults, AStoppedRankIsADeadlineOfTheOther) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  if (const char* why = cannot_run(2)) GTEST_SKIP() << why;
  for (const Division& d : kDivisions) {
    SCOPED_TRACE(to_string(d));
    EXPECT_EXIT(
        exit_as_the_program(d, {}), testing::ExitedWithCode(1),
        "^braid: error: rank 0: waited 0\\.5[0-9]* s on the device for '[a-z_./]+' from rank 1: "
        "expected [0-9]+, seen [0-9]+(; a transfer of [0-9]+ bytes from cuda:[01], [a-z]+ at "
        "'[a-z0-9_./]+' with rank 1, has not ended: [a-z0-9 ,]+)*\n$");
  }
}

TEST(CudaSequenceFaults, ALateRankIsWaitedFor) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  if (const char* why = cannot_run(2)) GTEST_SKIP() << why;
  for (const Division& d : kDivisions) {
    SCOPED_TRACE(to_string(d));
    EXPECT_EXIT(exit_as_the_program(d, std::chrono::milliseconds(150)), testing::ExitedWithCode(0),
                "^$");
  }
}

}  // namespace
}  // namespace braid::golden
