#include "braid/io/json_text.h"

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "braid/base/error.h"
#include "braid/io/foreign_file.h"
#include "braid/io/mapped_file.h"
#include "braid/io/quoted.h"

namespace braid {
namespace {

using nlohmann::json;

// Watches the parser's events for constructs that JSON itself allows.
class StrictJson {
 public:
  StrictJson(const std::string& origin, int max_depth) : origin_(origin), max_depth_(max_depth) {}

  bool operator()(int depth, json::parse_event_t event, const json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
        keys_.emplace_back();
        check_depth(depth);
        break;
      case json::parse_event_t::array_start:
        check_depth(depth);
        break;
      case json::parse_event_t::key:
        check_key(parsed.get_ref<const std::string&>());
        break;
      case json::parse_event_t::object_end:
        keys_.pop_back();
        break;
      default:
        break;
    }
    return true;
  }

 private:
  void check_depth(int depth) const {
    if (depth >= max_depth_) {
      fail(ErrorCode::kMalformed, "{}: JSON is nested deeper than {} levels", origin_, max_depth_);
    }
  }
  void check_key(const std::string& key) {
    if (!keys_.back().insert(key).second) {
      fail(ErrorCode::kMalformed, "{}: key {} occurs twice in one JSON object", origin_,
           braid::quoted(key));
    }
  }

  const std::string& origin_;
  int max_depth_;
  std::vector<std::set<std::string>> keys_;  // open objects' keys
};

}  // namespace

std::string json_error_text(const std::exception& error) {
  std::string_view text = error.what();  // "[json.exception.parse_error.101] parse error at ...: "
  const size_t bracket = text.find("] ");
  if (bracket != std::string_view::npos) text.remove_prefix(bracket + 2);
  std::string line = braid::quoted(text, 160);
  return line.substr(1, line.size() - 2);
}

json parse_json(std::string_view text, const std::string& origin, const JsonLimits& limits) {
  if (const auto what = foreign_file(std::as_bytes(std::span(text)))) {
    fail(ErrorCode::kMalformed, "{}: is {}", origin, *what);
  }
  if (static_cast<int64_t>(text.size()) > limits.bytes) {
    fail(ErrorCode::kMalformed, "{}: {} bytes of JSON, at most {} are allowed", origin, text.size(),
         limits.bytes);
  }
  // The JSON library takes a NUL for the end of the text.
  if (text.find('\0') != std::string_view::npos) {
    fail(ErrorCode::kMalformed, "{}: is no valid JSON: a NUL byte at {}", origin, text.find('\0'));
  }
  try {
    return json::parse(text.begin(), text.end(), StrictJson(origin, limits.depth));
  } catch (const json::exception& error) {
    fail(ErrorCode::kMalformed, "{}: is no valid JSON: {}", origin, json_error_text(error));
  }
}

json read_json_file(const std::string& path, const JsonLimits& limits) {
  const MappedFile file(path);
  return parse_json({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, path,
                    limits);
}

}  // namespace braid
