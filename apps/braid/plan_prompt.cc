#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "braid/approximation_report.h"
#include "braid/base/math.h"
#include "braid/commands.h"
#include "braid/engine/prompt_plan.h"
#include "braid/job_options.h"
#include "braid/level_options.h"
#include "braid/model_option.h"
#include "braid/options.h"
#include "braid/table.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

struct PromptOptions {
  PromptRequest request;
  LevelOptions levels;
  std::vector<int64_t> tokens = {4096, 32768, 131072};
  bool explain = false;
  bool json = false;
};

// "8"; over several racks "8 (2x1x4)".
std::string ranks_of(const Topology& topology) {
  return topology.racks > 1 ? fmt::format("{} ({})", topology.ranks(), sizes_of(topology))
                            : std::to_string(topology.ranks());
}

// Rows are printed as they come: widths are those of all ranks, whose degrees have most digits.
std::vector<TableColumn> columns_for(const Topology& all) {
  const std::string ranks = ranks_of(all);
  return {{"prompt", true, 9},
          {"ranks", true, std::max(ranks.size(), std::string_view("ranks").size())},
          {"how", false, 53 + std::to_string(all.ranks()).size()},
          {"steps", true, 9},
          {"ms", true, 10},
          {"over one rank", true},
          {"GB a rank", true},
          {"weights", true},
          {"keys", true},
          {"KB a token", true},
          {"ms a token", true},
          {"", false}};
}

std::string gb(double bytes) {
  return fmt::format("{:.1f}", 1e-9 * bytes);
}

// Of a step on a rank.
int64_t rank_tokens(const PromptCandidate& c, int64_t tokens) {
  const int parts = c.division == PromptDivision::tokens ? c.ranks() : 1;
  return std::min(ceil_div(tokens, int64_t{parts}), c.rank_tokens);
}

// "6 x 65536": tokens of a rank.
std::string steps(const PromptCandidate& c) {
  return c.steps == 1 || !c.refused.empty() ? std::to_string(c.steps)
                                            : fmt::format("{} x {}", c.steps, c.rank_tokens);
}

// "taken; least ms a token; approximate, 61.5% of its pairs", or a reason against the candidate.
std::string note_of(const PromptPlan& plan, const PromptCandidate& c) {
  if (!c.refused.empty()) return c.refused;
  std::vector<std::string> notes;
  if (&c == &plan.taken()) notes.emplace_back("taken");
  if (&c == &plan.decodes_fastest()) notes.emplace_back("least ms a token");
  if (const auto made = plan.approximation(c)) {
    notes.push_back(
        fmt::format("approximate, {:.1f}% of its pairs", 100 * made->shares.pair_share()));
  }
  return fmt::format("{}", fmt::join(notes, "; "));
}

std::string row(const std::vector<TableColumn>& columns, const PromptPlan& plan, int64_t tokens,
                const PromptCandidate& c) {
  const double one = plan.candidates[0].seconds;
  const bool known = c.seconds > 0;
  return table_row(
      columns,
      {std::to_string(tokens), ranks_of(c.topology), c.name(), known ? steps(c) : "-",
       known ? fmt::format("{:.3f}", 1e3 * c.seconds) : "-",
       known && one > 0 ? fmt::format("{:.2f}x", one / c.seconds) : "-",
       known ? gb(c.bytes.all()) : "-", known ? gb(c.bytes.weights) : "-",
       known ? gb(c.bytes.keys) : "-",
       known ? fmt::format("{:.0f}",
                           1e-3 * c.bytes.activations / static_cast<double>(rank_tokens(c, tokens)))
             : "-",
       c.token_seconds > 0 ? fmt::format("{:.3f}", 1e3 * c.token_seconds) : "-", note_of(plan, c)});
}

nlohmann::ordered_json to_json(const PromptPlan& plan, int64_t tokens) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const PromptCandidate& c : plan.candidates) {
    rows.push_back({{"ranks", c.ranks()},
                    {"how", c.name()},
                    {"seconds", c.seconds},
                    {"steps", c.steps},
                    {"rank_tokens", c.rank_tokens},
                    {"rank_bytes", c.bytes.all()},
                    {"weight_bytes", c.bytes.weights},
                    {"key_bytes", c.bytes.keys},
                    {"activation_bytes", c.bytes.activations},
                    {"token_seconds", c.token_seconds},
                    {"wire_bytes", c.wire_bytes},
                    {"taken", &c == &plan.taken()},
                    {"decodes_fastest", &c == &plan.decodes_fastest()}});
    if (c.topology.racks > 1) {
      rows.back()["machines"] = sizes_of(c.topology);
      rows.back()["rack_bytes"] = std::llround(c.rack_bytes);
    }
    add_approximation(rows.back(), plan.approximation(c));
    if (!c.refused.empty()) rows.back()["refused"] = c.refused;
  }
  return {{"tokens", tokens}, {"candidates", std::move(rows)}};
}

void plan_prompts(const PromptOptions& o) {
  nlohmann::ordered_json report = nlohmann::ordered_json::array();
  const std::vector<TableColumn> columns = columns_for(parse_topology(o.request.machines));
  bool begun = false;  // a refused request prints nothing
  for (int64_t tokens : o.tokens) {
    PromptRequest request = o.request;
    request.tokens = tokens;
    const PromptPlan plan = plan_prompt(request);
    if (o.json) {
      report.push_back(to_json(plan, tokens));
      continue;
    }
    if (!std::exchange(begun, true)) print(table_head(columns));
    for (const PromptCandidate& c : plan.candidates) {
      const bool taken = &c == &plan.taken(), decodes = &c == &plan.decodes_fastest();
      if (taken || decodes || o.explain) print(row(columns, plan, tokens, c));
    }
  }
  if (o.json) print(json_text(report, 2) + "\n");
}

}  // namespace

void add_plan_prompt(CLI::App& plan) {
  auto* command =
      plan.add_subcommand("prompt", "Says how many ranks, and which mode, suit a prompt's length");
  const auto o = std::make_shared<PromptOptions>();
  const auto model = std::make_shared<ModelOption>();
  model->add_with_argument(*command);
  command->add_option("--config", o->request.config,
                      "a config.json instead: no weights are needed (bf16)");
  command->add_option("--tokens", o->tokens, "lengths of prompts, with commas")
      ->delimiter(',')
      ->default_str("4096,32768,131072");
  command->add_option("--depth", o->request.cached, "tokens in the KV cache before")
      ->capture_default_str();
  command->add_option("--machines", o->request.machines, "[RACKSx]MACHINESxDEVICES that are free")
      ->capture_default_str();
  command->add_option("--memory", o->request.memory_gb, "GB that a device has for the model")
      ->capture_default_str();
  command->add_option("--profile", o->request.profile, "of the device: a name or a .json file")
      ->capture_default_str();
  o->levels.add_to(*command, "every candidate has the parts of the last group's ranks");
  command->add_flag("--explain", o->explain, "list every candidate, and why it is not taken");
  command->add_flag("--json", o->json, "print every candidate as JSON");
  command->footer(
      "Example:\n"
      "  braid plan prompt --config configs/llama-3-8b-1m.json --machines 1x8 --tokens "
      "2048,131072\n"
      "  braid plan prompt --config configs/llama-3-8b-1m.json --machines 1x4 --keep 0.5");
  command->callback([o, model] {
    if (!is_first_process()) return;  // of a job: all would print the same
    model->rest(0);
    if (model->named()) o->request.model = model->path();
    o->request.thinning = o->levels.request();
    plan_prompts(*o);
  });
}

}  // namespace braid::app
