#include "braid/io/jinja/globals.h"

#include <array>

#include "braid/io/jinja/args.h"
#include "braid/io/jinja/function.h"
#include "braid/io/jinja/iterate.h"
#include "braid/io/jinja/namespace.h"
#include "braid/io/jinja/operators.h"
#include "braid/io/jinja/text.h"

namespace braid::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // the sandbox's limit

Value range(Runtime& runtime, const Args& args) {
  const Bound bound(runtime, "range", args, {"start", "stop", "step"}, 1);
  const int64_t first = bound.integer(0, 0);
  const Range range(bound.has(1) ? first : 0, bound.has(1) ? bound.integer(1, 0) : first,
                    bound.integer(2, 1));
  if (range.step == 0) runtime.fail("range() arg 3 must not be zero");
  const double size = (static_cast<double>(range.end) - static_cast<double>(range.begin)) /
                      static_cast<double>(range.step);
  if (size > 2.0 * kMaxRange || range.size() > kMaxRange) {
    runtime.fail_as(ErrorCode::kResource,
                    fmt::format("a range from {} to {} by {} is longer than {}", range.begin,
                                range.end, range.step, kMaxRange));
  }
  return runtime.make<Range>(range.begin, range.end, range.step);
}

// dict(mapping or pairs, name=value...)
Dict* make_dict(Runtime& runtime, const Args& args) {
  auto* dict = runtime.make<Dict>();
  if (args.positional.size() > 1) runtime.fail("dict() takes at most one positional argument");
  if (!args.positional.empty()) {
    const Value& source = args.positional[0];
    if (source.undefined()) runtime.fail_undefined(source);
    if (source.dict()) {
      for (const auto& [key, value] : source.dict()->entries) insert(runtime, *dict, key, value);
    } else {
      for (const Value& item : collect(runtime, source)) {
        const auto pair = collect(runtime, item);
        if (pair.size() != 2) runtime.fail("dict() needs pairs, not {} items", pair.size());
        insert(runtime, *dict, pair[0], pair[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) {
    insert(runtime, *dict, runtime.str(std::string(name)), value);
  }
  return dict;
}

Value dict(Runtime& runtime, const Args& args) {
  return make_dict(runtime, args);
}

Value make_namespace(Runtime& runtime, const Args& args) {
  Dict* attributes = make_dict(runtime, args);
  for (const auto& entry : attributes->entries) {
    if (entry.first.str() && entry.first.str()->text.starts_with('_')) {
      runtime.fail("a namespace attribute must not begin with an underscore: '{}'",
                   entry.first.str()->text);
    }
  }
  return runtime.make<Namespace>(attributes);
}

Value raise_exception(Runtime& runtime, const Args& args) {
  const Bound bound(runtime, "raise_exception", args, {"message"}, 1);
  throw Error(ErrorCode::kInvalidArgument, to_str(runtime, bound[0]));
}

Value strftime_now(Runtime& runtime, const Args& args) {
  const Bound bound(runtime, "strftime_now", args, {"format"}, 1);
  const std::string format(bound.text(0));
  if (format.empty()) return runtime.str("");
  if (format.size() > 256) runtime.fail("strftime_now: a format of {} bytes", format.size());
  const std::tm now = runtime.now();
  std::array<char, 8192> buffer;
  const size_t n = std::strftime(buffer.data(), buffer.size(), format.c_str(), &now);
  return runtime.str(std::string(buffer.data(), n));
}

// joiner(separator): empty on its first call, the separator on the others.
Value joiner(Runtime& runtime, const Args& args) {
  const Bound bound(runtime, "joiner", args, {"sep"});
  const Value separator = bound.has(0) ? bound[0] : runtime.str(", ");
  return runtime.make<Function>(
      "joiner", [separator, used = false](Runtime& rt, const Args& none) mutable -> Value {
        const Bound empty(rt, "joiner", none, {});
        return std::exchange(used, true) ? separator : rt.str("");
      });
}

// cycler(items...): next(), reset() and current.
class Cycler final : public Instance {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {}
  std::string_view type_name() const override { return "Cycler"; }
  const Value* attribute(Runtime& runtime, std::string_view name) override {
    if (name == "current") return &items_[at_];
    if (name != "next" && name != "reset") return nullptr;
    const bool next = name == "next";
    answer_ = runtime.make<Function>(std::string(name), [this, next](Runtime&, const Args&) {
      const Value now = items_[at_];
      at_ = next ? (at_ + 1) % items_.size() : 0;
      return next ? now : Value();
    });
    return &answer_;
  }

 private:
  std::vector<Value> items_;
  size_t at_ = 0;
  Value answer_;
};

Value cycler(Runtime& runtime, const Args& args) {
  if (args.positional.empty() || !args.named.empty()) {
    runtime.fail("cycler() takes at least one item and no keyword arguments");
  }
  return runtime.make<Cycler>(args.positional);
}

}  // namespace

void set_globals(Runtime& runtime, Scope& scope) {
  const auto set = [&](std::string_view name, Value (*body)(Runtime&, const Args&)) {
    scope.set(runtime, name, Value(runtime.make<Function>(std::string(name), body)));
  };
  set("range", range);
  set("dict", dict);
  set("namespace", make_namespace);
  set("joiner", joiner);
  set("cycler", cycler);
  set("raise_exception", raise_exception);
  set("strftime_now", strftime_now);
}

}  // namespace braid::jinja
