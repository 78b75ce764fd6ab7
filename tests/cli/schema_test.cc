// `braid run --schema`: answers that fulfil a schema.
#include "cli/program.h"

namespace braid::golden {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class SchemaTest : public CliTest {
 protected:
  static constexpr const char* kSchema =
      R"({"type": "object", "properties": {"b": {"enum": [1, 22]}, "a": {"type": "boolean"}},
          "required": ["b", "a"], "additionalProperties": false})";

  static bool grammars() {
    return braid("--version").out.find("structured output: none") == std::string::npos;
  }
  static std::string run(const std::string& options) {
    return "run -m " + hf() + " -p x --temp 1 -n 200 " + options;
  }
};

TEST_F(SchemaTest, TheAnswerFulfilsIt) {
  if (!grammars()) GTEST_SKIP() << "built without grammars";
  std::ofstream(path("schema.json")) << kSchema;
  for (const std::string& options :
       {"--schema " + path("schema.json"), fmt::format("--json-schema '{}' --chat", kSchema),
        "--schema " + path("schema.json") + " --tp 2"}) {
    for (int seed = 1; seed <= 3; ++seed) {
      const Outcome o = braid(run(fmt::format("{} --seed {} --json", options, seed)));
      ASSERT_EQ(o.status, 0) << o.err;
      const json report = json::parse(o.out);
      EXPECT_EQ(report["finish_reason"], "stop");
      const std::string text = report["text"];
      const json value = json::parse(text);
      EXPECT_TRUE(value["b"] == 1 || value["b"] == 22) << text;
      EXPECT_TRUE(value["a"].is_boolean()) << text;
      EXPECT_EQ(value.size(), 2u) << text;
      EXPECT_LT(text.find("\"b\""), text.find("\"a\"")) << "keys keep the schema's order";
    }
  }
  const Outcome cut = braid("run -m " + hf() + " -p x -n 2 --schema " + path("schema.json"));
  EXPECT_EQ(cut.status, 0);
  EXPECT_THAT(cut.err, HasSubstr("the answer ends before its schema does"));
}

TEST_F(SchemaTest, WhatIsWrongIsNamed) {
  const auto refused = [](const std::string& options, int status, const char* text) {
    expect_refused(run(options), status, text);
  };
  refused("--schema " + path("absent.json"), 1, "absent.json");
  refused("--json-schema '{'", 1, "--json-schema");
  refused("--json-schema '{\"type\": \"array\", \"uniqueItems\": true}'", 2, "uniqueItems");
  refused("--json-schema true --schema x", 2, "both give a schema");
  refused("--json-schema true --ignore-eos", 2, "--ignore-eos beside a schema");
  if (!grammars()) refused("--json-schema true", 1, "built without");
}

}  // namespace
}  // namespace braid::golden
