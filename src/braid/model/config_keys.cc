#include "braid/model/config_keys.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "braid/base/error.h"
#include "braid/io/quoted.h"

namespace braid {
namespace {

constexpr std::string_view kOrNull = "|null";

std::string shown(const nlohmann::json& value) {
  return braid::quoted(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), 60);
}

// A cell for people.
std::string cell_text(const KeyCell& cell) {
  const std::string value(cell.otherwise);
  switch (cell.use) {
    case KeyUse::ignored:
      return "";
    case KeyUse::refused:
      return value.empty() ? "refused" : "refused unless " + value;
    case KeyUse::read:
      break;
  }
  if (cell.wanted) return cell.null ? "wanted, may be null" : "wanted";
  if (value.empty()) return "read";
  return value == "null" || !cell.null ? value : value + ", may be null";
}

}  // namespace

KeyCell parse_cell(std::string_view text) {
  BRAID_CHECK(!text.empty(), "a cell is empty");
  KeyCell cell{.use = KeyUse::read};
  if (text == "-") return {};
  if (text.front() == '!') {
    return {.use = KeyUse::refused, .null = true, .otherwise = text.substr(1)};
  }
  if (text.ends_with(kOrNull)) {
    cell.null = true;
    text.remove_suffix(kOrNull.size());
  }
  cell.wanted = text == "*";
  if (text == "*" || text == "~") return cell;
  cell.otherwise = text;
  cell.null |= text == "null";
  return cell;
}

KeyCell KeyTable::cell(std::string_view key, std::string_view column) const {
  const auto row = std::ranges::find(keys, key, &ConfigKey::name);
  const auto at = std::ranges::find(columns, column);
  BRAID_CHECK(row != keys.end() && at != columns.end(), "{}: no key '{}' of '{}'", title, key,
              column);
  return parse_cell(row->cells[at - columns.begin()]);
}

std::string to_markdown(const KeyTable& table) {
  const size_t columns = table.columns.size();
  std::string rows =
      fmt::format("| {} | {} | note |\n|---|", table.title, fmt::join(table.columns, " | "));
  for (size_t i = 0; i <= columns; ++i) rows += "---|";
  rows += "\n";
  std::string alike;    // keys with one effect in all columns
  std::string ignored;  // keys that no column reads
  for (const ConfigKey& key : table.keys) {
    const auto cells = std::span(key.cells).first(columns);
    const bool equal = std::ranges::count(cells, cells[0]) == std::ssize(cells);
    if (!equal) {
      rows += fmt::format("| `{}` |", key.name);
      for (const std::string_view cell : cells)
        rows += fmt::format(" {} |", cell_text(parse_cell(cell)));
      rows += fmt::format(" {} |\n", key.note);
    } else if (const KeyCell cell = parse_cell(cells[0]); cell.use != KeyUse::ignored) {
      alike += fmt::format("| `{}` | {} | {} |\n", key.name, cell_text(cell), key.note);
    } else {
      ignored += fmt::format("{}`{}`", ignored.empty() ? "" : ", ", key.name);
      if (!key.note.empty()) ignored += fmt::format(" ({})", key.note);
    }
  }
  if (!alike.empty()) {
    rows += fmt::format("\n| {} | all columns | note |\n|---|---|---|\n{}", table.title, alike);
  }
  if (!ignored.empty()) rows += fmt::format("\nIgnored in all columns: {}.\n", ignored);
  return rows;
}

TableReader::TableReader(const JsonObject& object, std::string origin, const KeyTable& table,
                         std::string_view column)
    : object_(object), origin_(std::move(origin)), table_(table), column_(column) {
  for (const ConfigKey& key : table.keys) {
    const KeyCell cell = table.cell(key.name, column);
    if (cell.use != KeyUse::refused || !object.contains(key.name)) continue;
    const nlohmann::json& value = object.value().at(std::string(key.name));
    if (!cell.otherwise.empty() && value == nlohmann::json::parse(cell.otherwise)) continue;
    fail(ErrorCode::kUnsupported, "{}: {} is {}, which is not supported{}{}", origin_, key.name,
         shown(value), key.note.empty() ? "" : ": ", key.note);
  }
}

template <class T>
std::optional<T> TableReader::find(std::string_view key) const {
  const KeyCell cell = table_.cell(key, column_);
  if (cell.use != KeyUse::read) return std::nullopt;
  if (object_.contains(key)) return object_.find<T>(key);
  if (object_.value().contains(key)) {
    if (cell.null) return std::nullopt;
    fail(ErrorCode::kMalformed, "{}: {} is null, which a {} has no use for", origin_, key, column_);
  }
  if (cell.wanted) fail(ErrorCode::kNotFound, "{}: there is no {}", origin_, key);
  if (cell.otherwise.empty()) return std::nullopt;
  nlohmann::json defaults;
  defaults[std::string(key)] = nlohmann::json::parse(cell.otherwise);
  return JsonObject(std::string(table_.title), std::move(defaults)).find<T>(key);
}

template <class T>
T TableReader::get(std::string_view key) const {
  if (auto value = find<T>(key)) return *std::move(value);
  fail(ErrorCode::kMalformed, "{}: {} is null or missing", origin_, key);
}

#define BRAID_TABLE_GETTERS(T)                                         \
  template std::optional<T> TableReader::find(std::string_view) const; \
  template T TableReader::get(std::string_view) const
BRAID_TABLE_GETTERS(bool);
BRAID_TABLE_GETTERS(int64_t);
BRAID_TABLE_GETTERS(double);
BRAID_TABLE_GETTERS(std::string);
BRAID_TABLE_GETTERS(std::vector<std::string>);
BRAID_TABLE_GETTERS(std::vector<int64_t>);
#undef BRAID_TABLE_GETTERS

}  // namespace braid
