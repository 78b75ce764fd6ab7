#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "braid/base/error.h"
#include "braid/model/config.h"
#include "braid/model/config_keys.h"

namespace braid::test {

using nlohmann::json;

// What comes of a configuration: a ModelConfig, or the one line that refuses it.
using Outcome = std::variant<ModelConfig, std::string>;
using Read = std::function<Outcome(const json& keys)>;

inline Outcome outcome(const std::function<ModelConfig()>& read) {
  try {
    ModelConfig config = read();
    config.remarks.clear();
    return config;
  } catch (const Error& error) {
    return error.what();
  }
}

inline std::string text_of(const Outcome& o) {
  return std::holds_alternative<std::string>(o) ? std::get<std::string>(o) : "a configuration";
}

// A value for a key that no default has, and what has to stand beside it to count.
struct Trial {
  json value;
  json beside = json::object();
};

inline json with(json keys, const json& patch) {
  for (const auto& [key, value] : patch.items()) keys[key] = value;
  return keys;
}

inline json without(json keys, std::string_view key) {
  keys.erase(std::string(key));
  return keys;
}

// Expects every key of a table to have in this column the effect that its cell says. `base` are
// keys that `read` makes a configuration of.
inline void walk(const KeyTable& table, std::string_view column, const json& base,
                 const std::map<std::string, Trial>& trials, const Read& read) {
  for (const ConfigKey& key : table.keys) {
    SCOPED_TRACE(testing::Message() << table.title << ": " << key.name << " of " << column);
    const std::string name(key.name);
    ASSERT_TRUE(trials.contains(name)) << "no trial";
    const Trial& trial = trials.at(name);
    const KeyCell cell = table.cell(key.name, column);
    const json beside = without(with(base, trial.beside), name);
    const Outcome missing = read(beside), there = read(with(beside, {{name, trial.value}}));
    switch (cell.use) {
      case KeyUse::ignored:
        EXPECT_EQ(there, missing) << text_of(there) << "; " << text_of(missing);
        continue;
      case KeyUse::refused:
        EXPECT_THAT(text_of(there), testing::HasSubstr(name));
        if (cell.otherwise.empty()) continue;
        EXPECT_EQ(read(with(beside, {{name, json::parse(cell.otherwise)}})), missing);
        continue;
      case KeyUse::read:
        break;
    }
    EXPECT_NE(there, missing);
    EXPECT_TRUE(std::holds_alternative<ModelConfig>(there)) << text_of(there);
    if (cell.wanted) {
      EXPECT_THAT(text_of(missing), testing::HasSubstr(name));
    } else if (!cell.otherwise.empty() && cell.otherwise != "null") {
      const Outcome spelled = read(with(beside, {{name, json::parse(cell.otherwise)}}));
      EXPECT_EQ(spelled, missing) << text_of(spelled) << "; " << text_of(missing);
    }
  }
}

// Expects null to be a value of the keys whose cells say so, and refused by name for the others.
inline void walk_null(const KeyTable& table, std::string_view column, const json& base,
                      const std::map<std::string, Trial>& trials, const Read& read) {
  for (const ConfigKey& key : table.keys) {
    SCOPED_TRACE(testing::Message() << table.title << ": " << key.name << " of " << column);
    const std::string name(key.name);
    const KeyCell cell = table.cell(key.name, column);
    const json beside = without(with(base, trials.at(name).beside), name);
    const Outcome null = read(with(beside, {{name, nullptr}}));
    if (cell.use == KeyUse::read && !cell.null) {
      EXPECT_THAT(text_of(null), testing::HasSubstr(name + " is null"));
    } else if (cell.use != KeyUse::read || cell.otherwise == "null") {
      EXPECT_EQ(null, read(beside)) << text_of(null);
    } else {
      EXPECT_THAT(text_of(null), testing::Not(testing::HasSubstr("null")));
    }
  }
}

}  // namespace braid::test
