#include "braid/schedule/profile.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "braid/base/error.h"
#include "unit/schedule/toy_ops.h"

namespace braid {
namespace {

using Json = nlohmann::ordered_json;

Profile sample() {
  Profile p = toy::seconds_profile();
  p.name = "sample";
  p.device = "a \"device\"";
  p.units = 132;
  p.activations = DType::bf16;
  p.stream_units = {132, 8, 100};
  p.launch_seconds = 1.3e-6;
  p.cluster_link = {5.5e10, 5e-6, true};
  p.collective_units = 96;
  p.product_tiles = 1;
  p.pull_seconds = 1.8e-5;
  p.rates.push_back({"add", "", Rate::Unit::bytes, true, {{1, 2e9}, {32, 4.5e10}}, 2, 64});
  return p;
}

std::string error_of(const std::string& json) {
  try {
    parse_profile(json, "p.json");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kMalformed) << e.what();
    return e.what();
  }
  return "";
}

// The sample with one field changed, by its JSON pointer.
std::string changed(const std::string& pointer, const Json& value) {
  Json json = Json::parse(to_json(sample()));
  json[Json::json_pointer(pointer)] = value;
  return json.dump();
}

TEST(Profile, ReadsWhatItWrote) {
  EXPECT_EQ(parse_profile(to_json(sample()), "sample"), sample());
}

TEST(Profile, AnUplinkOfRacksIsWrittenIfThereIsOne) {
  EXPECT_EQ(Json::parse(to_json(sample())).at("links").size(), 2);
  Profile racks = sample();
  racks.rack_link = {2.5e10, 1e-5, true};
  EXPECT_EQ(parse_profile(to_json(racks), "sample"), racks);
  EXPECT_NE(racks, sample());
  EXPECT_EQ(error_of(changed("/links/rack", Json::object())),
            "p.json: links.rack.bytes_per_second is missing; wanted is a number");
  EXPECT_EQ(error_of(changed("/links/row", 1)), "p.json: links.row is no field of a profile");
}

TEST(Profile, UnderLoadItsLoadedRatesCount) {
  EXPECT_EQ(sample().under_load(), sample());
  Profile p = sample();
  p.rates = {{"linear", "", Rate::Unit::flops, false, {{1, 8e14}}},
             {"linear", "q4_0", Rate::Unit::flops, false, {{1, 4e14}}},
             {"attention", "", Rate::Unit::flops, false, {{1, 6e14}}, 1, 64}};
  p.loaded_rates = {{"linear", "", Rate::Unit::flops, false, {{1, 7e14}}},
                    {"attention", "", Rate::Unit::flops, false, {{1, 5e14}}}};
  EXPECT_EQ(parse_profile(to_json(p), "sample"), p);
  const Profile loaded = p.under_load();
  EXPECT_EQ(loaded.find("linear", "")->at(1), 7e14);
  EXPECT_EQ(loaded.find("linear", "q4_0")->at(1), 4e14);
  EXPECT_EQ(loaded.find("attention", "", 1, 64)->at(1), 6e14) << "of another head dim";
  EXPECT_EQ(loaded.find("attention", "", 1, 128)->at(1), 5e14);
  EXPECT_EQ(loaded.rates.size(), 4);
  EXPECT_EQ(loaded.under_load(), loaded);
  EXPECT_EQ(p.find("linear", "")->at(1), 8e14) << "short runs keep their rates";
}

TEST(Profile, TheRateThatFitsBest) {
  Profile p = toy::seconds_profile();
  const auto rate = [](const char* dtype, int ranks, double per_second) {
    return Rate{"sum", dtype, Rate::Unit::bytes, false, {{1, per_second}}, ranks};
  };
  p.rates = {rate("", 4, 1), rate("", 1, 2), rate("", 8, 3), rate("bf16", 2, 4)};
  const auto found = [&](const char* dtype, int ranks) {
    return p.find("sum", dtype, ranks)->points[0].per_second;
  };
  EXPECT_EQ(found("f32", 1), 2);
  EXPECT_EQ(found("f32", 3), 2);
  EXPECT_EQ(found("f32", 4), 1);
  EXPECT_EQ(found("f32", 9), 3);
  EXPECT_EQ(found("bf16", 1), 2) << "that of the dtype is one of two ranks";
  EXPECT_EQ(found("bf16", 8), 4);
  p.rates.push_back(rate("", 1, 5));
  p.rates.back().head_dim = 64;
  EXPECT_EQ(p.find("sum", "f32", 8, 64)->points[0].per_second, 5);
  EXPECT_EQ(p.find("sum", "f32", 8, 128)->points[0].per_second, 3);
  EXPECT_EQ(p.find("sum", "bf16", 8, 64)->points[0].per_second, 4) << "the dtype goes first";
  p.rates.pop_back();
  p.rates.erase(p.rates.begin() + 1);
  EXPECT_EQ(p.find("sum", "f32", 2), nullptr);
}

TEST(Profile, ThoseThatComeWithBraidAreSound) {
  const auto names = builtin_profile_names();
  for (const char* name : {"h100", "h200"}) {
    ASSERT_NE(std::ranges::find(names, name), names.end());
    const Profile p = load_profile(name);
    EXPECT_EQ(p.name, name);
    EXPECT_EQ(p.units, 132);
    EXPECT_EQ(p.activations, DType::bf16);
    EXPECT_NE(p.find("linear", "bf16"), nullptr);
    EXPECT_GT(p.machine_link.bytes_per_second, p.cluster_link.bytes_per_second);
  }
}

TEST(Profile, NamesTheFieldTheValueAndWhatIsAllowed) {
  EXPECT_EQ(error_of(changed("/units", 0)),
            "p.json: units is 0; wanted is a number from 1 to 1000000");
  EXPECT_EQ(error_of(changed("/activations", "q4_0")),
            "p.json: activations is \"q4_0\"; wanted is \"f32\" or \"bf16\"");
  EXPECT_EQ(error_of(changed("/launch_seconds", "fast")),
            "p.json: launch_seconds is \"fast\"; wanted is a number from 0 to 10");
  EXPECT_EQ(error_of(changed("/links/cluster/latency_seconds", -1)),
            "p.json: links.cluster.latency_seconds is -1; wanted is a number from 0 to 10");
  EXPECT_EQ(error_of(changed("/stream_units/comm", nullptr)),
            "p.json: stream_units.comm is null; wanted is a number from 1 to 1000000");
  EXPECT_EQ(error_of(changed("/rates/1/unit", "feet")),
            "p.json: rates[1].unit is \"feet\"; wanted is \"flops\" or \"bytes\"");
  EXPECT_EQ(error_of(changed("/rates/1/points/1/0", 0.5)),
            "p.json: rates[1].points is [[1.0,2000000000.0],[0.5,45000000000.0]]; wanted is pairs "
            "[m, per second] above 0, m ascending");
  EXPECT_EQ(error_of(changed("/collective_units", 1e9)).find("p.json: collective_units is "), 0);
  EXPECT_EQ(error_of(changed("/product_tiles", 0)),
            "p.json: product_tiles is 0; wanted is a number from 1 to 1000");
  EXPECT_EQ(error_of(changed("/turbo", true)), "p.json: turbo is no field of a profile");
  EXPECT_EQ(error_of(changed("/tur\nbo", true)), "p.json: tur\\nbo is no field of a profile");
  EXPECT_EQ(error_of(changed("/format", 2)), "p.json: format is 2; wanted is 1");
  EXPECT_EQ(error_of("[]"), "p.json: the profile is []; wanted is an object");
  Json json = Json::parse(to_json(sample()));
  for (const char* later : {"activations", "collective_units", "product_tiles", "pull_seconds"}) {
    json.erase(later);
  }
  EXPECT_EQ(error_of(json.dump()), "") << "profiles of before are still read";
  json.erase("memory_bytes_per_second");
  EXPECT_NE(error_of(json.dump()).find("memory_bytes_per_second is missing"), std::string::npos);
  EXPECT_NE(error_of("{").find("p.json: is no valid JSON"), std::string::npos);
  EXPECT_NE(error_of(std::string(2 << 20, ' ')).find("more than"), std::string::npos);
}

TEST(Profile, AnyBytesAreReadOrRefused) {
  const auto seed = static_cast<uint64_t>(std::random_device{}());
  SCOPED_TRACE(fmt::format("seed {}", seed));
  std::mt19937_64 rng(seed);
  const std::string good = to_json(sample());
  int refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (int i = 0; i < 1 + static_cast<int>(rng() % 4); ++i) {
      const size_t at = rng() % text.size();
      switch (rng() % 3) {
        case 0:
          text[at] = static_cast<char>(rng());
          break;
        case 1:
          text.erase(at, 1 + rng() % 20);
          break;
        default:
          text.insert(at, text.substr(rng() % text.size(), rng() % 20));
      }
    }
    try {
      const Profile p = parse_profile(text, "fuzz");
      EXPECT_GT(p.memory_bytes_per_second, 0);
    } catch (const Error& e) {
      EXPECT_EQ(std::string(e.what()).find('\n'), std::string::npos) << e.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(Profile, FilesAreFoundByPathAndByName) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("braid_profile_test_{}", getpid());
  const char* old = std::getenv("XDG_CACHE_HOME");
  const std::string before = old ? old : "";
  setenv("XDG_CACHE_HOME", folder.c_str(), 1);
  EXPECT_EQ(profile_cache_folder(), folder / "braid" / "profiles");
  EXPECT_EQ(find_profile("sample"), std::nullopt);
  save_profile(sample(), profile_cache_folder() / "sample.json");
  EXPECT_EQ(load_profile("sample"), sample());
  EXPECT_EQ(load_profile((profile_cache_folder() / "sample.json").string()), sample());
  EXPECT_THROW(load_profile("no_such"), Error);
  EXPECT_THROW(load_profile("no_such.json"), Error);
  try {
    save_profile(sample(), "/dev/full");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::kResource);
    EXPECT_NE(std::string(e.what()).find("/dev/full: No space left"), std::string::npos)
        << e.what();
  }
  std::filesystem::remove_all(folder);
  old ? setenv("XDG_CACHE_HOME", before.c_str(), 1) : unsetenv("XDG_CACHE_HOME");
}

}  // namespace
}  // namespace braid
