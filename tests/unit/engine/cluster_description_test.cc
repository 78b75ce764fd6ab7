#include "braid/engine/cluster_description.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <functional>

#include "braid/base/error.h"
#include "braid/engine/describe_cluster.h"

namespace braid {
namespace {

using testing::HasSubstr;

ClusterDescription four_ranks() {
  ClusterDescription c;
  c.ranks.assign(4, {.host = "node1",
                     .device = "cpu",
                     .units = 2,
                     .kernels = "avx2",
                     .memory_bytes = 1 << 30,
                     .build = "0123",
                     .strategy_library = ""});
  c.ranks[2].host = c.ranks[3].host = "node2";
  c.machines = 2;
  c.schedule = "overlap";
  c.sp = SequenceParallel{.mode = SpMode::torus, .degrees = {.torus = 2, .ring = 2}};
  c.cache = {.pages = 7, .page_size = 64, .pages_per_sequence = 7, .kv_dtype = DType::f32};
  c.profile = load_profile("a100");
  c.model = "123 bytes";
  return c;
}

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ClusterDescription, AllOfItComesBackFromJson) {
  const ClusterDescription c = four_ranks();
  const std::string json = to_json(c);
  const ClusterDescription back = parse_cluster(json, "test");
  EXPECT_EQ(back.ranks, c.ranks);
  EXPECT_EQ(to_string(back.topology()), "2x2");
  EXPECT_EQ(back.profile, parse_profile(to_json(*c.profile), "the profile"));
  EXPECT_EQ(back.sp->mode, SpMode::torus);
  EXPECT_EQ(back.sp->degrees.torus, 2);
  EXPECT_FALSE(back.sp->degrees.ulysses);
  EXPECT_EQ(back.cache.kv_dtype, DType::f32);
  EXPECT_EQ(to_json(back), json);
}

// What GPUs have room for, which the profile does not say.
TEST(ClusterDescription, RoomOfGpusIsWrittenIfKnown) {
  ClusterDescription c = four_ranks();
  EXPECT_THAT(to_json(c), testing::Not(testing::AnyOf(HasSubstr("apart"), HasSubstr("step_b"))));
  c.sp->apart = true;
  c.sp->step_bytes = 1234567890123;
  const ClusterDescription back = parse_cluster(to_json(c), "test");
  EXPECT_TRUE(back.sp->apart);
  EXPECT_EQ(back.sp->step_bytes, 1234567890123);
  EXPECT_EQ(runner_of(back).sp->step_bytes, 1234567890123);
  EXPECT_EQ(to_json(back), to_json(c));
}

TEST(ClusterDescription, RacksAreWrittenIfThereAreSeveral) {
  ClusterDescription c = four_ranks();
  EXPECT_THAT(to_json(c), testing::Not(HasSubstr("racks")));
  c.racks = 2;
  const ClusterDescription back = parse_cluster(to_json(c), "test");
  EXPECT_EQ(to_string(back.topology()), "2x1x2");
  EXPECT_EQ(to_json(back), to_json(c));
}

TEST(ClusterDescription, EqualRanksOfAHostAreOneEntry) {
  ClusterDescription c = four_ranks();
  c.ranks.assign(1000, c.ranks[0]);
  c.machines = 1;
  EXPECT_LT(to_json(c).size(), to_json(four_ranks()).size() + 100);
  EXPECT_EQ(parse_cluster(to_json(c), "test").ranks, c.ranks);
}

TEST(ClusterDescription, RanksThatWouldPlanDifferentlyAreNamedWithBothValues) {
  require_alike(four_ranks());
  struct Case {
    const char* text;
    std::function<void(RankDescription&)> change;
  };
  for (const Case& wrong :
       {Case{"builds differ: rank 0 on node1 has '0123', rank 3 on node2 has '4567'",
             [](auto& r) { r.build = "4567"; }},
        Case{"devices differ: rank 0 on node1 has 'cpu', rank 3 on node2 has 'NVIDIA A100'",
             [](auto& r) { r.device = "NVIDIA A100"; }},
        Case{"units of the devices differ: rank 0 on node1 has '2', rank 3 on node2 has '3'",
             [](auto& r) { r.units = 3; }},
        Case{"kernels differ: rank 0 on node1 has 'avx2', rank 3 on node2 has 'avx512, amx-int8'",
             [](auto& r) { r.kernels = "avx512, amx-int8"; }},
        Case{"kernels differ: rank 0 on node1 has 'avx2', rank 3 on node2 has 'sm_90, driver 12.8'",
             [](auto& r) { r.kernels = "sm_90, driver 12.8"; }},
        Case{"strategy libraries differ: rank 0 on node1 has '', rank 3 on node2 has '89ab'",
             [](auto& r) { r.strategy_library = "89ab"; }}}) {
    ClusterDescription c = four_ranks();
    wrong.change(c.ranks[3]);
    EXPECT_EQ(message_of([&] { require_alike(c); }), wrong.text);
  }
}

TEST(ClusterDescription, MemoryCountsOnGpusAlone) {
  ClusterDescription c = four_ranks();
  c.ranks[1].memory_bytes = 1 << 20;
  require_alike(c);
  for (RankDescription& rank : c.ranks) rank.device = "NVIDIA A100";
  EXPECT_EQ(message_of([&] { require_alike(c); }),
            "bytes of the devices differ: rank 0 on node1 has '1073741824', rank 1 on node1 has "
            "'1048576'");
}

TEST(ClusterDescription, RefusesWhatIsWrongInAFile) {
  const std::string rank = R"("ranks": [{"host": "a"}])";
  const auto whole = [](const std::string& fields) {
    return fmt::format(R"({{"format": 1, {}}})", fields);
  };
  EXPECT_EQ(parse_cluster(whole(rank), "f").ranks.size(), 1);
  for (const auto& [json, text] :
       {std::pair<std::string, const char*>{"{", "f: is no valid JSON"},
        {"[]", "f"},
        {R"({"format": 2})", "'format' is 2, wanted 1 to 1"},
        {whole(R"("x": 1)"), "'x' is no field of a cluster's description"},
        {whole(R"("machines": 1)"), "'ranks' is missing"},
        {whole(R"("ranks": [])"), "'ranks' is empty"},
        {whole(R"("ranks": [3])"), "ranks[0]"},
        {whole(R"("ranks": [{}])"), "host"},
        {whole(R"("ranks": [{"host": "a", "gpu": 1}])"), "ranks[0]: 'gpu' is no field"},
        {whole(R"("ranks": [{"host": "a", "count": 65537}])"), "'count' is 65537, wanted 1 to"},
        {whole(R"("ranks": [{"host": "a", "count": 65536}, {"host": "b"}])"), "'count' is 1"},
        {whole(R"("ranks": [{"host": "a", "count": 3}], "machines": 2)"),
         "3 ranks do not divide over 2 machines"},
        {whole(R"("ranks": [{"host": "a", "count": 3}], "machines": 3, "racks": 2)"),
         "3 machines do not divide over 2 racks"},
        {whole(R"("ranks": [{"host": "a", "count": 2}], "racks": 2)"),
         "'racks' is 2, wanted 1 to 1"},
        {whole(rank + R"(, "ep": 2)"), "'ep' is 2, wanted 1 to 1"},
        {whole(rank + R"(, "cache": {"pages": 1})"), "pages_per_sequence"},
        {whole(rank + R"(, "cache": {"pages": 1, "pages_per_sequence": 2})"),
         "'pages_per_sequence' is 2, wanted 1 to 1"},
        {whole(rank + R"(, "cache": {"pages": 1, "pages_per_sequence": 1, "kv_dtype": "q4_0"})"),
         "'kv_dtype' is \"q4_0\"; wanted is f16, bf16 or f32"},
        {whole(rank + R"(, "sequence": {"mode": "spiral"})"), "spiral"},
        {whole(rank + R"(, "sequence": {"ring": 0})"), "'ring' is 0"},
        {whole(rank + R"(, "sequence": {"step_bytes": -1})"), "'step_bytes' is -1, wanted 0 to"},
        {whole(rank + R"(, "profile": "no-such-profile")"), "no-such-profile"},
        {whole(rank + R"(, "profile": {})"), "f: profile"}}) {
    EXPECT_THAT(message_of([&, &json = json] { parse_cluster(json, "f"); }), HasSubstr(text));
  }
}

TEST(ClusterDescription, AFileCutAnywhereIsRefused) {
  const std::string json = to_json(four_ranks());
  for (size_t n = 0; n + 2 < json.size(); n += 7) {
    EXPECT_NE(message_of([&] { parse_cluster(json.substr(0, n), "f"); }), "no error") << n;
  }
}

}  // namespace
}  // namespace braid
