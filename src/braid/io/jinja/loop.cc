#include "braid/io/jinja/loop.h"

#include "braid/io/jinja/args.h"
#include "braid/io/jinja/function.h"
#include "braid/io/jinja/iterate.h"
#include "braid/io/jinja/operators.h"

namespace braid::jinja {

bool Loop::advance(Runtime& runtime, Value& item) {
  if (!peek(runtime)) return false;
  item = *ahead_;
  ahead_.reset();
  ++index0_;
  before_ = current_;
  current_ = item;
  return true;
}

bool Loop::peek(Runtime& runtime) {
  Value item;
  if (!ahead_ && source_->next(runtime, item)) ahead_ = item;
  return ahead_.has_value();
}

int64_t Loop::length(Runtime& runtime) {
  if (length_) return *length_;
  Items rest(runtime);
  for (Value item; source_->next(runtime, item);) rest.add(item);
  length_ = static_cast<int64_t>(rest.view().size()) + index0_ + 1 + ahead_.has_value();
  source_ = make_iterator(runtime, rest.list());
  return *length_;
}

const Value* Loop::attribute(Runtime& runtime, std::string_view name) {
  const auto value = value_of(runtime, name);
  if (!value) return nullptr;
  answer_ = *value;
  return &answer_;
}

std::optional<Value> Loop::value_of(Runtime& runtime, std::string_view name) {
  if (name == "index") return Value(index0_ + 1);
  if (name == "index0") return Value(index0_);
  if (name == "first") return Value(index0_ == 0);
  if (name == "last") return Value(!peek(runtime));
  if (name == "length") return Value(length(runtime));
  if (name == "revindex") return Value(length(runtime) - index0_);
  if (name == "revindex0") return Value(length(runtime) - index0_ - 1);
  if (name == "depth") return Value(depth_);
  if (name == "depth0") return Value(depth_ - 1);
  if (name == "previtem") {
    return index0_ == 0 ? runtime.undefined("there is no previous item") : before_;
  }
  if (name == "nextitem") {
    return peek(runtime) ? *ahead_ : runtime.undefined("there is no next item");
  }
  if (name == "cycle") {
    return Value(runtime.make<Function>(
        "cycle", [this](Runtime& rt, const Args& args) { return cycle(rt, args); }));
  }
  if (name == "changed") {
    return Value(runtime.make<Function>(
        "changed", [this](Runtime& rt, const Args& args) { return changed(rt, args); }));
  }
  return std::nullopt;
}

Value Loop::cycle(Runtime& runtime, const Args& args) const {
  if (!args.named.empty()) runtime.fail("cycle() takes no keyword arguments");
  if (args.positional.empty()) runtime.fail("no items for cycling given");
  return args.positional[static_cast<size_t>(index0_) % args.positional.size()];
}

Value Loop::changed(Runtime& runtime, const Args& args) {
  if (!args.named.empty()) runtime.fail("changed() takes no keyword arguments");
  if (last_changed_ &&
      equal(runtime, runtime.tuple(*last_changed_), runtime.tuple(args.positional))) {
    return false;
  }
  last_changed_ = args.positional;
  return true;
}

Value Loop::call(Runtime& runtime, const Args& args) {
  const Bound bound(runtime, "loop", args, {"iterable"}, 1);
  if (!recurse_) {
    runtime.fail("The loop must have the 'recursive' marker to be called recursively.");
  }
  return recurse_(bound[0]);
}

}  // namespace braid::jinja
