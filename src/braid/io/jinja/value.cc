#include "braid/io/jinja/value.h"

#include "braid/io/jinja/runtime.h"
#include "braid/io/jinja/utf8.h"

namespace braid::jinja {
namespace {

struct TypeName {
  std::string_view operator()(None) const { return "NoneType"; }
  std::string_view operator()(bool) const { return "bool"; }
  std::string_view operator()(int64_t) const { return "int"; }
  std::string_view operator()(double) const { return "float"; }
  std::string_view operator()(const Undefined*) const { return "Undefined"; }
  std::string_view operator()(const Str*) const { return "str"; }
  std::string_view operator()(const Dict*) const { return "dict"; }
  std::string_view operator()(const Range*) const { return "range"; }
  std::string_view operator()(Iterator*) const { return "generator"; }
  std::string_view operator()(Instance* instance) const { return instance->type_name(); }
  std::string_view operator()(const Sequence* sequence) const {
    switch (sequence->kind) {
      case Sequence::Kind::list:
        return "list";
      case Sequence::Kind::tuple:
        return "tuple";
      case Sequence::Kind::items:
        return "dict_items";
      case Sequence::Kind::keys:
        return "dict_keys";
      case Sequence::Kind::values:
        return "dict_values";
    }
    return "sequence";
  }
};

}  // namespace

Str::Str(std::string t, bool safe) : text(std::move(t)), length(utf8::count(text)), markup(safe) {}

int64_t Range::size() const {
  const __int128 span = step > 0 ? __int128{end} - begin : __int128{begin} - end;
  const __int128 stride = step > 0 ? __int128{step} : -__int128{step};
  return span > 0 ? static_cast<int64_t>((span - 1) / stride + 1) : 0;
}

Value Instance::call(Runtime& runtime, const Args&) {
  runtime.fail("'{}' object is not callable", type_name());
}

bool Value::same(const Value& other) const {
  return data_.index() == other.data_.index() &&
         std::visit(
             [&](const auto& mine) {
               using T = std::decay_t<decltype(mine)>;
               if constexpr (std::is_same_v<T, None>) {
                 return true;
               } else {
                 return mine == *std::get_if<T>(&other.data_);
               }
             },
             data_);
}

std::string_view type_name(const Value& value) {
  return value.visit(TypeName{});
}

bool is_number(const Value& value) {
  return value.get_if<bool>() || value.get_if<int64_t>() || value.get_if<double>();
}

bool is_integer(const Value& value, int64_t* out) {
  if (const bool* b = value.get_if<bool>()) {
    *out = *b;
    return true;
  }
  if (const int64_t* i = value.get_if<int64_t>()) {
    *out = *i;
    return true;
  }
  return false;
}

double to_double(const Value& number) {
  int64_t i = 0;
  if (is_integer(number, &i)) return static_cast<double>(i);
  return number.get<double>();
}

}  // namespace braid::jinja
