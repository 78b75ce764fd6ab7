#include "braid/io/gguf_metadata.h"

#include <cstring>
#include <type_traits>
#include <utility>

#include "braid/base/error.h"
#include "braid/io/quoted.h"

namespace braid {
namespace {

auto key_in(const std::vector<GgufEntry>& entries) {
  return [&entries](size_t i) { return entries[i].key; };
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

std::string_view load_string(const std::byte* at) {
  return {reinterpret_cast<const char*>(at) + sizeof(uint64_t), load<uint64_t>(at)};
}

// Calls visit(x) with the scalar at `at` in its own C++ type.
template <class Visit>
auto visit_scalar(GgufType type, const std::byte* at, const Visit& visit) {
  switch (type) {
    case GgufType::u8:
      return visit(load<uint8_t>(at));
    case GgufType::i8:
      return visit(load<int8_t>(at));
    case GgufType::u16:
      return visit(load<uint16_t>(at));
    case GgufType::i16:
      return visit(load<int16_t>(at));
    case GgufType::u32:
      return visit(load<uint32_t>(at));
    case GgufType::i32:
      return visit(load<int32_t>(at));
    case GgufType::f32:
      return visit(load<float>(at));
    case GgufType::boolean:
      return visit(load<uint8_t>(at) != 0);
    case GgufType::string:
      return visit(load_string(at));
    case GgufType::u64:
      return visit(load<uint64_t>(at));
    case GgufType::i64:
      return visit(load<int64_t>(at));
    case GgufType::f64:
      return visit(load<double>(at));
    case GgufType::array:
      break;
  }
  BRAID_CHECK(false, "arrays of arrays are refused when the file is read");
  __builtin_unreachable();
}

const std::byte* next(GgufType type, const std::byte* at) {
  return at + min_bytes(type) + (type == GgufType::string ? load_string(at).size() : 0);
}

template <class T>
constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

template <class To, class From>
bool convert(const From& from, To* to) {
  if constexpr (kIsInteger<To> && kIsInteger<From>) {
    *to = static_cast<To>(from);
    return std::in_range<To>(from);
  } else if constexpr (std::is_same_v<To, From> ||
                       (std::is_floating_point_v<To> && std::is_floating_point_v<From>)) {
    *to = static_cast<To>(from);
    return true;
  } else {
    return false;
  }
}

template <class T>
std::string wanted() {
  if constexpr (std::is_same_v<T, bool>) return "bool";
  if constexpr (std::is_same_v<T, std::string_view>) return "string";
  if constexpr (std::is_same_v<T, int32_t>) return "i32";
  if constexpr (std::is_same_v<T, uint32_t>) return "u32";
  if constexpr (std::is_same_v<T, int64_t>) return "i64";
  if constexpr (std::is_same_v<T, uint64_t>) return "u64";
  if constexpr (std::is_floating_point_v<T>) return "f32 or f64";
  return "";
}

// How values become T: one scalar, or an array element by element.
template <class T>
struct Decode {
  static std::string wanted_name() { return wanted<T>(); }
  static bool run(const GgufValue& value, T* out) {
    if (value.is_array) return false;
    return visit_scalar(value.type, value.data, [&](auto x) { return convert(x, out); });
  }
};

template <class T>
struct Decode<std::vector<T>> {
  static std::string wanted_name() { return "array of " + wanted<T>(); }
  static bool run(const GgufValue& value, std::vector<T>* out) {
    if (!value.is_array) return false;
    out->reserve(static_cast<size_t>(value.count));
    const std::byte* at = value.data;
    for (int64_t i = 0; i < value.count; ++i, at = next(value.type, at)) {
      T element;
      if (!visit_scalar(value.type, at, [&](auto x) { return convert(x, &element); })) return false;
      out->push_back(element);
    }
    return true;
  }
};

std::string scalar_text(GgufType type, const std::byte* at, size_t limit) {
  return visit_scalar(type, at, [&](auto x) {
    if constexpr (std::is_same_v<decltype(x), std::string_view>) {
      return quoted(x, limit);
    } else {
      return fmt::format("{}", x);
    }
  });
}

}  // namespace

std::string type_name(const GgufValue& value) {
  return value.is_array ? fmt::format("array of {} {}", value.count, name(value.type))
                        : std::string(name(value.type));
}

std::string preview(const GgufValue& value, size_t limit) {
  if (!value.is_array) return scalar_text(value.type, value.data, limit);
  std::string out = "[";
  const std::byte* at = value.data;
  for (int64_t i = 0; i < value.count; ++i, at = next(value.type, at)) {
    if (i > 0) out += ", ";
    if (out.size() >= limit) {
      out += "...";
      break;
    }
    out += scalar_text(value.type, at, limit);
  }
  return out + "]";
}

GgufMetadata::GgufMetadata(std::string file, std::vector<GgufEntry> entries)
    : file_(std::move(file)),
      entries_(std::move(entries)),
      index_(entries_.size(), key_in(entries_)) {
  if (const auto key = index_.duplicate(key_in(entries_))) {
    fail(ErrorCode::kMalformed, "{}: metadata key {} occurs twice", file_, quoted(*key));
  }
}

const GgufValue* GgufMetadata::value(std::string_view key) const {
  const auto at = index_.find(key, key_in(entries_));
  return at ? &entries_[*at].value : nullptr;
}

template <class T>
std::optional<T> GgufMetadata::find(std::string_view key) const {
  const GgufValue* found = value(key);
  if (found == nullptr) return std::nullopt;
  T out{};
  if (Decode<T>::run(*found, &out)) return out;
  fail(ErrorCode::kMalformed, "{}: metadata {} is {} ({}), wanted is {}", file_, quoted(key),
       preview(*found), type_name(*found), Decode<T>::wanted_name());
}

template <class T>
T GgufMetadata::get(std::string_view key) const {
  if (auto found = find<T>(key)) return *std::move(found);
  fail(ErrorCode::kNotFound, "{}: there is no metadata {} ({})", file_, quoted(key),
       Decode<T>::wanted_name());
}

#define BRAID_GGUF_GETTERS(T)                                                        \
  template std::optional<T> GgufMetadata::find(std::string_view) const;              \
  template T GgufMetadata::get(std::string_view) const;                              \
  template std::optional<std::vector<T>> GgufMetadata::find(std::string_view) const; \
  template std::vector<T> GgufMetadata::get(std::string_view) const
BRAID_GGUF_GETTERS(bool);
BRAID_GGUF_GETTERS(int32_t);
BRAID_GGUF_GETTERS(uint32_t);
BRAID_GGUF_GETTERS(int64_t);
BRAID_GGUF_GETTERS(uint64_t);
BRAID_GGUF_GETTERS(float);
BRAID_GGUF_GETTERS(double);
BRAID_GGUF_GETTERS(std::string_view);
#undef BRAID_GGUF_GETTERS

}  // namespace braid
