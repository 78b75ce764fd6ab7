#include "braid/engine/stop_text.h"

#include <gtest/gtest.h>

#include <random>

namespace braid {
namespace {

struct Outcome {
  std::string text;
  bool stopped = false;
};

Outcome run(const std::vector<std::string>& stops, const std::vector<std::string>& pieces,
            bool include = false) {
  StopText text(stops, include);
  Outcome out;
  for (const std::string& piece : pieces) {
    out.text += text.push(piece);
    // Nothing comes out that belongs to a stop text.
    if (!include) {
      for (const std::string& stop : stops) EXPECT_EQ(out.text.find(stop), std::string::npos);
    }
    if (text.found()) break;
  }
  out.stopped = text.found().has_value();
  if (!out.stopped) out.text += text.finish();
  return out;
}

TEST(StopText, TheEarliestEndsTheAnswer) {
  for (const std::vector<std::string>& stops : {std::vector<std::string>{"a", "b"}, {"b", "a"}}) {
    const Outcome o = run(stops, {"1", "xaybz", "2"});
    EXPECT_TRUE(o.stopped);
    EXPECT_EQ(o.text, "1x");
    EXPECT_EQ(run(stops, {"1", "xaybz", "2"}, true).text, "1xa");
  }
}

// What is given out never holds a stop text, and ends where the first one that was completed does.
TEST(StopText, AgreesWithASearchOfTheWholeText) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  const auto word = [&](size_t longest) {
    std::string text;
    for (size_t n = 1 + rng() % longest; n > 0; --n) text += static_cast<char>('a' + rng() % 3);
    return text;
  };
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops, pieces;
    for (size_t n = rng() % 4; n > 0; --n) stops.push_back(word(4));
    for (size_t n = rng() % 8; n > 0; --n) pieces.push_back(word(5));
    std::string whole;
    size_t end = std::string::npos;
    for (size_t i = 0; i < pieces.size() && end == std::string::npos; ++i) {
      whole += pieces[i];
      for (const std::string& stop : stops) end = std::min(end, whole.find(stop));
    }
    const Outcome o = run(stops, pieces);
    ASSERT_EQ(o.stopped, end != std::string::npos);
    ASSERT_EQ(o.text, whole.substr(0, end));
  }
}

}  // namespace
}  // namespace braid
