#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <memory>

#include "braid/base/error.h"
#include "braid/commands.h"
#include "braid/options.h"
#include "braid/server/load/load_run.h"
#include "braid/settings.h"
#include "braid/table.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

struct BenchServeOptions {
  server::LoadConfig load;
  std::string url = "http://127.0.0.1:8000", endpoint = "chat", dataset = "random", rate = "inf",
              arrivals = "poisson", goodput, key_file, extra;
  bool json = false, details = false;
};

double number_of(const std::string& option, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value > 0) ||
      !std::isfinite(value)) {
    fail(ErrorCode::kInvalidArgument, "{} has '{}', wanted a number above 0", option, text);
  }
  return value;
}

// http://HOST[:PORT][/BASE]; without a base it is /v1.
void read_url(const std::string& url, server::LoadConfig& load) {
  std::string_view rest = url;
  if (!rest.starts_with("http://")) {
    fail(ErrorCode::kInvalidArgument, "--url is '{}', wanted http://HOST:PORT, without TLS", url);
  }
  rest.remove_prefix(7);
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view host = rest.substr(0, slash), base = rest.substr(slash);
  load.port = 80;
  if (const size_t colon = host.rfind(':'); colon != std::string_view::npos) {
    const double port = number_of("--url", host.substr(colon + 1));
    if (port > 65535 || port != std::floor(port))
      fail(ErrorCode::kInvalidArgument, "--url has port {}, wanted 1 to 65535", port);
    load.port = static_cast<int>(port);
    host = host.substr(0, colon);
  }
  while (base.ends_with('/')) base.remove_suffix(1);
  load.host = host;
  load.base = base.empty() ? "/v1" : std::string(base);
}

// "ttft:200,tpot:50,e2el:5000", milliseconds.
server::GoodputLimits read_goodput(std::string_view text) {
  server::GoodputLimits limits;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(part.size() + 1, text.size()));
    const size_t colon = std::min(part.find(':'), part.size());
    const std::string_view name = part.substr(0, colon);
    std::optional<double>* limit = name == "ttft"   ? &limits.ttft
                                   : name == "tpot" ? &limits.tpot
                                   : name == "e2el" ? &limits.e2el
                                                    : nullptr;
    if (limit == nullptr || colon == part.size()) {
      fail(ErrorCode::kInvalidArgument, "--goodput has '{}', wanted ttft:MS, tpot:MS or e2el:MS",
           part);
    }
    *limit = number_of("--goodput", part.substr(colon + 1)) / 1e3;
  }
  return limits;
}

void complete(BenchServeOptions& o) {
  server::LoadConfig& load = o.load;
  read_url(o.url, load);
  if (o.endpoint != "chat" && o.endpoint != "completions") {
    fail(ErrorCode::kInvalidArgument, "--endpoint is '{}', wanted chat or completions", o.endpoint);
  }
  load.chat = o.endpoint == "chat";
  if (o.dataset == "shared-prefix") {
    load.dataset = server::DatasetKind::shared_prefix;
  } else if (o.dataset != "random") {
    load.dataset = server::DatasetKind::jsonl;
    load.file = o.dataset;
  }
  if (o.rate != "inf") load.rate = number_of("--rate", o.rate);
  if (o.arrivals != "poisson" && o.arrivals != "constant") {
    fail(ErrorCode::kInvalidArgument, "--arrivals is '{}', wanted poisson or constant", o.arrivals);
  }
  load.arrivals = o.arrivals == "poisson" ? server::Arrivals::poisson : server::Arrivals::constant;
  load.goodput = read_goodput(o.goodput);
  if (!o.key_file.empty()) {
    load.key = read_file(o.key_file);
    load.key.erase(load.key.find_last_not_of(" \t\r\n") + 1);
  }
  if (!o.extra.empty()) {
    load.extra = server::Json::parse(o.extra, nullptr, false);
    if (!load.extra.is_object())
      fail(ErrorCode::kInvalidArgument, "--extra-body is '{}', wanted a JSON object", o.extra);
  }
  require_between("--num-prompts", load.requests, 1, 1 << 20);
  require_between("--input-len", load.input_len, 1, kMostTokens);
  require_between("--output-len", load.output_len, 1, kMostTokens);
  require_between("--prefix-len", load.prefix_len, 1, kMostTokens);
  require_between("--prefixes", load.prefixes, 1, 1 << 20);
  require_between("--concurrency", load.concurrency, 0, 1 << 16);
  require_between("--warm-up", load.warm_up, 0, 1 << 16);
  if (!(load.range_ratio >= 0 && load.range_ratio < 1)) {
    fail(ErrorCode::kInvalidArgument, "--range-ratio is {}, wanted 0 to less than 1",
         load.range_ratio);
  }
  if (!(load.timeout > 0))
    fail(ErrorCode::kInvalidArgument, "--timeout is {}, wanted above 0", load.timeout);
}

