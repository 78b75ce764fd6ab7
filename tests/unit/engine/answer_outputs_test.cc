// The thread that makes text of tokens, with requests and sinks alone.
#include "braid/engine/requests/answer_outputs.h"

#include <gtest/gtest.h>

#include <future>
#include <latch>
#include <random>

namespace braid {
namespace {

constexpr int32_t kA = 3, kB = 4;

Tokenizer two_letters() {
  TokenizerSpec spec;
  spec.pieces = {"<unk>", "<s>", "</s>", "a", "b"};
  spec.scores = {0, 0, 0, 0, 0};
  spec.types = {TokenType::kUnknown, TokenType::kControl, TokenType::kControl, TokenType::kNormal,
                TokenType::kNormal};
  return Tokenizer(spec);
}

// A sink that keeps pieces and end, and checks the order of calls.
struct Sink : AnswerSink {
  bool on_piece(const AnswerPiece& piece) override {
    EXPECT_FALSE(end) << "a piece behind the end";
    if (on_first) std::exchange(on_first, {})();
    text += piece.text;
    counts.push_back(piece.answer_tokens);
    return std::ssize(counts) != most;
  }
  void on_end(const AnswerEnd& e) override {
    EXPECT_FALSE(end) << "ended twice";
    end = e;
  }

  std::function<void()> on_first;
  int64_t most = -1;  // pieces, then it has had enough
  std::string text;
  std::vector<int64_t> counts;
  std::optional<AnswerEnd> end;
};

class AnswerOutputsTest : public testing::Test {
 protected:
  std::shared_ptr<ActiveRequest> request(std::shared_ptr<Sink> sink, std::string stop = "") {
    AnswerRequest r{.prompt = {kA}};
    if (!stop.empty()) r.stop = {std::move(stop)};
    return std::make_shared<ActiveRequest>(++last_, std::move(r), tokenizer_, ends_, DType::f32,
                                           std::move(sink));
  }
  static void give(AnswerOutputs& outputs, ActiveRequest& request, int32_t id, bool soon = false) {
    ++request.facts.answer_tokens;
    outputs.token(request, {.id = id}, soon);
  }
  static void end(AnswerOutputs& outputs, std::shared_ptr<ActiveRequest> request) {
    request->facts.reason = AnswerReason::length;
    outputs.end(std::move(request));
  }

