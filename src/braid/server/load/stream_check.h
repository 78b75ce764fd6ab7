#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "braid/server/schema/fields.h"

namespace braid::server {

// Cuts a text/event-stream into its events' data, for any division of the bytes.
class EventReader {
 public:
  void push(std::string_view bytes, const std::function<void(std::string_view data)>& event);
  // The last event has ended.
  bool complete() const { return line_.empty() && data_.empty(); }

 private:
  std::string line_, data_;
  bool has_data_ = false;
};

// An answer, from its stream.
struct StreamFacts {
  std::string fault;          // the first breach of OpenAI's shape; empty: none
  std::string error;          // the server's own message, in the middle of the stream
  std::vector<double> times;  // when pieces of the answer came, in the caller's seconds
  std::string text;
  std::string finish_reason;
  int64_t prompt_tokens = -1;  // in the usage; -1: none
  int64_t answer_tokens = -1;
  bool done = false;  // [DONE] came
};

// Holds every event of a one-choice stream against OpenAI's shape: objects with the same id and the
// right name, choices of index 0, a single finish_reason with no answer text behind, then the usage
// with empty choices, then [DONE] and nothing more.
class StreamCheck {
 public:
  explicit StreamCheck(bool chat) : chat_(chat) {}

  void event(std::string_view data, double time);
  // The answer has ended: missing parts are faults.
  void end();
  const StreamFacts& facts() const { return facts_; }

 private:
  void chunk(const Json& object, double time);
  void choice(const Json& choice, double time);
  void fault(std::string what) {
    if (facts_.fault.empty()) facts_.fault = std::move(what);
  }

  const bool chat_;
  std::string id_;
  bool usage_last_ = false;  // a chunk with the usage alone came
  StreamFacts facts_;
};

}  // namespace braid::server
