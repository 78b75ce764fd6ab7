#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "braid/io/json_object.h"

namespace braid {

// Keys in model files, and each family's treatment of each key. Readers go by these tables,
// docs/model-files.md shows the tables, and a test walks them: a key's entry is its effect.

enum class KeyUse : uint8_t {
  read,     // obeyed
  ignored,  // for any value, as the family's class in transformers or llama.cpp ignores the key
  refused,  // named in an error, for values other than `harmless`
};

// A table column's treatment of a key, written as text in the tables:
//   4096        read; stands for a missing key (JSON)
//   4096|null   as well, and null is a value of its own
//   null        read; a missing key is null
//   ~           read; a missing key has no value, null is refused
//   *, *|null   read; a missing key is refused
//   -           ignored
//   !, !1.0     refused, but for null and the JSON value that follows
struct KeyCell {
  KeyUse use = KeyUse::ignored;
  bool wanted = false;         // a missing key is refused
  bool null = false;           // null is a value
  std::string_view otherwise;  // the default, or the harmless value, as JSON; may be empty
};
KeyCell parse_cell(std::string_view text);

struct ConfigKey {
  std::string_view name;
  std::array<std::string_view, 13> cells;  // a KeyCell for each column
  std::string_view note;
};

struct KeyTable {
  std::string_view title;
  std::span<const std::string_view> columns;
  std::span<const ConfigKey> keys;

  // Fails with std::logic_error where the table has no such key or column.
  KeyCell cell(std::string_view key, std::string_view column) const;
};

const KeyTable& hf_keys();       // config.json; columns: families
const KeyTable& hf_rope_keys();  // its rope_parameters; columns: rope_type
const KeyTable& gguf_keys();     // behind "<architecture>."; columns: architectures
std::string to_markdown(const KeyTable& table);

// A JSON object, read by a column of a table.
class TableReader {
 public:
  // Fails with kUnsupported for a refused key, naming key and value.
  TableReader(const JsonObject& object, std::string origin, const KeyTable& table,
              std::string_view column);

  // The value, or the column's default; nothing if the column does not read the key, or for null.
  // Fails with kMalformed on null if null is no value, and on another type; with kNotFound for a
  // missing wanted key.
  template <class T>
  std::optional<T> find(std::string_view key) const;
  template <class T>
  T get(std::string_view key) const;  // fails with kMalformed where find() finds nothing

 private:
  const JsonObject& object_;
  const std::string origin_;
  const KeyTable& table_;
  const std::string_view column_;
};

}  // namespace braid