  const Tokenizer tokenizer_ = two_letters();
  const std::vector<int32_t> ends_ = {2};
  RequestId last_ = 0;
};

// Steps of random requests, as a loop hands them out; some tokens come from several threads.
TEST_F(AnswerOutputsTest, EveryRequestGetsItsTokensInOrderAndOneEnd) {
  constexpr int kRequests = 300, kSteps = 60;
  std::mt19937 random(7);
  std::vector<std::shared_ptr<Sink>> sinks;
  std::vector<std::shared_ptr<ActiveRequest>> active;
  std::vector<std::string> texts(kRequests);
  std::atomic<int64_t> written = 0, ended = 0;
  AnswerOutputs outputs([&](const ActiveRequest&, bool end) {
    ++written;
    if (end) ++ended;
  });
  for (int i = 0; i < kRequests; ++i) {
    sinks.push_back(std::make_shared<Sink>());
    active.push_back(request(sinks.back()));
  }
  int64_t tokens = 0;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<std::pair<size_t, int32_t>> row;
    for (size_t i = 0; i < kRequests; ++i) {
      if (!active[i] || random() % 4 == 0) continue;
      row.emplace_back(i, random() % 2 == 0 ? kA : kB);
      texts[i] += row.back().second == kA ? "a" : "b";
    }
    const auto part = [&](size_t from, size_t every, bool soon) {
      for (size_t r = from; r < row.size(); r += every) {
        give(outputs, *active[row[r].first], row[r].second, soon);
      }
    };
    if (step % 3 == 0) {
      std::vector<std::jthread> workers;
      for (size_t w = 0; w < 3; ++w) workers.emplace_back(part, w, 3, true);
    } else {
      part(0, 1, false);
    }
    outputs.wake();
    tokens += std::ssize(row);
    for (auto& one : active) {
      if (one && random() % 100 == 0) end(outputs, std::exchange(one, nullptr));
    }
  }
  for (auto& one : active) {
    if (one) end(outputs, std::exchange(one, nullptr));
  }
  outputs.finish();
  EXPECT_EQ(written, tokens + kRequests);
  EXPECT_EQ(ended, kRequests);
  for (size_t i = 0; i < kRequests; ++i) {
    EXPECT_EQ(sinks[i]->text, texts[i]);
    ASSERT_TRUE(sinks[i]->end) << i;
    EXPECT_EQ(sinks[i]->end->reason, AnswerReason::length);
    EXPECT_EQ(sinks[i]->end->answer_tokens, std::ssize(texts[i]));
    for (size_t n = 0; n < sinks[i]->counts.size(); ++n) {
      EXPECT_EQ(sinks[i]->counts[n], static_cast<int64_t>(n + 1));
    }
  }
}

// The engine waits for a thread that is far behind, whose outputs are then neither lost nor more
// than a bound.
TEST_F(AnswerOutputsTest, ATokenWaitsWhileTooManyAreWithoutText) {
  constexpr int64_t kTokens = 10000, kMost = 4096;
  const auto sink = std::make_shared<Sink>();
  std::latch stuck(1);
  std::promise<void> reached;
  sink->on_first = [&] {
    reached.set_value();
    stuck.wait();
  };
  const auto one = request(sink);
  AnswerOutputs outputs([](const ActiveRequest&, bool) {});
  std::atomic<int64_t> given = 0;
  give(outputs, *one, kA, true);
  reached.get_future().wait();
  std::jthread engine([&] {
    while (++given < kTokens) give(outputs, *one, kA);
    end(outputs, one);
  });
  // The bound is reached, and then no more is taken.
  int64_t before = -1;
  while (given < kMost / 2 || before != given) {
    before = given;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_LE(given, kMost);
  stuck.count_down();
  engine.join();
  outputs.finish();
  EXPECT_EQ(std::ssize(sink->text), kTokens);
  ASSERT_TRUE(sink->end);
  EXPECT_EQ(sink->end->answer_tokens, kTokens);
}

TEST_F(AnswerOutputsTest, AStopTextOrASinkThatHasEnoughEndsTheAnswerWithTheCountsOfThatToken) {
  const auto stopped = std::make_shared<Sink>(), full = std::make_shared<Sink>();
  full->most = 2;
  const auto first = request(stopped, "ab"), second = request(full);
  std::vector<RequestId> closed;
  {
    AnswerOutputs outputs([&](const ActiveRequest& request, bool end) {
      if (!end && request.writer.closed()) closed.push_back(request.id);
    });
    for (const int32_t id : {kB, kA, kB, kA}) {
      for (const auto& one : {first, second}) give(outputs, *one, id);
    }
    end(outputs, first);
    end(outputs, second);
  }
  EXPECT_EQ(stopped->text, "b");
  EXPECT_EQ(stopped->end->reason, AnswerReason::stop);
  EXPECT_EQ(stopped->end->stop, "ab");
  EXPECT_EQ(stopped->end->answer_tokens, 3);
  EXPECT_EQ(full->text, "ba");
  EXPECT_EQ(full->end->reason, AnswerReason::abort);
  EXPECT_EQ(full->end->answer_tokens, 2);
  EXPECT_EQ(closed, (std::vector<RequestId>{2, 1, 2, 1, 2}));
}

// Tokens do not own their request: its end does, also while outputs of others wait behind.
TEST_F(AnswerOutputsTest, ARequestLivesUntilItsEndIsWrittenAndNoLonger) {
  const auto first = std::make_shared<Sink>(), second = std::make_shared<Sink>();
  std::weak_ptr<ActiveRequest> watched;
  std::latch filled(1);
  first->on_first = [&] { filled.wait(); };
  bool gone = false;
  second->on_first = [&] { gone = watched.expired(); };
  AnswerOutputs outputs([](const ActiveRequest&, bool) {});
  const auto other = request(second);
  auto one = request(first);
  watched = one;
  give(outputs, *one, kA, true);
  for (int i = 0; i < 100; ++i) give(outputs, *one, kB);
  end(outputs, std::move(one));
  give(outputs, *other, kA);
  end(outputs, other);
  EXPECT_FALSE(watched.expired());
  filled.count_down();
  outputs.finish();
  EXPECT_EQ(first->text, "a" + std::string(100, 'b'));
  EXPECT_TRUE(first->end);
  EXPECT_TRUE(gone);
  EXPECT_EQ(second->text, "a");
}

}  // namespace
}  // namespace braid
