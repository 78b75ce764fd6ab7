#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "braid/commands.h"
#include "braid/engine/cluster_plan.h"
#include "braid/engine/limits.h"
#include "braid/engine/step_plans.h"
#include "braid/io/text_file.h"
#include "braid/job_options.h"
#include "braid/model_option.h"
#include "braid/options.h"
#include "braid/schedule/timeline_svg.h"
#include "braid/table.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

struct PlanOptions {
  StepRequest step;
  std::string cluster;
  std::optional<std::string> trace, plot;
  bool launches = false;
  bool explain = false;
  bool json = false;
};

std::string strategies_text(const StepPlans& all) {
  std::vector<std::vector<std::string>> rows;
  for (const SimulatedPlan& plan : all.plans()) {
    const std::optional<double> share = all.gain_of(plan).share();
    rows.push_back({std::string(plan.strategy->name()),
                    std::to_string(plan.schedule().micro_batches.size()),
                    std::to_string(plan.schedule().num_launches()),
                    fmt::format("{:.3f}", 1e3 * plan.step.seconds),
                    fmt::format("{:.2f}x", all.sequential().step.seconds / plan.step.seconds),
                    share ? fmt::format("{:.0f}%", 100 * *share) : "-"});
  }
  return table_text({{"strategy"},
                     {"micro-batches", true},
                     {"launches", true},
                     {"ms", true},
                     {"speed-up", true},
                     {"gain", true}},
                    rows);
}

// A line about a losing strategy; otherwise empty.
std::string loss_text(const SimulatedPlan& plan, const SimulatedPlan& sequential) {
  if (plan.step.seconds <= sequential.step.seconds) return "";
  const size_t parts = plan.schedule().micro_batches.size();
  return fmt::format(
      "{} is slower than sequential here: {} more than it hides; --schedule auto takes a strategy "
      "only where it pays\n",
      plan.strategy->name(),
      parts > 1 ? fmt::format("dividing the batch in {} costs", parts) : "its kernels cost");
}

// The chosen form of a decode step; with `explain` every candidate.
std::string decode_text(const StepPlans& all, bool explain) {
  std::string text;
  for (const std::string& line : all.decode()) {
    text += line + "\n";
    if (!explain) break;
  }
  return text;
}

std::string racks_text(const SimulatedPlan& plan) {
  if (plan.step.rack_bytes == 0) return "";
  return fmt::format("{:.2f} MB of {:.2f} MB on the wire go between racks\n",
                     1e-6 * plan.step.rack_bytes, 1e-6 * plan.wire_bytes());
}

std::string text_report(const StepPlans& all) {
  const SimulatedPlan& plan = all.chosen();
  const MemoryPlan& memory = plan.schedule().memory;
  const std::string experts = all.experts();
  return fmt::format(
      "{}\n{} on {} ranks: {} launches, {} micro-batches, schedule {:016x}\n"
      "{}activations of a rank: arena {:.2f} MiB ({:.2f} live at most), sequential {:.2f} MiB\n"
      "simulated on {}: {:.3f} ms, sequential {:.3f} ms, without communication {:.3f} ms\n"
      "{}{}{}\n",
      strategies_text(all), plan.strategy->name(), all.ranks(), plan.schedule().num_launches(),
      plan.schedule().micro_batches.size(), hash_of(plan.schedule()),
      experts.empty() ? "" : experts + "\n", static_cast<double>(memory.arena_bytes) / (1 << 20),
      static_cast<double>(memory.live_bytes) / (1 << 20),
      static_cast<double>(all.sequential().schedule().memory.arena_bytes) / (1 << 20),
      all.profile().name, 1e3 * plan.step.seconds, 1e3 * all.sequential().step.seconds,
      1e3 * all.without_communication(), racks_text(plan), loss_text(plan, all.sequential()),
      to_string(all.gain_of(plan)));
}

void plan(const PlanOptions& o) {
  for (const std::string& input : {o.step.model, o.step.config}) {
    if (o.trace && !input.empty()) require_apart("--trace", *o.trace, input);
    if (o.plot && !input.empty()) require_apart("--plot", *o.plot, input);
  }
  if (o.trace) require_writable("--trace", *o.trace);
  if (o.plot) require_writable("--plot", *o.plot);
  const StepPlans plans(o.step);
  const std::string launches = o.launches ? plans.listing() : "";
  if (o.json) {
    nlohmann::ordered_json report = plans.json();
    if (o.launches) report["listing"] = launches;
    print(json_text(report, 2) + "\n");
  } else {
    print(launches + decode_text(plans, o.explain) + text_report(plans));
  }
  const Timeline timeline = plans.timeline();
  if (o.trace) write_trace(*o.trace, timeline);
  if (o.plot) write_file(*o.plot, timeline_svg({&timeline, 1}));
}

