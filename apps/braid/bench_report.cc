#include "braid/bench_report.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <numeric>

#include "braid/approximation_report.h"
#include "braid/table.h"
#include "braid/text_io.h"
#include "braid/version.h"

namespace braid::app {
namespace {

// "82% of 4550.0 GB/s" or "64% of 790.0 TFLOP/s": the nearer roof.
std::string floor_text(const BenchResult& r, const Roof& roof) {
  const double read = roof.bytes > 0 ? r.bytes / roof.bytes : 0;
  const double compute = roof.flops > 0 ? r.flops / roof.flops : 0;
  if (read == 0 && compute == 0) {
    return r.decode > 0 ? fmt::format("{:.0f} GB/s", 1e-9 * r.bytes / r.step_seconds()) : "-";
  }
  const double share = 100 * r.floor_share(roof);
  // What fits in the caches is read faster than the roof's large buffers.
  return read >= compute ? fmt::format("{:.0f}% of {:.1f} GB/s{}", share, 1e-9 * roof.bytes,
                                       share > 105 ? ", cached" : "")
                         : fmt::format("{:.0f}% of {:.1f} TFLOP/s", share, 1e-12 * roof.flops);
}

// "2", "2, ulysses".
std::string ranks_text(const EngineConfig& config) {
  const std::string text = std::to_string(config.tp);
  if (!config.sp) return text;
  return text + fmt::format(", {}", config.sp->mode ? to_string(*config.sp->mode) : "auto");
}

// The type with most bytes among the weights: "q4_k".
std::string weight_type(const Model& model) {
  if (model.random()) return std::string(name(model.weight_type("token_embd").dtype));
  std::map<std::string, int64_t> bytes;
  for (const TensorInfo& tensor : model.source().tensors())
    bytes[std::string(tensor.type)] += tensor.bytes;
  const auto most = std::ranges::max_element(bytes, {}, [](const auto& b) { return b.second; });
  return most == bytes.end() ? "" : most->first;
}

std::string model_name(const Model& model) {
  const ModelConfig& c = model.config();
  return fmt::format("{} {}", c.name.empty() ? c.family : c.name, weight_type(model));
}

const std::vector<TableColumn> kColumns = {{"model", false, 0},
                                           {"size", true, 9},
                                           {"params", true, 9},
                                           {"KV", false, 0},
                                           {"device", false, 0},
                                           {"ranks", true, 0},
                                           {"threads", true, 0},
                                           {"batch", true, 0},
                                           {"test", false, 13},
                                           {"tokens/s", true, 16},
                                           {"ms a step, a prompt", true, 0},
                                           {"of the roof", true, 18}};

std::vector<std::string> cells(const EngineConfig& config, const Generator& engine,
                               const Model& model, const BenchResult& r, const Roof& roof) {
  return {model_name(model),
          fmt::format("{:.2f} MiB", static_cast<double>(model.weight_bytes()) / (1 << 20)),
          fmt::format("{:.2f} M", static_cast<double>(model.parameters()) / 1e6),
          std::string(name(engine.kv_dtype())),
          config.device.cuda ? "cuda" : "cpu",
          ranks_text(config),
          std::to_string(engine.threads()),
          std::to_string(r.batch),
          r.name(),
          fmt::format("{:.2f} ± {:.2f}", r.mean(), r.spread()),
          fmt::format("{:.3f}", 1e3 * r.step_seconds()),
          floor_text(r, roof)};
}

std::string loop_text(const BenchResult& r, int64_t layers) {
  return fmt::format(
      "decode loop, batch {}: {} launches a step ({:.1f} a layer), {:.1f} us of CPU time for a "
      "replayed step\n",
      r.batch, r.loop.launches, static_cast<double>(r.loop.launches) / static_cast<double>(layers),
      r.loop.cpu_us);
}

// A CSV field (RFC 4180): numbers and lists of numbers unchanged, texts and objects between quotes.
std::string csv_field(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "";
  if (value.is_array()) {
    std::string joined;
    for (const auto& item : value) joined += (joined.empty() ? "" : ";") + item.dump();
    return joined;
  }
  if (!value.is_string() && !value.is_object()) return value.dump();
  std::string out = "\"";
  for (char c : value.is_string() ? value.get<std::string>() : value.dump())
    out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

}  // namespace

std::string BenchResult::name() const {
  std::string text = decode > 0 ? fmt::format("tg{}", decode) : fmt::format("pp{}", prompt);
  if (depth > 0) text += fmt::format(" @ d{}", depth);
  if (own > 0) text += fmt::format(", {} own", own);
  if (!communication) text += ", no communication";
  if (approximate) {
    text += fmt::format(", approximate {:.0f}%", 100 * approximate->shares.pair_share());
  }
  return text;
}

std::vector<double> BenchResult::tokens_per_s() const {
  std::vector<double> rates;
  const auto tokens = static_cast<double>((batch + own) * (prompt + decode));
  for (double s : seconds) rates.push_back(tokens / s);
  return rates;
}

double BenchResult::mean() const {
  const std::vector<double> rates = tokens_per_s();
  return std::accumulate(rates.begin(), rates.end(), 0.0) / static_cast<double>(rates.size());
}

double BenchResult::spread() const {
  double sum = 0;
  for (double x : tokens_per_s()) sum += (x - mean()) * (x - mean());
  const auto n = static_cast<double>(seconds.size());
  return n > 1 ? std::sqrt(sum / (n - 1)) : 0;
}

double BenchResult::step_seconds() const {
  return static_cast<double>((batch + own) * (decode > 0 ? 1 : prompt)) / mean();
}

double BenchResult::floor_share(const Roof& roof) const {
  const double read = roof.bytes > 0 ? bytes / roof.bytes : 0;
  const double compute = roof.flops > 0 ? flops / roof.flops : 0;
  return std::max(read, compute) / step_seconds();
}

BenchFormat parse_bench_format(const std::string& text) {
  if (text == "table") return BenchFormat::table;
  if (text == "json") return BenchFormat::json;
  if (text == "jsonl") return BenchFormat::jsonl;
  if (text == "csv") return BenchFormat::csv;
  fail(ErrorCode::kInvalidArgument, "--output '{}': table, json, jsonl or csv", text);
}

BenchReport::BenchReport(BenchFormat format, const EngineConfig& config, const Generator& engine,
                         const Model& model, const Roof& roof)
    : format_(format), config_(config), engine_(engine), model_(model), roof_(roof) {}

void BenchReport::add(const BenchResult& result) {
  results_.push_back(result);
  const bool first = results_.size() == 1;
  if (format_ == BenchFormat::table) {
    const auto row = cells(config_, engine_, model_, result, roof_);
    // Values common to all rows set the width of their column.
    std::vector<TableColumn> columns = kColumns;
    for (size_t c = 0; c < columns.size(); ++c) columns[c].widen(row[c]);
    print((first ? table_head(columns) : "") + table_row(columns, row));
  } else if (format_ == BenchFormat::jsonl) {
    print(json_text(line_json(result)) + "\n");
  } else if (format_ == BenchFormat::csv) {
    const nlohmann::ordered_json line = line_json(result);
    std::string head, row;
    for (const auto& [key, value] : line.items()) {
      head += (head.empty() ? "" : ",") + key;
      row += (row.empty() ? "" : ",") + csv_field(value);
    }
    print((first ? head + "\n" : "") + row + "\n");
  }
}

void BenchReport::finish() {
  if (format_ == BenchFormat::json) {
    nlohmann::ordered_json report = run_json(), tests = nlohmann::ordered_json::array();
    for (const BenchResult& r : results_) tests.push_back(row_json(r));
    report["tests"] = std::move(tests);
    report["peak_rss_mb"] = peak_rss_mb();
    print(json_text(report, 2) + "\n");
  } else if (format_ == BenchFormat::table) {
    if (!config_.communication) {
      print("ranks exchange nothing: results are wrong, times alone mean something\n");
    }
    for (const BenchResult& r : results_) {
      if (r.loop.steps > 0) print(loop_text(r, model_.config().layers));
    }
    print(version_line() + "\n");
  }
}

nlohmann::ordered_json BenchReport::run_json() const {
  return {{"date", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
          {"version", version_line()},
          {"machine", cpu_line()},
          {"model", model_.config().name},
          {"family", model_.config().family},
          {"weight_type", weight_type(model_)},
          {"communication", config_.communication},
          {"weight_bytes", model_.weight_bytes()},
          {"parameters", model_.parameters()},
          {config_.sp ? "sp" : "tp", config_.tp},
          {"schedule", config_.schedule},
          {"device", config_.device.cuda ? gpu_name(config_.device.first_gpu()) : "cpu"},
          {"threads", engine_.threads()},
          {"chunk", engine_.prefill_chunk()},
          {"kv_dtype", name(engine_.kv_dtype())},
          {"read_bandwidth", roof_.bytes},
          {"product_rate", roof_.flops}};
}

nlohmann::ordered_json BenchReport::row_json(const BenchResult& r) const {
  nlohmann::ordered_json test = {{"name", r.name()},
                                 {"prompt", r.prompt},
                                 {"decode", r.decode},
                                 {"depth", r.depth},
                                 {"batch", r.batch},
                                 {"repetitions", r.seconds.size()},
                                 {"tokens_per_s", r.mean()},
                                 {"spread", r.spread()},
                                 {"samples", r.tokens_per_s()},
                                 {"step_ms", 1e3 * r.step_seconds()},
                                 {"flops", r.flops}};
  if (r.decode > 0) {
    test["bytes_per_token"] = r.bytes / static_cast<double>(r.batch);
    if (roof_.bytes > 0) test["bandwidth_share"] = r.bytes / roof_.bytes / r.step_seconds();
  }
  if (r.floor_share(roof_) > 0) test["floor_share"] = r.floor_share(roof_);
  add_approximation(test, r.approximate);
  if (r.loop.steps > 0) {
    test["launches"] = r.loop.launches;
    test["cpu_us"] = r.loop.cpu_us;
  }
  return test;
}

// Every line has every key: null where a row has no such value.
nlohmann::ordered_json BenchReport::line_json(const BenchResult& r) const {
  nlohmann::ordered_json line = run_json();
  const nlohmann::ordered_json row = row_json(r);
  for (const auto& [key, value] : row.items()) line[key] = value;
  for (const char* key :
       {"bytes_per_token", "bandwidth_share", "floor_share", "approximate", "launches", "cpu_us"}) {
    const nlohmann::ordered_json value = row.contains(key) ? row[key] : nullptr;
    line.erase(key);
    line[key] = value;
  }
  return line;
}

}  // namespace braid::app
