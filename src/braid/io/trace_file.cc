#include "braid/io/trace_file.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "braid/base/error.h"
#include "braid/base/math.h"
#include "braid/io/json_text.h"

namespace braid {
namespace {

constexpr int64_t kMostLength = int64_t{1} << 24;  // tokens of a prompt or an answer
constexpr int64_t kMostLineBytes = int64_t{4} << 20;
constexpr double kMostSeconds = 1e10;
constexpr std::string_view kCsvHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";

template <class T>
T number_of(std::string_view text, const std::string& where, std::string_view what) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    fail(ErrorCode::kMalformed, "{}: {} is '{}', wanted a number", where, what, text.substr(0, 40));
  }
  return value;
}

int64_t length_of(int64_t tokens, int64_t least, const std::string& where, std::string_view what) {
  if (tokens < least || tokens > kMostLength) {
    fail(ErrorCode::kMalformed, "{}: {} is {}, wanted {} to {}", where, what, tokens, least,
         kMostLength);
  }
  return std::max<int64_t>(tokens, 1);
}

double seconds_of(double seconds, const std::string& where, std::string_view what) {
  if (!(seconds >= 0 && seconds <= kMostSeconds)) {
    fail(ErrorCode::kMalformed, "{}: {} is {} s, wanted 0 to {}", where, what, seconds,
         kMostSeconds);
  }
  return seconds;
}

void check_blocks(const TraceRequest& r, const std::string& where) {
  if (r.blocks.empty()) return;
  const int64_t wanted = ceil_div(r.input, kTraceBlock);
  if (std::ssize(r.blocks) != wanted) {
    fail(ErrorCode::kMalformed, "{}: {} hash_ids, wanted {} for {} tokens in blocks of {}", where,
         r.blocks.size(), wanted, r.input, kTraceBlock);
  }
  std::vector<int64_t> sorted = r.blocks;
  std::ranges::sort(sorted);
  if (sorted.front() < 0) {
    fail(ErrorCode::kMalformed, "{}: a hash id is {}, wanted 0 or more", where, sorted.front());
  }
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end()) {
    fail(ErrorCode::kMalformed, "{}: the hash id {} stands twice", where, *twice);
  }
}

TraceRequest of_json(const std::string& line, const std::string& where) {
  const nlohmann::json json = parse_json(line, where, {.bytes = kMostLineBytes, .depth = 4});
  if (!json.is_object()) fail(ErrorCode::kMalformed, "{}: is no JSON object", where);
  const auto field = [&](const char* name) -> const nlohmann::json& {
    const auto it = json.find(name);
    if (it == json.end()) fail(ErrorCode::kMalformed, "{}: has no {}", where, name);
    return *it;
  };
  const auto integer = [&](const nlohmann::json& value, const char* name) {
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
    if (!fits) {
      fail(ErrorCode::kMalformed, "{}: {} is {}, wanted an integer", where, name,
           value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, 40));
    }
    return value.get<int64_t>();
  };
  const nlohmann::json& time = field("timestamp");
  if (!time.is_number()) fail(ErrorCode::kMalformed, "{}: timestamp is no number", where);
  TraceRequest r{
      .arrival = seconds_of(1e-3 * time.get<double>(), where, "timestamp"),
      .input = length_of(integer(field("input_length"), "input_length"), 1, where, "input_length"),
      .output =
          length_of(integer(field("output_length"), "output_length"), 0, where, "output_length"),
      .blocks = {}};
  if (const auto ids = json.find("hash_ids"); ids != json.end()) {
    if (!ids->is_array()) fail(ErrorCode::kMalformed, "{}: hash_ids is no list", where);
    for (const nlohmann::json& id : *ids) r.blocks.push_back(integer(id, "a hash id"));
  }
  check_blocks(r, where);
  return r;
}

// Seconds since 1970 of "2024-05-10 00:00:00.009930+00:00".
double time_of(std::string_view text, const std::string& where) {
  const auto wrong = [&] {
    fail(ErrorCode::kMalformed, "{}: TIMESTAMP is '{}', wanted YYYY-MM-DD HH:MM:SS.FRACTION", where,
         text.substr(0, 40));
  };
  std::string_view rest = text;
  for (std::string_view zone : {"+00:00", "Z"}) {
    if (rest.ends_with(zone)) rest.remove_suffix(zone.size());
  }
  if (rest.size() < 19 || rest[4] != '-' || rest[7] != '-' ||
      (rest[10] != ' ' && rest[10] != 'T') || rest[13] != ':' || rest[16] != ':' ||
      (rest.size() > 19 && rest[19] != '.')) {
    wrong();
  }
  const auto digits = [&](size_t at, size_t n, int most) {
    const std::string_view part = rest.substr(at, n);
    if (!std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; })) wrong();
    const int value = number_of<int>(part, where, "TIMESTAMP");
    if (value > most) wrong();
    return value;
  };
  const std::chrono::year_month_day day(std::chrono::year(digits(0, 4, 9999)),
                                        std::chrono::month(static_cast<unsigned>(digits(5, 2, 12))),
                                        std::chrono::day(static_cast<unsigned>(digits(8, 2, 31))));
  if (!day.ok()) wrong();
  const double fraction = rest.size() > 20
                              ? digits(20, std::min<size_t>(rest.size() - 20, 9), 999999999) /
                                    std::pow(10.0, std::min<size_t>(rest.size() - 20, 9))
                              : 0;
  const auto days = std::chrono::sys_days(day).time_since_epoch().count();
  return static_cast<double>(days) * 86400 + digits(11, 2, 23) * 3600 + digits(14, 2, 59) * 60 +
         digits(17, 2, 60) + fraction;
}

