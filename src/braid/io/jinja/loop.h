#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "braid/io/jinja/runtime.h"

namespace braid::jinja {

// The variable `loop` of a for loop. Loop reads ahead only as far as the template asks.
class Loop final : public Instance {
 public:
  // `recurse` renders the loop's body over other items; empty for a loop that is not recursive.
  using Recurse = std::function<Value(const Value& iterable)>;
  Loop(Iterator* source, std::optional<int64_t> length, int64_t depth, Recurse recurse)
      : source_(source), length_(length), depth_(depth), recurse_(std::move(recurse)) {}

  // Moves to the next item; false at the end.
  bool advance(Runtime& runtime, Value& item);

  std::string_view type_name() const override { return "LoopContext"; }
  bool callable() const override { return true; }
  const Value* attribute(Runtime& runtime, std::string_view name) override;
  Value call(Runtime& runtime, const Args& args) override;

 private:
  std::optional<Value> value_of(Runtime& runtime, std::string_view name);
  bool peek(Runtime& runtime);
  int64_t length(Runtime& runtime);
  Value cycle(Runtime& runtime, const Args& args) const;
  Value changed(Runtime& runtime, const Args& args);

  Iterator* source_;
  std::optional<int64_t> length_;
  int64_t depth_;
  Recurse recurse_;
  int64_t index0_ = -1;
  Value current_, before_;
  std::optional<Value> ahead_;
  std::optional<std::vector<Value>> last_changed_;
  Value answer_;  // target of attribute()
};

}  // namespace braid::jinja
