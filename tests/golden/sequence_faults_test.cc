// A whole model whose ranks divide a prompt, the gathering of its keys, and a token whose query
// goes to the keys: a rank that comes late is waited for, one that does not come is a deadline
// error on the others.
#include <gtest/gtest.h>

#include <thread>

#include "braid/engine/apart_step.h"
#include "braid/engine/loaded_model.h"
#include "braid/engine/sequence_step.h"
#include "braid/engine/world.h"
#include "braid/fabric/rank_threads.h"
#include "braid/schedule/strategies/registry.h"
#include "golden/support/forward.h"
#include "golden/support/random_model.h"

namespace braid::golden {
namespace {

using std::chrono::milliseconds;

struct Division {
  SpMode mode;
  const char* topology;
  SpRequest degrees;
  std::string schedule = "sequence_parallel";
};

const Division kDivisions[] = {
    {SpMode::ring, "1x3", {}},
    {SpMode::ring, "1x2", {}, "sequential"},
    {SpMode::ulysses, "1x4", {}},
    {SpMode::tas, "2x2", {.ring = 2}},
    {SpMode::torus, "2x2", {.torus = 2, .ulysses = 2, .ring = 1}},
};

constexpr CacheShape kCache = {
    .pages = kPages, .page_size = kPageSize, .pages_per_sequence = kPages};
constexpr int64_t kTokens = 41;

// Ranks that have a model, a prompt in pieces, and its keys where they were made.
class Ranks {
 public:
  // `apart`: ranks have slots of their own.
  Ranks(const LoadedModel& loaded, const Division& d, int64_t deadline_ms, bool apart = false)
      : mesh_(
            sequence_mesh(d.mode, parse_topology(d.topology), loaded.model.config().Hq, d.degrees)),
        world_(make_cpu_world(loaded.model, {.ranks = mesh_.ranks(),
                                             .links = {.machines = mesh_.topology.machines},
                                             .deadline_ms = deadline_ms,
                                             .sequence = {mesh_.mesh}})),
        planner_([&](const ForwardShape& s) { return loaded.model.forward(s); }, kCache,
                 world_->catalogs(mesh_.ranks()), mesh_.topology, mesh_),
        strategy_(find_strategy(d.schedule)),
        owners_(mesh_.ranks(), kPages * kPageSize, apart ? kPages * kPageSize : 0) {
    for (int32_t i = 0; i < kTokens; ++i) ids_.push_back(i % 7);
    batch_.add(ids_, 0, pages_, 1);
    step_.emplace(batch_, kPageSize, owners_, mesh_.ranks());
  }

  int ranks() const { return mesh_.ranks(); }

  // Rank `late` comes after the others, or not at all.
  void prompt(int late, std::optional<milliseconds> by) {
    const ContextKey key = key_for_tokens(step_->q(), step_->kv(), 1);
    const auto executors = bind(
        planner_.plan_tokens(*strategy_, step_->q(), step_->kv(), key.micro_batches[0]), *step_);
    run(executors, late, by, [&](int rank) {
      return Extents{.token = kTokens, .sequence = 1, .row = 1, .shard = step_->q().rows(rank)};
    });
    keep_logits(executors);
  }
  // The next token.
  void decode(int late, std::optional<milliseconds> by) {
    Batch batch(kPageSize);
    batch.add(std::vector<int32_t>{5}, kTokens, pages_, 1);
    HeldKeys keys(owners_, kPageSize, false);
    const ApartStep step(batch, owners_, keys, planner_.windows());
    const auto executors =
        bind(planner_.plan_apart(*strategy_, key_for_apart(step.tokens(), 1, 1)), step);
    run(executors, late, by, [&](int rank) {
      return Extents{.token = 1, .sequence = 1, .row = 1, .shard = step.tokens().rows(rank)};
    });
    keep_logits(executors);
  }
  void gather(int late, std::optional<milliseconds> by) {
    const KvGather gather(slots_of(pages_, kPageSize, kTokens), owners_);
    ASSERT_FALSE(gather.empty());
    const auto executors = bind(planner_.plan_gather(*strategy_, gather.kv()), gather);
    run(executors, late, by, [](int) { return Extents{.sequence = 1}; });
  }
  const std::vector<float>& logits() const { return logits_; }

