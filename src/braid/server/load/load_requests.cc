#include "braid/server/load/load_requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "braid/base/error.h"
#include "braid/io/json_text.h"

namespace braid::server {
namespace {

constexpr std::string_view kWords[] = {
    "time",    "year",     "people", "way",    "day",     "man",    "thing",    "woman",
    "life",    "child",    "world",  "school", "state",   "family", "group",    "country",
    "problem", "hand",     "part",   "place",  "case",    "week",   "company",  "system",
    "program", "question", "work",   "number", "night",   "point",  "home",     "water",
    "room",    "mother",   "area",   "money",  "story",   "fact",   "month",    "lot",
    "right",   "study",    "book",   "eye",    "job",     "word",   "business", "issue",
    "side",    "kind",     "head",   "house",  "service", "friend", "father",   "power",
    "hour",    "game",     "line",   "end",    "member",  "law",    "car",      "city"};

int64_t around(std::mt19937_64& random, int64_t length, double ratio) {
  const double span = static_cast<double>(length) * ratio;
  std::uniform_real_distribution<double> pick(static_cast<double>(length) - span,
                                              static_cast<double>(length) + span);
  return std::max<int64_t>(1, std::llround(span > 0 ? pick(random) : static_cast<double>(length)));
}

LoadRequest of_line(const LoadConfig& config, const std::string& line, const std::string& where) {
  const Json json = Json(parse_json(line, where));
  if (!json.is_object()) fail(ErrorCode::kMalformed, "{}: is no object", where);
  LoadRequest request{.output_len = config.output_len};
  for (const char* name : {"max_tokens", "output_tokens", "output_len"}) {
    const auto it = json.find(name);
    if (it == json.end()) continue;
    if (!it->is_number_integer() || it->get<int64_t>() < 1) {
      fail(ErrorCode::kMalformed, "{}: {} is {}, wanted a positive integer", where, name,
           it->dump());
    }
    request.output_len = it->get<int64_t>();
  }
  const auto messages = json.find("messages"), prompt = json.find("prompt");
  if (messages != json.end() && messages->is_array()) {
    if (!config.chat) {
      fail(ErrorCode::kMalformed, "{}: has messages, which /completions does not take", where);
    }
    request.prompt = *messages;
  } else if (prompt != json.end() && prompt->is_string()) {
    request.prompt = *prompt;
  } else {
    fail(ErrorCode::kMalformed, "{}: has neither a text as prompt nor a list as messages", where);
  }
  return request;
}

std::vector<LoadRequest> of_file(const LoadConfig& config) {
  std::ifstream file(config.file);
  if (!file) fail(ErrorCode::kNotFound, "cannot open {}", config.file);
  std::vector<LoadRequest> lines;
  std::string line;
  for (int number = 1; std::getline(file, line) && std::ssize(lines) < config.requests; ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    lines.push_back(of_line(config, line, fmt::format("{}:{}", config.file, number)));
  }
  if (lines.empty()) fail(ErrorCode::kMalformed, "{} holds no requests", config.file);
  for (size_t i = 0; std::ssize(lines) < config.requests; ++i) {
    LoadRequest again = lines[i];
    lines.push_back(std::move(again));
  }
  return lines;
}

}  // namespace

int64_t WordCost::words(int64_t tokens) const {
  return std::max<int64_t>(1, std::llround((static_cast<double>(tokens) - base) / per_word));
}

std::string random_words(std::mt19937_64& random, int64_t count) {
  std::uniform_int_distribution<size_t> pick(0, std::size(kWords) - 1);
  std::string text;
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0) text += ' ';
    text += kWords[pick(random)];
  }
  return text;
}

std::vector<LoadRequest> load_requests(const LoadConfig& config, const WordCost& cost) {
  if (config.dataset == DatasetKind::jsonl) return of_file(config);
  std::mt19937_64 random(config.seed);
  const bool shared = config.dataset == DatasetKind::shared_prefix;
  std::vector<std::string> prefixes(shared ? static_cast<size_t>(config.prefixes) : 0);
  // A prompt's constant part is counted once, with the words that only this prompt has.
  const WordCost words{0, cost.per_word};
  for (std::string& prefix : prefixes) {
    prefix = random_words(random, words.words(config.prefix_len)) + " ";
  }
  std::vector<LoadRequest> requests;
  for (int64_t i = 0; i < config.requests; ++i) {
    const int64_t input = around(random, config.input_len, config.range_ratio);
    const int64_t output = around(random, config.output_len, config.range_ratio);
    std::string text;
    if (shared) text = prefixes[random() % prefixes.size()];
    text += random_words(random, cost.words(input));
    requests.push_back({text, output});
  }
  return requests;
}

std::vector<double> arrival_times(const LoadConfig& config) {
  std::vector<double> times(static_cast<size_t>(config.requests), 0.0);
  if (config.rate <= 0) return times;
  std::mt19937_64 random(config.seed + 1);
  std::exponential_distribution<double> gap(config.rate);
  for (size_t i = 1; i < times.size(); ++i) {
    times[i] =
        times[i - 1] + (config.arrivals == Arrivals::poisson ? gap(random) : 1 / config.rate);
  }
  return times;
}

Json load_body(const LoadConfig& config, const LoadRequest& request) {
  Json body = {{"model", config.model}};
  if (!config.chat) {
    body["prompt"] = request.prompt;
  } else if (request.prompt.is_array()) {
    body["messages"] = request.prompt;
  } else {
    body["messages"] = Json::array({{{"role", "user"}, {"content", request.prompt}}});
  }
  body["max_tokens"] = request.output_len;
  body["temperature"] = config.temperature;
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  if (config.ignore_eos) body["ignore_eos"] = true;
  for (const auto& [name, value] : config.extra.items()) body[name] = value;
  return body;
}

}  // namespace braid::server
