// Constants of decode steps: which GPU has its own, and what a file must say.
#include "braid/kernels/cuda/decode_choice/decode_rates.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "braid/base/error.h"
#include "braid/schedule/builtin_profiles.h"

namespace braid::cuda {
namespace {

using Json = nlohmann::json;

const std::string kFile(builtin_decode_rates()[0].json);

std::string error_of(const std::string& json) {
  try {
    parse_decode_rates(json, "x.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kMalformed) << e.what();
    return e.what();
  }
  return "";
}

std::string changed(const char* field, const Json& value) {
  Json json = Json::parse(kFile);
  if (value.is_discarded()) {
    json.erase(field);
  } else {
    json[field] = value;
  }
  return json.dump();
}

TEST(DecodeRates, OfAGpuByItsName) {
  const DecodeRates h100 = decode_rates("NVIDIA H100 80GB HBM3", 3e12);
  EXPECT_EQ(h100.unmeasured, "");
  EXPECT_EQ(h100.stream, 3e12);
  EXPECT_GT(h100.launch_seam, 1e-6);
  EXPECT_NEAR(absent_decode_rates("h100", 1).stream, 3.13e12, .01e12);
  EXPECT_EQ(h100.clusters[1], 132);
  const DecodeRates h200 = decode_rates("NVIDIA H200", 4.6e12);
  EXPECT_EQ(h200.unmeasured, "");
  EXPECT_EQ(h200.stream, 4.6e12);
  EXPECT_NE(h200.launch_seam, h100.launch_seam);
  EXPECT_NEAR(absent_decode_rates("h200", 1).stream, 4.52e12, .01e12);
  EXPECT_EQ(absent_decode_rates("b200", 7e12).stream, 7e12);
  DecodeRates other = decode_rates("NVIDIA H1000", 3e12);
  EXPECT_EQ(other.unmeasured, "NVIDIA H1000");
  other.unmeasured = "";
  EXPECT_EQ(other, h100);
}

TEST(DecodeRates, SaysWhatIsWrong) {
  EXPECT_EQ(error_of(kFile), "");
  EXPECT_EQ(error_of("[]"), "x.json: wanted is a JSON object");
  EXPECT_EQ(error_of("{"), "x.json: wanted is a JSON object");
  EXPECT_EQ(error_of(changed("words_seam", Json(Json::value_t::discarded))),
            "x.json: words_seam is missing; wanted is a number from 0 to 1e18");
  EXPECT_EQ(error_of(changed("words_seam", -1)),
            "x.json: words_seam is -1; wanted is a number from 0 to 1e18");
  EXPECT_EQ(error_of(changed("words_seam", "many")),
            "x.json: words_seam is \"many\"; wanted is a number from 0 to 1e18");
  EXPECT_EQ(error_of(changed("turbo", 1)), "x.json: \"turbo\" is no constant of decode steps");
  EXPECT_EQ(
      error_of(changed("cta_keys", Json::array({1, 2}))),
      "x.json: cta_keys: wanted are 4 numbers, for 1, 2 and 4 query heads, and several tokens");
  EXPECT_EQ(error_of(changed("clusters", 4)),
            "x.json: clusters: wanted are 16 numbers, for clusters of 1 to 16");
  EXPECT_EQ(error_of(changed("clusters", Json(std::vector<double>(16, 1e12)))),
            "x.json: clusters is 1000000000000.0; wanted is a number from 0 to 1e6");
}

// Whatever bytes come: constants, or a line that says why not.
TEST(DecodeRates, AnyBytes) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  for (int i = 0; i < 2000; ++i) {
    std::string text = kFile;
    for (int n = 1 + static_cast<int>(rng() % 4); n > 0; --n) {
      text[rng() % text.size()] = static_cast<char>(rng());
    }
    EXPECT_EQ(error_of(text).find('\n'), std::string::npos);
  }
}

}  // namespace
}  // namespace braid::cuda