 private:
  using Executors = std::vector<std::unique_ptr<Executor>>;

  void keep_logits(const Executors& executors) {
    const TensorView row = executors[0]->host_output(0, 1);
    logits_.assign(row.as<float>(), row.as<float>() + row.cols());
  }

  Executors bind(PlannedForward planned, const StepInputs& inputs) {
    Executors executors = world_->bind(std::move(planned));
    for (int r = 0; r < ranks(); ++r) inputs.write(*executors[static_cast<size_t>(r)], r);
    return executors;
  }
  template <class Counts>
  void run(const Executors& executors, int late, std::optional<milliseconds> by, Counts&& counts) {
    fabric::run_rank_threads(world_->fabric(), [&](int r) {
      if (r == late && !by) return;
      if (r == late) std::this_thread::sleep_for(*by);
      executors[static_cast<size_t>(r)]->run(counts(r));
    });
  }

  const SequenceMesh mesh_;
  const std::unique_ptr<World> world_;
  const ForwardPlanner planner_;
  const std::shared_ptr<const OpScheduler> strategy_;
  KvOwners owners_;
  std::vector<int32_t> ids_;
  const std::vector<int32_t> pages_ = {0, 1, 2};
  Batch batch_{kPageSize};
  std::optional<SequenceStep> step_;
  std::vector<float> logits_;
};

class SequenceModelFaults : public testing::Test {
 protected:
  void SetUp() override {
    folder_.emplace("llama2_mha_sequence_faults");
    write_hf_folder(load_random_model("llama2_mha"), folder_->path());
    loaded_.emplace(folder_->path().string());
  }
  template <class Each>
  void for_each(Each&& each) {
    for (const Division& d : kDivisions) {
      const int P = parse_topology(d.topology).ranks();
      for (const int late : {0, P - 1}) {
        SCOPED_TRACE(
            fmt::format("{} on {}, {}, rank {}", to_string(d.mode), d.topology, d.schedule, late));
        each(d, late);
        if (HasFatalFailure()) return;
      }
    }
  }

  std::optional<Folder> folder_;
  std::optional<LoadedModel> loaded_;
};

TEST_F(SequenceModelFaults, ALateRankIsWaitedFor) {
  for_each([&](const Division& d, int late) {
    Ranks even(*loaded_, d, 10000), uneven(*loaded_, d, 10000);
    even.prompt(-1, {});
    uneven.prompt(late, milliseconds(60));
    EXPECT_EQ(uneven.logits(), even.logits());
    uneven.gather(late, milliseconds(60));
    Ranks on_time(*loaded_, d, 10000, true), held_up(*loaded_, d, 10000, true);
    for (Ranks* ranks : {&on_time, &held_up}) {
      ranks->prompt(-1, {});
      ranks->decode(ranks == &held_up ? late : -1, milliseconds(60));
    }
    EXPECT_EQ(held_up.logits(), on_time.logits());
  });
}

TEST_F(SequenceModelFaults, ARankThatDoesNotComeIsADeadlineOfTheOthers) {
  for_each([&](const Division& d, int late) {
    const auto expect_deadline = [](auto&& step) {
      try {
        step();
        ADD_FAILURE() << "no error";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kDeadline) << error.what();
        EXPECT_NE(std::string_view(error.what()).find("expected"), std::string_view::npos)
            << error.what();
      }
    };
    Ranks one(*loaded_, d, 100);
    expect_deadline([&] { one.prompt(late, {}); });
    Ranks held(*loaded_, d, 2000, true);
    held.prompt(-1, {});
    expect_deadline([&] { held.decode(late, {}); });
    if (late == 0) return;
    Ranks two(*loaded_, d, 2000);  // here all have to come to the prompt in time
    two.prompt(-1, {});
    expect_deadline([&] { two.gather(late, {}); });
  });
}

}  // namespace
}  // namespace braid::golden
