#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "braid/base/math.h"
#include "braid/engine/requests/request_loop.h"

namespace braid::golden {

// Keeps what it is given.
class Collector : public AnswerSink {
 public:
  // With `most` pieces it has had enough; 0: never.
  explicit Collector(int most = 0) : most_(most) {}

  void on_prompt(std::span<const SampledToken> tokens) override {
    prompt.assign(tokens.begin(), tokens.end());
  }
  bool on_piece(const AnswerPiece& piece) override {
    text += piece.text;
    tokens.insert(tokens.end(), piece.tokens.begin(), piece.tokens.end());
    return ++pieces_ != most_;
  }
  void on_end(const AnswerEnd& end) override {
    {
      const std::lock_guard lock(mutex_);
      EXPECT_FALSE(end_.has_value()) << "ended twice";
      end_ = end;
    }
    ended_.notify_all();
  }
  const AnswerEnd& wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(ended_.wait_for(lock, std::chrono::minutes(2), [&] { return end_.has_value(); }));
    return *end_;
  }

  std::string text;
  std::vector<SampledToken> tokens, prompt;

 private:
  const int most_;
  int pieces_ = 0;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::optional<AnswerEnd> end_;
};

struct Answer {
  std::string text;
  AnswerEnd end;
  std::vector<SampledToken> tokens, prompt;
};

inline Answer answer(RequestLoop& loop, const AnswerRequest& request) {
  const auto sink = std::make_shared<Collector>();
  loop.submit(request, sink);
  const AnswerEnd end = sink->wait();
  return {sink->text, end, sink->tokens, sink->prompt};
}

// Of random length, sampling and ends; many begin alike.
inline AnswerRequest random_request(std::mt19937& random, int64_t vocabulary) {
  const auto pick = [&](int from, int to) {
    return std::uniform_int_distribution<int>(from, to)(random);
  };
  AnswerRequest request;
  const int length = pick(1, 90), same = pick(0, length);
  for (int i = 0; i < length; ++i) {
    request.prompt.push_back(i < same ? 5 + i % 7 : pick(0, static_cast<int>(vocabulary) - 1));
  }
  request.max_tokens = pick(1, 40);
  request.ignore_eos = pick(0, 1) == 0;
  if (pick(0, 1) == 0) {
    request.sampling.temperature = 0.9f;
    request.sampling.seed = random();
    request.sampling.frequency_penalty = pick(0, 1) == 0 ? 0.5f : 0;
  }
  if (pick(0, 2) == 0) request.sampling.logprobs = 2;
  if (pick(0, 3) == 0) request.prompt_logprobs = 1;
  if (pick(0, 3) == 0) request.stop = {"e", "the"};
  return request;
}

// A mask whose bits depend on the seed and on how many tokens came before, at times a late one.
inline TokenMask random_mask(uint32_t seed, int64_t vocabulary) {
  std::vector<uint32_t> words(static_cast<size_t>(ceil_div(vocabulary, 32)));
  return [seed, words](std::span<const int32_t> ids) mutable -> std::span<const uint32_t> {
    std::mt19937 bits(seed + static_cast<uint32_t>(ids.size()));
    for (uint32_t& word : words) word = bits();
    if (bits() % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return words;
  };
}

}  // namespace braid::golden
