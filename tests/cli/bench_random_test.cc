// braid bench --config --random-weights: a shape without a download.
#include <algorithm>
#include <set>
#include <sstream>

#include "cli/program.h"

namespace braid::golden {
namespace {

using nlohmann::json;

class BenchRandomCliTest : public CliTest {
 protected:
  static constexpr int64_t kC = 64, kF = 96, kV = 500, kHq = 4, kHkv = 2, kLayers = 2;
  static constexpr int64_t kLayerParameters =
      2 * kC + 2 * kC * kC + 2 * kC * (kC / kHq * kHkv) + 3 * kC * kF;

  static std::string config() {
    const json shape = {{"architectures", {"LlamaForCausalLM"}},
                        {"hidden_size", kC},
                        {"intermediate_size", kF},
                        {"num_hidden_layers", kLayers},
                        {"num_attention_heads", kHq},
                        {"num_key_value_heads", kHkv},
                        {"vocab_size", kV},
                        {"max_position_embeddings", 256},
                        {"rms_norm_eps", 1e-5},
                        {"rope_theta", 1e4},
                        {"hidden_act", "silu"},
                        {"tie_word_embeddings", false}};
    std::ofstream(folder_ / "shape.json") << shape;
    return path("shape.json");
  }
  static std::string bench() { return "bench --config " + config() + " -p 4 -n 2 -r 1 "; }
};

TEST_F(BenchRandomCliTest, MeasuresAShape) {
  for (const char* options : {"", "--layers 1", "--tp 2 --threads 1", "--device cpu -d 9"}) {
    SCOPED_TRACE(options);
    const Outcome o = braid(bench() + "--random-weights --json " + options);
    ASSERT_EQ(o.status, 0) << o.err;
    const json report = json::parse(o.out);
    const int64_t layers = std::string_view(options) == "--layers 1" ? 1 : kLayers;
    const int64_t parameters = 2 * kV * kC + kC + layers * kLayerParameters;
    EXPECT_EQ(report["parameters"], parameters);
    EXPECT_EQ(report["weight_bytes"], 2 * parameters) << "bf16";
    ASSERT_EQ(report["tests"].size(), 2u);
    EXPECT_TRUE(report["tests"][0]["name"].get<std::string>().starts_with("pp4"));
    EXPECT_TRUE(report["tests"][1]["name"].get<std::string>().starts_with("tg2"));
    for (const json& test : report["tests"]) EXPECT_GT(test["tokens_per_s"].get<double>(), 0);
    // A decode step reads all weights but those of the embedding.
    EXPECT_GE(report["tests"][1]["bytes_per_token"].get<double>(),
              static_cast<double>(2 * (parameters - kV * kC)));
  }
}

TEST_F(BenchRandomCliTest, MeasuresBlocks) {
  const Outcome o = braid(bench() + "--random-weights --json --weights q8_0");
  ASSERT_EQ(o.status, 0) << o.err;
  const json report = json::parse(o.out);
  const int64_t vectors = kC + kLayers * 2 * kC;  // norms in f32
  const int64_t matrices = report["parameters"].get<int64_t>() - vectors;
  EXPECT_EQ(report["weight_bytes"], matrices / 32 * 34 + 4 * vectors);
  for (const json& test : report["tests"]) EXPECT_GT(test["tokens_per_s"].get<double>(), 0);
}

// Lists make a row for each combination; each line of JSON says all by itself.
TEST_F(BenchRandomCliTest, ListsMakeRows) {
  const std::string sizes = "--random-weights -p 0,3,5 -n 2 -d 0,7 -b 1,2 -r 1 -o ";
  const Outcome o = braid("bench --config " + config() + " " + sizes + "jsonl");
  ASSERT_EQ(o.status, 0) << o.err;
  std::vector<std::string> names;
  std::istringstream lines(o.out);
  for (std::string line; std::getline(lines, line);) {
    const json row = json::parse(line);
    names.push_back(row["name"]);
    EXPECT_GT(row["tokens_per_s"].get<double>(), 0);
    for (const char* key : {"version", "machine", "device", "threads", "family", "weight_type",
                            "schedule", "kv_dtype", "depth", "batch", "bytes_per_token"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
  }
  const std::vector<std::string> wanted = {"pp3",      "pp5",      "tg2",      "tg2",
                                           "pp3 @ d7", "pp5 @ d7", "tg2 @ d7", "tg2 @ d7"};
  EXPECT_EQ(names, wanted);

  const Outcome csv = braid("bench --config " + config() + " " + sizes + "csv");
  ASSERT_EQ(csv.status, 0) << csv.err;
  EXPECT_EQ(std::ranges::count(csv.out, '\n'), 1 + 8) << csv.out;
  EXPECT_TRUE(csv.out.starts_with("date,version,machine,model,")) << csv.out;

  const Outcome table = braid("bench --config " + config() + " " + sizes + "table");
  ASSERT_EQ(table.status, 0) << table.err;
  std::istringstream rows(table.out);
  std::set<size_t> edges;  // where the last column ends, in characters
  for (std::string row; std::getline(rows, row) && row.starts_with("|");) {
    edges.insert(static_cast<size_t>(
        std::ranges::count_if(row, [](unsigned char c) { return (c & 0xC0) != 0x80; })));
  }
  EXPECT_EQ(edges.size(), 1u) << table.out;
}

TEST_F(BenchRandomCliTest, RefusesRowsAndFormats) {
  const Outcome format = braid(bench() + "--random-weights -o xml");
  EXPECT_EQ(format.status, 2);
  EXPECT_NE(format.err.find("--output 'xml': table, json, jsonl or csv"), std::string::npos);
  std::string many = "1";
  for (int i = 0; i < 120; ++i) many += ",1";
  const Outcome rows = braid(bench() + "--random-weights -d " + many + " -b " + many);
  EXPECT_EQ(rows.status, 2);
  EXPECT_NE(rows.err.find("make 14762 rows, the most is 10000"), std::string::npos) << rows.err;
}

TEST_F(BenchRandomCliTest, DecodesSeveralSequencesTogether) {
  const Outcome o = braid(bench() + "--random-weights --json -d 20 -b 1,3,17 --batch 2");
  ASSERT_EQ(o.status, 0) << o.err;
  const json tests = json::parse(o.out)["tests"];
  ASSERT_EQ(tests.size(), 5u);
  const std::vector<int> batches = {1, 1, 3, 17, 2};
  const double one = tests[1]["bytes_per_token"].get<double>();
  for (size_t i = 0; i < tests.size(); ++i) {
    EXPECT_EQ(tests[i]["batch"], batches[i]);
    EXPECT_GT(tests[i]["tokens_per_s"].get<double>(), 0);
    EXPECT_GT(tests[i]["flops"].get<double>(), 0);
    if (batches[i] == 1) continue;
    // Weights are read once for all, keys and values for each.
    EXPECT_LT(tests[i]["bytes_per_token"].get<double>(), one);
    EXPECT_EQ(tests[i]["flops"].get<double>(), batches[i] * tests[1]["flops"].get<double>());
  }
}

// The third number of the gain, for tensor and sequence parallelism.
TEST_F(BenchRandomCliTest, RunsWithoutCommunication) {
  for (const char* ranks : {"--tp 2", "--sp ring --ranks 2", "--sp ulysses --ranks 2"}) {
    SCOPED_TRACE(ranks);
    const std::string command =
        bench() + "--random-weights --threads 1 --no-communication " + ranks;
    const Outcome o = braid(command + " --json");
    ASSERT_EQ(o.status, 0) << o.err;
    const json report = json::parse(o.out);
    EXPECT_EQ(report["communication"], false);
    for (const json& test : report["tests"]) {
      EXPECT_THAT(test["name"].get<std::string>(), testing::HasSubstr(", no communication"));
    }
    const Outcome text = braid(command);
    ASSERT_EQ(text.status, 0) << text.err;
    EXPECT_THAT(text.out, testing::HasSubstr("results are wrong"));
  }
}

// With messages of a fifth of a second each, five in a step.
TEST_F(BenchRandomCliTest, WithoutCommunicationNoMessageIsWaitedFor) {
  const std::string command =
      bench() + "--random-weights --threads 1 --tp 2 --link-gbps 1 --link-us 2e5 --json ";
  const json with = json::parse(braid(command).out);
  const json without = json::parse(braid(command + "--no-communication").out);
  EXPECT_EQ(with["communication"], true);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_LT(without["tests"][i]["step_ms"].get<double>(),
              with["tests"][i]["step_ms"].get<double>() / 2);
  }
}

TEST_F(BenchRandomCliTest, PrintsATable) {
  const Outcome o = braid(bench() + "--random-weights");
  ASSERT_EQ(o.status, 0) << o.err;
  EXPECT_THAT(o.out, testing::HasSubstr("| llama bf16 |"));
  EXPECT_THAT(o.out, testing::HasSubstr("| tg2  "));
}

TEST_F(BenchRandomCliTest, WrongUseGetsOneLine) {
  expect_refused(bench(), 2, "add --random-weights");
  expect_refused(bench() + "--random-weights --layers 3", 2, "--layers is 3");
  expect_refused(bench() + "--random-weights --layers 3", 2, "shape.json has 2");
  expect_refused(bench() + "--random-weights --layers -1", 2, "--layers is -1");
  expect_refused(bench() + "--random-weights -m " + hf(), 2, "one of --model and --config");
  expect_refused(bench() + "--random-weights -b 1,0", 2, "--batch is 0");
  expect_refused(bench() + "--random-weights -b 5000", 2, "--batch is 5000");
  expect_refused(bench() + "--random-weights --weights q3", 2, "--weights 'q3': f32, f16, bf16");
  expect_refused(bench() + "--random-weights --weights i32", 2, "--weights 'i32': f32, f16, bf16");
  expect_refused(bench() + "--random-weights --weights q4_k", 2, "no whole blocks of q4_k (256)");
  expect_refused("bench --weights q8_0 -m " + hf(), 2, "--weights");
  const std::string silent = bench() + "--random-weights --no-communication ";
  expect_refused(silent, 2, "--no-communication: one rank has none");
  expect_refused(silent + "--tp 2 --schedule gemm_collective", 1, "'linear_all_reduce'");
  expect_refused("bench --random-weights", 2, "one of --model and --config");
  expect_refused("bench --random-weights -m " + hf(), 2, "--config");
  expect_refused("bench --layers 1 -m " + hf(), 2, "--config");
  expect_refused("bench --random-weights --config /no/such.json", 1, "/no/such.json");
  expect_refused("bench --random-weights --config " + gguf(), 1, gguf());
}

}  // namespace
}  // namespace braid::golden