std::string text_of(const server::Json& report) {
  const auto number = [&](const std::string& name) {
    return fmt::format("{:.1f}", report[name].get<double>());
  };
  std::string text = fmt::format(
      "{}: {} of {} answers in {:.1f} s, {} at once at most\n"
      "requests {:.2f}/s{}, tokens {:.1f}/s out, {:.1f}/s in and out ({} in, {} out)\n",
      report["model_id"].get<std::string>(), report["completed"].get<int64_t>(),
      report["num_prompts"].get<int64_t>(), report["duration"].get<double>(),
      report["max_concurrent_requests"].get<int64_t>(), report["request_throughput"].get<double>(),
      report["request_goodput"].is_null()
          ? ""
          : fmt::format(" ({:.2f}/s good)", report["request_goodput"].get<double>()),
      report["output_throughput"].get<double>(), report["total_token_throughput"].get<double>(),
      report["total_input_tokens"].get<int64_t>(), report["total_output_tokens"].get<int64_t>());
  for (const auto& [kind, count] : report["errors_by_kind"].items()) {
    text += fmt::format("failed, {}: {}\n", kind, count.get<int64_t>());
  }
  if (const int64_t n = report["answers_without_usage"]; n > 0)
    text += fmt::format("{} answers had no usage: their pieces are counted as tokens\n", n);
  std::vector<std::vector<std::string>> rows;
  for (const auto& [label, name] :
       {std::pair("time to first token", "ttft"), std::pair("time per output token", "tpot"),
        std::pair("between two pieces", "itl"), std::pair("whole answer", "e2el")}) {
    const std::string ms = std::string(name) + "_ms";
    rows.push_back({label, number("mean_" + ms), number("median_" + ms), number("p99_" + ms)});
  }
  return text + table_text({{"ms"}, {"mean", true}, {"P50", true}, {"P99", true}}, rows) + "\n";
}

void bench_serve(BenchServeOptions& o) {
  complete(o);
  raise_file_limit();
  const server::LoadRun run = server::run_load(o.load);
  const server::Json report = server::load_report(run, o.details);
  print(o.json || o.details ? json_text(report, 2) + "\n" : text_of(report));
  for (const server::LoadResult& result : run.results) {
    if (result.error.empty()) continue;
    fail(ErrorCode::kAborted, "{} of {} requests failed, the first with {}: {}",
         report["failed"].get<int64_t>(), run.results.size(), result.error, result.detail);
  }
}

}  // namespace

void add_bench_serve(CLI::App& bench) {
  auto* command = bench.add_subcommand("serve", "Measures an OpenAI-compatible server under load");
  const auto o = std::make_shared<BenchServeOptions>();
  server::LoadConfig& load = o->load;
  command->add_option("--url", o->url, "the server; a path in it takes /v1's place")
      ->capture_default_str();
  command->add_option("--model", load.model, "its name for the model; else the first it lists");
  command->add_option("--endpoint", o->endpoint, "chat or completions")->capture_default_str();
  command->add_option("--api-key-file", o->key_file, "a file with the API key alone");
  command
      ->add_option("--dataset", o->dataset,
                   "random, shared-prefix, or a JSONL file of \"prompt\" or \"messages\"")
      ->capture_default_str();
  command->add_option("-n,--num-prompts", load.requests, "requests")->capture_default_str();
  command->add_option("--input-len", load.input_len, "tokens of a prompt, behind its prefix")
      ->capture_default_str();
  command->add_option("--output-len", load.output_len, "tokens of an answer at most")
      ->capture_default_str();
  command
      ->add_option("--range-ratio", load.range_ratio,
                   "lengths vary by this share of themselves, up and down")
      ->capture_default_str();
  command->add_option("--prefix-len", load.prefix_len, "of shared-prefix: tokens in common")
      ->capture_default_str();
  command->add_option("--prefixes", load.prefixes, "of shared-prefix: different prefixes")
      ->capture_default_str();
  command->add_option("--rate", o->rate, "requests that arrive in a second; inf: all at once")
      ->capture_default_str();
  command->add_option("--arrivals", o->arrivals, "with --rate: poisson or constant")
      ->capture_default_str();
  command
      ->add_option("--concurrency", load.concurrency,
                   "clients: each sends when its answer is there (a closed loop); 0: no limit")
      ->capture_default_str();
  command->add_flag("--ignore-eos", load.ignore_eos, "ask for answers of exactly --output-len");
  command->add_option("--temperature", load.temperature, "of all requests")->capture_default_str();
  command->add_option("--extra-body", o->extra, "a JSON object whose members each body gets");
  command->add_option("--seed", load.seed, "of prompts and arrivals")->capture_default_str();
  command->add_option("--timeout", load.timeout, "seconds for one request")->capture_default_str();
  command->add_option("--warm-up", load.warm_up, "requests before, not measured")
      ->capture_default_str();
  command->add_option("--goodput", o->goodput,
                      "limits within which a request is good: ttft:MS,tpot:MS,e2el:MS");
  command->add_flag("--json", o->json, "print one JSON object, with vLLM's names");
  command->add_flag("--details", o->details, "as --json, with lists of every request's numbers");
  command->footer(
      "Examples:\n"
      "  braid bench serve --url http://127.0.0.1:8000 --concurrency 8 -n 64 --ignore-eos\n"
      "  braid bench serve --dataset shared-prefix --prefix-len 1024 --rate 4 --goodput ttft:500\n"
      "  braid bench serve --dataset chats.jsonl --rate 2 --arrivals constant --json");
  command->callback([o, &bench] {
    require_no_options(bench, "serve");
    bench_serve(*o);
  });
}

}  // namespace braid::app
