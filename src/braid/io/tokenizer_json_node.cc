#include "braid/io/tokenizer_json_node.h"

#include "braid/base/error.h"
#include "braid/io/quoted.h"

namespace braid {

namespace {
const nlohmann::json kNull;
}  // namespace

JsonNode JsonNode::operator[](std::string_view key) const {
  if (!value_->is_object()) expected("an object");
  const auto it = value_->find(key);
  return {it == value_->end() ? kNull : *it,
          fmt::format("{}{}{}", place_, place_.ends_with(':') ? " " : ".", key)};
}

JsonNode JsonNode::at(size_t index) const {
  return {(*value_)[index], fmt::format("{}[{}]", place_, index)};
}

size_t JsonNode::array_size() const {
  if (is_null()) return 0;
  if (!value_->is_array()) expected("an array");
  return value_->size();
}

const JsonNode::Json::object_t& JsonNode::object() const {
  if (!value_->is_object()) expected("an object");
  return value_->get_ref<const Json::object_t&>();
}

bool JsonNode::boolean(bool otherwise) const {
  if (is_null()) return otherwise;
  if (!value_->is_boolean()) expected("true or false");
  return value_->get<bool>();
}

const std::string& JsonNode::text() const {
  if (!value_->is_string()) expected("a string");
  return value_->get_ref<const std::string&>();
}

const std::string& JsonNode::text(const std::string& otherwise) const {
  return is_null() ? otherwise : text();
}

int32_t JsonNode::id(int64_t limit) const {
  if (value_->is_number_integer()) {
    const bool fits = !value_->is_number_unsigned() || value_->get<uint64_t>() <= INT64_MAX;
    const int64_t id = fits ? value_->get<int64_t>() : -1;
    if (id >= 0 && id < limit) return static_cast<int32_t>(id);
  }
  expected(fmt::format("a token id from 0 to {}", limit - 1));
}

std::string JsonNode::shown() const {
  if (value_->is_string()) return braid::quoted(value_->get_ref<const std::string&>());
  if (value_->is_structured()) {
    return fmt::format("{} of {}", value_->is_array() ? "an array" : "an object", value_->size());
  }
  return value_->dump();
}

void JsonNode::expected(std::string_view what) const {
  fail(ErrorCode::kMalformed, "{} is {}, {} is expected", place_, shown(), what);
}

void JsonNode::unsupported(std::string_view known) const {
  fail(ErrorCode::kUnsupported, "{} is {}, which is not supported; known: {}", place_, shown(),
       known);
}

nlohmann::json parse_json_object(std::string_view text, std::string_view name) {
  try {
    auto document = nlohmann::json::parse(text);
    if (!document.is_object()) JsonNode(document, std::string(name)).expected("an object");
    return document;
  } catch (const nlohmann::json::parse_error& error) {
    fail(ErrorCode::kMalformed, "{} is not JSON at byte {} of {}", name, error.byte, text.size());
  } catch (const nlohmann::json::out_of_range& error) {  // a number such as 1e999
    fail(ErrorCode::kMalformed, "{} is not JSON: {}", name, error.what());
  }
}

}  // namespace braid
