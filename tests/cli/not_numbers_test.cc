// Models that compute what is no number, and what the KV cache is kept in.
#include <cmath>
#include <limits>

#include "cli/program.h"

namespace braid::golden {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// V times 2^18 and what it meets by 2^-18: the same model, but for a cache in f16.
RandomModel large_values() {
  RandomModel model = load_random_model("llama2_mha");
  model.edit = [](const TensorSpec& spec, std::span<float> values) {
    const int power = spec.name.ends_with("v_proj.weight")   ? 18
                      : spec.name.ends_with("o_proj.weight") ? -18
                                                             : 0;
    for (float& x : values) x = std::ldexp(x, power);
  };
  return model;
}

RandomModel one_nan(const std::string& tensor) {
  RandomModel model = load_random_model("llama2_mha");
  model.edit = [tensor](const TensorSpec& spec, std::span<float> values) {
    if (spec.name == tensor) values[1] = std::numeric_limits<float>::quiet_NaN();
  };
  return model;
}

class NotNumbersTest : public CliTest {
 protected:
  static void SetUpTestSuite() {
    CliTest::SetUpTestSuite();
    write_hf_folder(large_values(), path("large"));
    write_hf_folder(one_nan("model.norm.weight"), path("nan_norm"));
    write_hf_folder(one_nan("lm_head.weight"), path("nan_head"));
    std::ofstream(path("prose.txt")) << std::string(400, 'a');
  }

  static json run(const std::string& model, const std::string& options) {
    const Outcome o =
        braid("run -m " + model + " -p 'The quick brown fox' -n 12 --ignore-eos --json " + options);
    EXPECT_EQ(o.status, 0) << o.err;
    return json::parse(o.out);
  }
};

TEST_F(NotNumbersTest, AreOneLineThatNamesTheStepAndTheCause) {
  for (const std::string& model : {path("nan_norm"), path("nan_head")}) {
    for (const std::string sampling :
         {"--temperature 0", "--temperature 0.8", "--temperature 1 --min-p 0.1 --logprobs 3",
          "--temperature 1 --top-k 5", "--temperature 1 --top-p 0.5 --tp 2"}) {
      const std::string command = "run -m " + model + " -p abc -n 4 --json " + sampling;
      expect_refused(command, 1, "step 1, after ");
      expect_refused(command, 1, "likely cause: weights that are not numbers");
    }
    const std::string score = "perplexity -m " + model + " --ctx 64 -f " + path("prose.txt");
    expect_refused(score + " --json", 1, "chunk 1: score of token 33, after 32 tokens");
    expect_refused("bench -m " + model + " -p 0 -n 4 -r 1", 1, "step 1, after ");
  }
}

TEST_F(NotNumbersTest, ACacheThatIsTooNarrowIsNamedAndAWiderOneIsRight) {
  expect_refused("run -m " + path("large") + " -p abc -n 4 --kv-dtype f16 --json", 1,
                 "65504, the most that the KV cache holds in f16 (--kv-dtype bf16 or f32");
  for (const std::string options :
       {"--kv-dtype f32", "--kv-dtype bf16", "--kv-dtype auto", "--kv-dtype bf16 --tp 2",
        "--kv-dtype f32 --sp ring --ranks 2 "
        "--threads 1"}) {
    const json small = run(hf(), options);
    const json large = run(path("large"), options);
    EXPECT_EQ(large["output_ids"], small["output_ids"]) << options;
    EXPECT_EQ(large["kv_dtype"], options.find("bf16") != options.npos ? "bf16" : "f32");
  }
}

TEST_F(NotNumbersTest, ACacheIsAsPreciseAsItsDtype) {
  const auto logprobs = [](const std::string& dtype) {
    std::vector<double> all;
    const json result = run(hf(), "--logprobs 0 --kv-dtype " + dtype);
    for (const json& token : result["logprobs"]) {
      all.push_back(token["logprob"]);
    }
    return all;
  };
  const std::vector<double> want = logprobs("f32");
  EXPECT_EQ(logprobs("auto"), want) << "the model's weights are f32";
  const auto distance = [&](const std::string& dtype) {
    double most = 0;
    const std::vector<double> got = logprobs(dtype);
    for (size_t i = 0; i < 4; ++i) most = std::max(most, std::abs(got[i] - want[i]));
    return most;
  };
  const double f16 = distance("f16"), bf16 = distance("bf16");
  EXPECT_GT(f16, 0) << "another cache rounds otherwise";
  EXPECT_GT(bf16, f16);
  EXPECT_LT(bf16, 0.1);
}

TEST_F(NotNumbersTest, TheDtypeIsCheckedAndShown) {
  for (const std::string dtype : {"q8_0", "f64", "F16", "i32"}) {
    expect_refused("run -m " + hf() + " -p a --kv-dtype " + dtype, 2,
                   "--kv-dtype '" + dtype + "': wanted auto, f16, bf16 or f32");
  }
  const std::string bench = "bench -m " + hf() + " -p 8 -n 4 -r 1 --kv-dtype bf16";
  EXPECT_EQ(json::parse(braid(bench + " --json").out)["kv_dtype"], "bf16");
  EXPECT_THAT(braid(bench).out, HasSubstr("| bf16 |"));
  const std::string score = "perplexity -m " + hf() + " --ctx 64 --json -f " + path("prose.txt");
  EXPECT_EQ(json::parse(braid(score + " --kv-dtype f16").out)["kv_dtype"], "f16");
  // A decode step reads twice the bytes of keys and values in f32.
  const auto bytes = [&](const std::string& dtype) {
    const Outcome o =
        braid("bench -m " + hf() + " -p 0 -n 4 -d 100 -r 1 --json --kv-dtype " + dtype);
    return json::parse(o.out)["tests"][0]["bytes_per_token"].get<double>();
  };
  const double f32 = bytes("f32"), f16 = bytes("f16");
  EXPECT_EQ(f32 - f16, 2 * 102.0 * 2 * 64 * 2) << "2 layers, 64 wide, at mid-way of 4 tokens";
}

}  // namespace
}  // namespace braid::golden
