// Patterns of tokenizer.json, against what Hugging Face's tokenizers makes of them.
#include <gtest/gtest.h>

#include "braid/base/error.h"
#include "braid/io/tokenizer_split.h"
#include "unit/io/expect_error.h"
#include "unit/io/tokenizer_golden.h"

namespace braid {
namespace {

using nlohmann::json;

// A tokenizer.json with one Split; its steps are all that is looked at.
PreTokenizer splitter(const json& row) {
  const json document = {{"model", {{"vocab", {{"a", 0}}}, {"merges", json::array()}}},
                         {"decoder", {{"type", "ByteLevel"}}},
                         {"pre_tokenizer",
                          {{"type", "Split"},
                           {"pattern", {{"Regex", row["pattern"]}}},
                           {"behavior", row["behavior"]},
                           {"invert", row["invert"]}}}};
  return PreTokenizer(tokenizer_from_json(document.dump()).split);
}

TEST(TokenizerPattern, EqualsHuggingFace) {
  const json rows = golden_json("patterns.json");
  int refused = 0;
  for (const json& row : rows) {
    SCOPED_TRACE(row["pattern"].dump() + " " + row["behavior"].dump() + row["invert"].dump());
    if (row["pieces"].is_null()) {
      ++refused;
      test::expect_error(ErrorCode::kUnsupported, {"does not compile"}, [&] { splitter(row); });
      continue;
    }
    const PreTokenizer split = splitter(row);
    for (const json& one : row["pieces"]) {
      std::vector<std::string> pieces;
      const std::string text = one[0];
      split.split(text, true, [&](std::string_view word) { pieces.emplace_back(word); });
      EXPECT_EQ(pieces, one[1].get<std::vector<std::string>>()) << one[0];
    }
  }
  EXPECT_GT(rows.size(), 300u);
  EXPECT_GT(refused, 10);
}

// Work is bounded whatever the pattern: in backtracking for each match and for all together, and in
// the stack that it takes.
TEST(TokenizerPattern, BacktrackingIsBounded) {
  const auto split = [](const char* pattern, const std::string& text) {
    PreTokenizer({{.kind = SplitStep::Kind::kRegex, .text = pattern}})
        .split(text, true, [](std::string_view) {});
  };
  // The end has what each pattern needs, or the search would not begin.
  const std::string letters = std::string(4000, 'a') + " bc";
  for (const char* pattern :
       {"(a+)+c", "(?:a|a)*b", "(a|a?)+c", "(?=(a+)+c)a", "(?<x>a|a\\g<x>)+c", "(?:a|aa)+[bc]"}) {
    SCOPED_TRACE(pattern);
    test::expect_error(ErrorCode::kResource, {"pattern", "failed on"},
                       [&] { split(pattern, letters); });
  }
  // Backtracking in proportion to the text is what real patterns do.
  split(R"(\s*[\r\n]+|\s+(?!\S)|\s+)", std::string(300000, ' '));
  split(R"([^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})", std::string(300000, 'a'));
}

}  // namespace
}  // namespace braid
