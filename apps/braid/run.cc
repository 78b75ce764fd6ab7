#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "braid/chat.h"
#include "braid/commands.h"
#include "braid/options.h"
#include "braid/prompt.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double per_second(double count, double seconds) {
  return seconds > 0 ? count / seconds : 0;
}

struct Speed {
  double prompt = 0;
  double decode = 0;
};

Speed speed_of(const Request& request, const Generation& g) {
  return {per_second(static_cast<double>(request.prompt.size()), g.timings.prompt_seconds),
          per_second(static_cast<double>(g.ids.empty() ? 0 : g.ids.size() - 1),
                     g.timings.decode_seconds)};
}

Json json_report(const Request& request, const Generation& g, const Engine& engine,
                 double load_ms) {
  Json out = {{"prompt_ids", request.prompt},
              {"output_ids", g.ids},
              {"text", g.text},
              {"finish_reason", to_string(g.reason)}};
  if (request.sampling.logprobs >= 0) {
    Json tokens = Json::array();
    for (const SampledToken& token : g.sampled) {
      Json top = Json::array();
      for (const TokenLogprob& t : token.top) {
        top.push_back({{"id", t.id}, {"logprob", t.logprob}});
      }
      tokens.push_back({{"id", token.id}, {"logprob", token.logprob}, {"top", std::move(top)}});
    }
    out["logprobs"] = std::move(tokens);
  }
  const Speed speed = speed_of(request, g);
  out["timings"] = {{"load_ms", load_ms},
                    {"ttft_ms", load_ms + g.timings.ttft_ms},
                    {"prompt_tps", speed.prompt},
                    {"decode_tps", speed.decode}};
  out["kv_dtype"] = name(engine.kv_dtype());
  out["peak_rss_mb"] = peak_rss_mb();
  return out;
}

void print_logprobs(const Tokenizer& tokenizer, const Generation& g) {
  // A head may be padded with rows that no token has.
  const auto piece = [&](int32_t id) {
    return id < tokenizer.vocab_size() ? std::string(tokenizer.piece(id)) : fmt::format("#{}", id);
  };
  for (const SampledToken& token : g.sampled) {
    std::string line = fmt::format("{:10.4f}  {}", token.logprob, piece(token.id));
    for (const TokenLogprob& t : token.top) {
      line += fmt::format("  [{} {:.4f}]", piece(t.id), t.logprob);
    }
    print(line + "\n");
  }
}

void complete(const RunOptions& options, LoadedModel& loaded, Engine& engine,
              std::vector<int32_t> prompt, double load_ms) {
  Request request = options.request;
  request.prompt = std::move(prompt);
  request.continuation = !options.chat;
  const Generation g = engine.generate(request, [&](std::string_view piece) {
    if (!options.json) print(piece);
    return true;
  });
  const int64_t room = engine.max_context() - std::ssize(request.prompt);
  if (g.reason == FinishReason::length && std::ssize(g.ids) >= room) {
    std::fprintf(stderr, "braid: the answer ends where the context does: it holds %lld tokens\n",
                 static_cast<long long>(engine.max_context()));
  }
  if (options.json) {
    return print(json_text(json_report(request, g, engine, load_ms)) + "\n");
  }
  print("\n");
  print_logprobs(loaded.tokenizer, g);
  const Speed speed = speed_of(request, g);
  // One token has no speed: it is the first.
  const std::string decode = g.ids.size() > 1 ? fmt::format(", {:.1f} tokens/s", speed.decode) : "";
  std::fprintf(
      stderr,
      "\nprompt %zu tokens, %.1f tokens/s; answer %zu tokens%s; first token after %.0f ms\n",
      request.prompt.size(), speed.prompt, g.ids.size(), decode.c_str(),
      load_ms + g.timings.ttft_ms);
}

// What a chat in the terminal, or a prompt alone, would pass over.
void check(const RunOptions& options, bool interactive) {
  if (interactive && (options.json || options.request.sampling.logprobs >= 0)) {
    fail(ErrorCode::kInvalidArgument, "{} goes with a prompt (-p, -f or standard input)",
         options.json ? "--json" : "--logprobs");
  }
  if (!interactive && options.system && !options.chat) {
    fail(ErrorCode::kInvalidArgument, "--system goes with --chat");
  }
}