TraceRequest of_csv(std::string_view line, const std::string& where) {
  const size_t first = line.find(','),
               second = line.find(',', std::min(first, line.size() - 1) + 1);
  if (first == std::string_view::npos || second == std::string_view::npos ||
      line.find(',', second + 1) != std::string_view::npos) {
    fail(ErrorCode::kMalformed, "{}: wanted three values: {}", where, kCsvHeader);
  }
  const auto tokens = [&](std::string_view text, int64_t least, const char* what) {
    return length_of(number_of<int64_t>(text, where, what), least, where, what);
  };
  return {.arrival = time_of(line.substr(0, first), where),
          .input = tokens(line.substr(first + 1, second - first - 1), 1, "ContextTokens"),
          .output = tokens(line.substr(second + 1), 0, "GeneratedTokens"),
          .blocks = {}};
}

class TraceFile {
 public:
  explicit TraceFile(const std::string& path) : path_(path), file_(path, std::ios::binary) {
    if (!file_) fail(ErrorCode::kNotFound, "cannot open the trace '{}'", path);
    std::string first;
    if (!line(first)) fail(ErrorCode::kMalformed, "{}: is empty", path_);
    if (first.starts_with("{")) {
      kept_ = std::move(first);
    } else if (first == kCsvHeader) {
      csv_ = true;
    } else {
      fail(ErrorCode::kMalformed, "{}: wanted a JSON object or the header {}", where(), kCsvHeader);
    }
  }

  bool next(TraceRequest& request) {
    std::string text = std::move(kept_);
    kept_.clear();
    while (text.empty()) {
      if (!line(text)) return false;
    }
    request = csv_ ? of_csv(text, where()) : of_json(text, where());
    if (!begun_) start_ = request.arrival;
    if (begun_ && request.arrival < last_) {
      fail(ErrorCode::kMalformed, "{}: arrives {:.6g} s before the line before", where(),
           last_ - request.arrival);
    }
    begun_ = true;
    last_ = request.arrival;
    request.arrival -= start_;
    return true;
  }

 private:
  bool line(std::string& text) {
    using Traits = std::ifstream::traits_type;
    text.clear();
    std::streambuf& bytes = *file_.rdbuf();
    try {
      int byte = bytes.sbumpc();
      if (byte == Traits::eof()) return false;
      ++line_;
      for (; byte != '\n' && byte != Traits::eof(); byte = bytes.sbumpc()) {
        if (std::ssize(text) == kMostLineBytes) {
          fail(ErrorCode::kMalformed, "{}: a line of more than {} bytes", where(), kMostLineBytes);
        }
        text += static_cast<char>(byte);
      }
    } catch (const std::ios_base::failure&) {  // a directory, for one
      fail(ErrorCode::kResource, "cannot read the trace '{}'", path_);
    }
    if (text.ends_with('\r')) text.pop_back();
    return true;
  }
  std::string where() const { return fmt::format("{}:{}", path_, line_); }

  const std::string path_;
  std::ifstream file_;
  int64_t line_ = 0;
  std::string kept_;  // a first line with a request
  bool csv_ = false;
  bool begun_ = false;
  double start_ = 0, last_ = 0;
};

}  // namespace

TraceSource open_trace(const std::string& path) {
  return [file = std::make_shared<TraceFile>(path)](TraceRequest& r) { return file->next(r); };
}

TraceSource scaled(TraceSource source, const TraceScale& scale) {
  const auto taken = std::make_shared<int64_t>(0);
  return [source = std::move(source), scale, taken](TraceRequest& r) {
    if (scale.limit > 0 && *taken == scale.limit) return false;
    if (!source(r)) return false;
    ++*taken;
    r.arrival /= scale.rate;
    if (scale.lengths != 1) {
      const auto length = [&](int64_t tokens) {
        return std::max<int64_t>(1, std::llround(static_cast<double>(tokens) * scale.lengths));
      };
      r.input = length(r.input);
      r.output = length(r.output);
      r.blocks.clear();
    }
    return true;
  };
}

}  // namespace braid
