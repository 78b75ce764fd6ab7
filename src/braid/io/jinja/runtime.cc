#include "braid/io/jinja/runtime.h"

namespace braid::jinja {

Value Runtime::str(std::string text, bool markup) {
  check_text(text.size());
  charge(text.size());
  return make<Str>(std::move(text), markup);
}

Value Runtime::sequence(Sequence::Kind kind, std::vector<Value> items) {
  charge(items.size() * sizeof(Value));
  return make<Sequence>(kind, std::move(items));
}

Value Runtime::list(std::vector<Value> items) {
  return sequence(Sequence::Kind::list, std::move(items));
}

Value Runtime::tuple(std::vector<Value> items) {
  return sequence(Sequence::Kind::tuple, std::move(items));
}

Value Runtime::undefined(std::string why) {
  charge(why.size());
  return make<Undefined>(std::move(why));
}

void Runtime::charge(size_t bytes) {
  step(bytes / 64);
  heap_ += bytes;
  if (heap_ > limits_.heap_bytes) {
    fail_as(ErrorCode::kResource,
            fmt::format("the values made exceed the limit of {} bytes", limits_.heap_bytes));
  }
}

void Runtime::check_text(size_t bytes) const {
  if (bytes > limits_.text_bytes) {
    fail_as(ErrorCode::kResource,
            fmt::format("a text of {} bytes exceeds the limit of {}", bytes, limits_.text_bytes));
  }
}

void Runtime::fail_as(ErrorCode code, const std::string& message) const {
  braid::fail(code, "chat template line {}: {}", line_, message);
}

void Runtime::fail_undefined(const Value& value) const {
  fail("{}", value.undefined()->why);
}

void Runtime::fail_steps() const {
  fail_as(ErrorCode::kResource, fmt::format("more than {} steps", limits_.steps));
}

void Runtime::fail_depth() const {
  fail_as(ErrorCode::kResource, fmt::format("nested deeper than {} levels", limits_.depth));
}

std::tm Runtime::now() const {
  if (now_) return *now_;
  const std::time_t seconds = std::time(nullptr);
  std::tm local{};
  localtime_r(&seconds, &local);
  return local;
}

}  // namespace braid::jinja