void run(const RunOptions& options) {
  const auto start = Clock::now();
  check_prompt_options(options);
  if (options.tokens && *options.tokens < 1) {
    fail(ErrorCode::kInvalidArgument, "-n is {}, wanted at least 1", *options.tokens);
  }
  check(options.request.sampling);
  if (options.system) require_utf8(*options.system, "--system");
  for (const std::string& stop : options.request.stop) require_utf8(stop, "--stop");
  const bool interactive = !has_prompt(options) && isatty(STDIN_FILENO);
  check(options, interactive);
  LoadedModel loaded(options.model);
  print_remarks(loaded.model.config().remarks);
  ParallelRun parallel(options.parallel, {options.model, options.file.value_or("")});
  EngineConfig config = parallel.engine_config();
  std::vector<int32_t> prompt;
  if (!interactive) {
    prompt = prompt_ids(options, loaded);
    if (config.sp) config.sp->tokens = std::ssize(prompt);
  }
  Engine engine(loaded.model, loaded.tokenizer, config);
  const double load_ms = ms_since(start);
  interactive ? chat_loop(options, loaded, engine)
              : complete(options, loaded, engine, std::move(prompt), load_ms);
  parallel.finish(engine);
}

void add_sampling(CLI::App& command, RunOptions& o) {
  SamplingParams& s = o.request.sampling;
  command.add_option("--temperature", s.temperature, "0: always the most likely token")
      ->capture_default_str();
  command.add_option("--top-k", s.top_k, "choose among the K most likely tokens (0: all)")
      ->capture_default_str();
  command.add_option("--top-p", s.top_p, "choose among tokens that make up this probability")
      ->capture_default_str();
  command.add_option("--min-p", s.min_p, "drop tokens less likely than this share of the best")
      ->capture_default_str();
  command.add_option("--repetition-penalty", s.repetition_penalty, "1: none")
      ->capture_default_str();
  command.add_option("--frequency-penalty", s.frequency_penalty, "for each earlier occurrence")
      ->capture_default_str();
  command.add_option("--presence-penalty", s.presence_penalty, "for tokens that occurred")
      ->capture_default_str();
  command.add_option("--seed", s.seed, "same seed, same text")->capture_default_str();
  command.add_option("--stop", o.request.stop, "a text that ends the answer; may be repeated")
      ->take_all();
  command.add_option("--logprobs", s.logprobs,
                     "log-probability of each token, and of the K most likely ones");
  command.add_flag("--ignore-eos", o.request.ignore_eos, "go on after an end-of-text token");
}

}  // namespace

void add_run(CLI::App& app) {
  auto* command = app.add_subcommand("run", "Generates text: completes a prompt, or chats");
  const auto o = std::make_shared<RunOptions>();
  add_model(*command, o->model);
  command->add_option("-p,--prompt", o->prompt, "the prompt; standard input when absent");
  command->add_option("-f,--file", o->file, "a file with the prompt");
  command->add_option("--prompt-ids", o->prompt_ids, "the prompt as token ids: 1,2,3");
  command->add_flag("--parse-special", o->parse_special,
                    "take the text of special tokens in the prompt for those tokens");
  command->add_flag("--chat", o->chat, "the prompt is a user's message: answer as an assistant");
  command->add_option("--system", o->system, "the system message of a chat");
  command->add_option("-n,--max-tokens", o->tokens, "tokens to generate at most");
  add_sampling(*command, *o);
  add_parallel(*command, o->parallel);
  add_sequence(*command, o->parallel);
  command->add_flag("--json", o->json, "print one JSON object instead of text");
  command->footer(
      "In a terminal without a prompt it is a chat; Ctrl-D ends it.\n"
      "Examples:\n"
      "  braid run -m model.gguf -p 'The capital of France is' -n 16\n"
      "  braid run -m model.gguf --chat -p 'Write a haiku about the sea.'\n"
      "  braid run -m model.gguf -f prompt.txt --tp 2 --threads 1 --json\n"
      "  braid run -m model.gguf -f long.txt -n 64 --sp ring --ranks 4");
  command->callback([o, command] {
    if (command->count("--logprobs") > 0) {
      require_between("--logprobs", o->request.sampling.logprobs, 0, 1000);
    }
    o->request.max_tokens = o->tokens.value_or(0);
    run(*o);
  });
}

}  // namespace braid::app