// The step's plans in a job on the described cluster, as the job's --explain prints them.
void plan_described(const PlanOptions& o) {
  if (o.step.model.empty()) {
    fail(ErrorCode::kInvalidArgument, "--cluster plans for the model of -m, and none is named");
  }
  require_between("--tokens", o.step.tokens, 0, kMostTokens);
  require_between("--decodes", o.step.decodes, 0, 4096);
  require_between("--depth", o.step.depth, 0, kMostTokens);
  const std::vector<std::string> lines =
      plan_cluster(read_cluster(o.cluster), Model(o.step.model),
                   {.tokens = o.step.tokens, .decodes = o.step.decodes, .depth = o.step.depth});
  if (o.json) return print(json_text({{"plans", lines}}, 2) + "\n");
  for (const std::string& line : lines) print(line + "\n");
}

}  // namespace

void add_plan(CLI::App& app) {
  auto* command = app.add_subcommand("plan", "Shows how a step would run, without running it");
  const auto o = std::make_shared<PlanOptions>();
  const auto model = std::make_shared<ModelOption>();
  model->add_with_argument(*command);
  command->add_option("--config", o->step.config,
                      "a config.json instead: no weights are needed (bf16)");
  command->add_option("--schedule", o->step.schedule, "a strategy, its .so file, or auto")
      ->capture_default_str();
  command->add_option("--tokens", o->step.tokens, "tokens of a prompt in the step")
      ->capture_default_str();
  command->add_option("--decodes", o->step.decodes, "sequences that decode one token in the step")
      ->capture_default_str();
  command->add_option("--depth", o->step.depth, "tokens that each sequence has in the KV cache")
      ->capture_default_str();
  command->add_option("--decode", o->step.decode,
                      "how a GPU fuses launches of the decode step: auto (by price), apart, relay, "
                      "or fused with its settings, as in braid run; not given: each op by itself");
  command->add_option("--tp,--tensor-parallel-size", o->step.tp, "ranks of tensor parallelism")
      ->capture_default_str();
  command
      ->add_option("--dp,--data-parallel-size", o->step.dp,
                   "groups of --tp ranks, each with such a step")
      ->capture_default_str();
  command->add_option("--ep", o->step.ep, "sets of the ranks that divide experts by number")
      ->capture_default_str();
  command
      ->add_option("--expert-memory", o->step.expert_mib,
                   "MiB on a rank for rows that --ep sends to experts, as in braid run")
      ->capture_default_str();
  command->add_option("--sp", o->step.sp,
                      "divides the prompt's tokens over the ranks instead: ring, ulysses, usp, tas "
                      "or torus; --schedule is then sequence_parallel by default");
  command->add_option("--machines", o->step.machines,
                      "[RACKSx]MACHINESxDEVICES, in place of --tp or of as many");
  command->add_option("--profile", o->step.profile, "of the device: a name or a .json file")
      ->capture_default_str();
  auto* cluster = command->add_option("--cluster", o->cluster,
                                      "plan as a job with this description does, which --describe "
                                      "wrote, and print the plans' hashes");
  for (const char* given : {"--config", "--schedule", "--tp", "--dp", "--ep", "--expert-memory",
                            "--machines", "--profile", "--decode"}) {
    cluster->excludes(command->get_option(given));
  }
  command->add_flag("--launches", o->launches, "list every launch");
  command->add_option("--trace", o->trace, "write the simulated timeline here (Perfetto)");
  command->add_option("--plot", o->plot, "draw the simulated timeline here (SVG)");
  command->add_flag("--explain", o->explain, "print each candidate of --decode with its price")
      ->needs(command->get_option("--decode"));
  command->add_flag("--json", o->json, "print one JSON object");
  for (const char* given : {"--sp", "--launches", "--trace", "--plot"}) {
    cluster->excludes(command->get_option(given));
  }
  add_plan_prompt(*command);
  command->require_subcommand(0, 1);
  command->footer(
      "Examples:\n"
      "  braid plan --config configs/llama-3-8b.json --tp 8 --tokens 4096 --schedule auto\n"
      "  braid plan -m model.gguf --tp 2 --tokens 64 --schedule overlap --launches\n"
      "  braid plan --config configs/deepseek-v2-lite.json --tp 1 --dp 4 --ep 4 --decodes 64\n"
      "  braid plan --config configs/llama-3.3-70b.json --tp 8 --schedule tokenweave --trace "
      "t.json\n"
      "  braid plan prompt --config configs/llama-3-8b-1m.json --machines 2x8 --tokens "
      "4096,131072");
  command->callback([o, model, command] {
    if (!command->get_subcommands().empty()) return;
    if (!is_first_process()) return;  // of a job: all would print the same
    model->rest(0);
    if (model->named()) o->step.model = model->path();
    if (!o->cluster.empty()) return plan_described(*o);
    if (!o->step.sp.empty() && command->count("--schedule") == 0) {
      o->step.schedule = "sequence_parallel";
    }
    if (!o->step.machines.empty() && command->count("--tp") == 0) {
      o->step.tp = std::max(1, parse_topology(o->step.machines).ranks() / std::max(1, o->step.dp));
    }
    if (o->step.ep > 1 && o->step.tp == 1 && o->step.dp == 1) o->step.tp = o->step.ep;
    plan(*o);
  });
}

}  // namespace braid::app
