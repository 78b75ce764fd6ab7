#include "braid/io/jinja/iterate.h"

#include "braid/io/jinja/utf8.h"

namespace braid::jinja {
namespace {

class Generator final : public Iterator {
 public:
  explicit Generator(std::function<bool(Runtime&, Value&)> next) : next_(std::move(next)) {}
  bool next(Runtime& runtime, Value& value) override {
    const Depth depth(runtime);  // generators wrap generators
    runtime.step();
    if (done_ || !next_(runtime, value)) {
      done_ = true;
      return false;
    }
    return true;
  }

 private:
  std::function<bool(Runtime&, Value&)> next_;
  bool done_ = false;
};

struct Start {
  Runtime& runtime;

  using Next = std::function<bool(Runtime&, Value&)>;
  Iterator* make(Next next) const { return runtime.make<Generator>(std::move(next)); }

  Iterator* operator()(const Undefined*) const {
    return make([](Runtime&, Value&) { return false; });
  }
  Iterator* operator()(const Str* s) const {
    return make([s, pos = size_t{0}](Runtime& rt, Value& value) mutable {
      if (pos >= s->text.size()) return false;
      const size_t begin = pos;
      utf8::next(s->text, pos);
      value = rt.str(s->text.substr(begin, pos - begin));
      return true;
    });
  }
  Iterator* operator()(const Sequence* s) const {
    return make([s, i = size_t{0}](Runtime&, Value& value) mutable {
      if (i >= s->items.size()) return false;
      value = s->items[i++];
      return true;
    });
  }
  Iterator* operator()(const Dict* d) const {
    return make([d, i = size_t{0}](Runtime&, Value& value) mutable {
      if (i >= d->entries.size()) return false;
      value = d->entries[i++].first;
      return true;
    });
  }
  Iterator* operator()(const Range* r) const {
    return make([r, i = int64_t{0}](Runtime&, Value& value) mutable {
      if (i >= r->size()) return false;
      value = r->at(i++);
      return true;
    });
  }
  Iterator* operator()(Iterator* iterator) const { return iterator; }
  Iterator* operator()(Instance* instance) const { return refuse(instance); }
  template <class T>
  Iterator* operator()(T scalar) const {
    return refuse(Value(scalar));
  }

  Iterator* refuse(const Value& value) const {
    runtime.fail("'{}' object is not iterable", type_name(value));
  }
};

}  // namespace

Iterator* make_iterator(Runtime& runtime, const Value& value) {
  return value.visit(Start{runtime});
}

bool iterable(const Value& value) {
  return !value.is_none() && !is_number(value) && !value.instance();
}

Value make_generator(Runtime& runtime, std::function<bool(Runtime&, Value&)> next) {
  return static_cast<Iterator*>(runtime.make<Generator>(std::move(next)));
}

std::vector<Value> collect(Runtime& runtime, const Value& value) {
  if (const Sequence* sequence = value.sequence()) {
    runtime.charge(sequence->items.size() * sizeof(Value));
    return sequence->items;
  }
  Items items(runtime);
  Iterator* iterator = make_iterator(runtime, value);
  for (Value item; iterator->next(runtime, item);) items.add(item);
  return items.take();
}

std::optional<int64_t> length(const Value& value) {
  if (const Str* s = value.str()) return s->length;
  if (const Sequence* s = value.sequence()) return static_cast<int64_t>(s->items.size());
  if (const Dict* d = value.dict()) return static_cast<int64_t>(d->entries.size());
  if (const auto* r = value.get<const Range*>()) return r->size();
  if (value.undefined()) return 0;
  return std::nullopt;
}

}  // namespace braid::jinja
