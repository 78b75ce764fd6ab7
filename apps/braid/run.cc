#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "braid/approximation_report.h"
#include "braid/chat.h"
#include "braid/commands.h"
#include "braid/engine/sampling_defaults.h"
#include "braid/engine/step_records.h"
#include "braid/expert_report.h"
#include "braid/interrupt.h"
#include "braid/options.h"
#include "braid/progress.h"
#include "braid/prompt.h"
#include "braid/text_io.h"
#include "braid/version.h"

namespace braid::app {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

Json json_report(const Request& request, const Generation& g, double load_ms,
                 const Generator& generator, const ParallelRun& parallel,
                 const std::string& model) {
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
  out["usage"] = {{"prompt_tokens", request.prompt.size()},
                  {"completion_tokens", g.ids.size()},
                  {"total_tokens", request.prompt.size() + g.ids.size()}};
  out["model"] = model;
  out["device"] = parallel.device_name();
  out["ranks"] = parallel.engine_config().tp;
  out["threads"] = generator.threads();
  out["context"] = generator.max_context();
  out["version"] = version_line();
  out["kv_dtype"] = name(generator.kv_dtype());
  out["peak_rss_mb"] = peak_rss_mb();
  add_approximation(out, generator.runner().approximation());
  add_expert_loads(out, generator.runner());
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

void complete(RunOptions& options, LoadedModel& loaded, Generator& generator, ParallelRun& parallel,
              std::vector<int32_t> prompt, double load_ms) {
  Request request = options.request;
  request.prompt = std::move(prompt);
  request.continuation = !options.chat;
  generator.check_prompt(request);
  if (options.schema.given())
    request.mask = options.schema.mask(loaded, request.prompt, options.chat);
  parallel.watch_cores();
  Interrupt interrupt;
  Progress progress;
  request.on_prompt = [&](int64_t done) {
    progress.show(fmt::format("reading: {} of {} tokens", done, request.prompt.size()));
    return !interrupt.asked();
  };
  // True once the answer has begun: an earlier error is a single line.
  bool announced = false;
  const auto announce = [&] {
    if (!std::exchange(announced, true)) parallel.announce();
  };
  const Generation g = generator.generate(request, [&](std::string_view piece) {
    progress.clear();
    announce();
    if (!options.json) print(piece);
    return !interrupt.asked();
  });
  progress.clear();
  announce();
  if (!options.json) print("\n");
  const int64_t room = generator.max_context() - std::ssize(request.prompt);
  if (g.reason == FinishReason::length && std::ssize(g.ids) >= room) {
    const bool dynamic = loaded.model.config().dynamic_rope > 0;
    std::fprintf(
        stderr, "braid: the answer ends where the context does: it holds %lld tokens%s\n",
        static_cast<long long>(generator.max_context()),
        dynamic ? ", for which RoPE's base was made; --ctx with more fixes a larger base" : "");
  }
  if (options.schema.given() && g.reason == FinishReason::length)
    std::fprintf(stderr, "braid: the answer ends before its schema does\n");
  if (options.json) {
    print(json_text(
              json_report(request, g, load_ms, generator, parallel, loaded.model.source().path())) +
          "\n");
  } else {
    print_logprobs(loaded.tokenizer, g);
    std::fprintf(stderr, "\n%s\n", speed_line(request, g, load_ms).c_str());
  }
  if (!options.json) parallel.report_cores();
  if (interrupt.asked()) throw Interrupted();
}

// What a chat in the terminal, or a prompt alone, would pass over.
void check(const RunOptions& options, bool interactive) {
  if (interactive && (options.json || options.sampling.logprobs || options.schema.given())) {
    fail(ErrorCode::kInvalidArgument, "{} goes with a prompt (-p, -f or standard input)",
         options.json                ? "--json"
         : options.sampling.logprobs ? "--logprobs"
                                     : "a schema");
  }
  if (options.schema.given() && options.request.ignore_eos)
    fail(ErrorCode::kInvalidArgument, "--ignore-eos beside a schema: its answers end");
  if (!interactive && options.system && !options.chat) {
    fail(ErrorCode::kInvalidArgument,
         "--system goes with --chat: without it a prompt is completed, and has no messages");
  }
}

void run(RunOptions& options, job::Job* job) {
  const auto start = Clock::now();
  if (const std::vector<std::string> words = options.model.rest(1); !words.empty()) {
    if (has_prompt(options)) {
      fail(ErrorCode::kInvalidArgument, "'{}' is one argument too many: {} gives the prompt",
           words[0],
           options.prompt ? "-p"
           : options.file ? "-f"
                          : "--prompt-ids");
    }
    options.prompt = words[0];
  }
  check_prompt_options(options);
  // llama.cpp's way to say that nothing but the context bounds an answer.
  if (options.tokens == -1)
    options.tokens = 0;
  else if (options.tokens && *options.tokens < 1) {
    fail(ErrorCode::kInvalidArgument,
         "-n is {}, wanted at least 1; without -n, as with -1, an answer may go on to the end of "
         "the context",
         *options.tokens);
  }
  options.request.max_tokens = options.tokens.value_or(0);
  options.sampling.over({});  // whatever the model recommends, a wrong value is refused now
  if (options.system) require_utf8(*options.system, "--system");
  for (const std::string& stop : options.request.stop) require_utf8(stop, "--stop");
  const bool interactive = !has_prompt(options) && isatty(STDIN_FILENO);
  check(options, interactive);
  options.schema.check();
  const std::string path = options.model.path();
  Progress progress;
  progress.announce("loading " + path);
  LoadedModel loaded(path);
  progress.clear();
  if (options.context) loaded.model.stretch(*options.context);
  if (follow(job, loaded.model)) return;
  print_remarks(loaded.model.config().remarks);
  const bool chat = options.chat || (interactive && chat_template_source(loaded.model.file()));
  options.request.sampling = options.sampling.over(default_sampling(loaded.model.file(), chat));
  if (interactive && !options.sampling.seed) options.request.sampling.seed = std::random_device()();
  ParallelRun parallel(options.parallel, {path, options.file.value_or("")}, job);
  EngineConfig config = parallel.engine_config();
  config.count_experts |= options.json;
  if (options.context) {
    require_positions("--ctx", *options.context, loaded.model.config().context);
    config.max_context = *options.context;
  }
  std::vector<int32_t> prompt;
  if (!interactive) {
    prompt = prompt_ids(options, loaded);
  }
  Generator generator(loaded.model, loaded.tokenizer, config);
  const double load_ms = ms_since(start);
  progress.clear();
  if (!options.context && generator.max_context() < loaded.model.config().context) {
    std::fprintf(stderr,
                 "braid: the context is %lld of the model's %lld tokens: what the GPU has "
                 "room for\n",
                 static_cast<long long>(generator.max_context()),
                 static_cast<long long>(loaded.model.config().context));
  }
  if (interactive) {
    parallel.announce();
    chat_loop(options, loaded, generator, parallel);
  } else {
    complete(options, loaded, generator, parallel, std::move(prompt), load_ms);
  }
  parallel.finish(generator);
}

}  // namespace

void add_run(CLI::App& app) {
  auto* command =
      app.add_subcommand("run", "Generates text: completes a prompt, or chats")->alias("chat");
  const auto o = std::make_shared<RunOptions>();
  o->model.add_with_argument(
      *command, "the model, in place of -m, and the prompt, in place of -p: run MODEL 'TEXT'");
  command->add_option("-p,--prompt", o->prompt, "the prompt; standard input when absent");
  command->add_option("-f,--file", o->file, "a file with the prompt");
  command->add_option("--prompt-ids", o->prompt_ids, "the prompt as token ids: 1,2,3");
  command->add_flag("--parse-special", o->parse_special,
                    "take the text of special tokens in the prompt for those tokens");
  command->add_flag("--chat,--conversation", o->chat,
                    "the prompt is a user's message: answer as an assistant");
  command->add_option("--system,--system-prompt", o->system, "the system message of a chat");
  command->add_option("-n,--max-tokens,--n-predict,--predict", o->tokens,
                      "tokens to generate at most (default and -1: to the end of the context)");
  command->add_option("-c,--ctx,--ctx-size,--max-model-len", o->context,
                      "tokens that the context holds (default: what the model was made for, on a "
                      "GPU what fits beside the weights)");
  o->sampling.add_to(*command);
  add_parallel(*command, o->parallel);
  add_plot(*command, o->parallel);
  command->add_flag("--json", o->json, "print one JSON object instead of text");
  o->schema.add_to(*command);
  command->add_option("--stop", o->request.stop, "a text that ends the answer; may be repeated")
      ->take_all()
      ->allow_extra_args(false)
      ->group("Sampling");
  command->add_flag("--ignore-eos", o->request.ignore_eos, "go on after an end-of-text token")
      ->group("Sampling");
  add_sequence(*command, o->parallel);
  command->footer(
      "In a terminal without a prompt it is a chat: /help there lists its commands.\n"
      "Examples:\n"
      "  braid run -m model.gguf\n"
      "  braid run -m model.gguf -p 'The capital of France is' -n 16\n"
      "  braid run -m model.gguf --chat -p 'Write a haiku about the sea.'\n"
      "  braid run -m model.gguf --chat -p 'Name a city.' --json-schema '{\"type\": \"string\"}'\n"
      "  braid run -m model.gguf -f prompt.txt --tp 2 --threads 1 --json\n"
      "  braid run -m model.gguf -f long.txt -n 64 --sp ring --ranks 4");
  command->callback([o] { run_in_job(o->parallel.job, [&](job::Job* job) { run(*o, job); }); });
}

}  // namespace braid::app
