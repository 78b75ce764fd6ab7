#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "braid/commands.h"
#include "braid/model/model.h"
#include "braid/model_option.h"
#include "braid/options.h"
#include "braid/parallel/experts/token_weights.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

nlohmann::ordered_json experts_json(const ExpertConfig& e) {
  nlohmann::ordered_json out = {{"count", e.E},
                                {"per_token", e.route.top_k},
                                {"ffn", e.F},
                                {"layers", std::ranges::count(e.sparse, true)},
                                {"router", to_string(Attrs::of(e.route))}};
  if (e.shared_F > 0) {
    out["shared_ffn"] = e.shared_F;
    out["shared_gate"] = e.shared_gate;
  }
  return out;
}

nlohmann::ordered_json config_json(const ModelConfig& c) {
  nlohmann::ordered_json out = {{"family", c.family},
                                {"name", c.name},
                                {"layers", c.layers},
                                {"hidden", c.C},
                                {"ffn", c.F},
                                {"vocabulary", c.V},
                                {"heads", c.Hq},
                                {"kv_heads", c.Hkv},
                                {"head_dim", c.D},
                                {"context", c.context},
                                {"rope", to_string(Attrs::of(c.rope))},
                                {"qkv_bias", c.qkv_bias},
                                {"qk_norm", c.qk_norm},
                                {"tied_head", c.tied_head}};
  if (c.experts) out["experts"] = experts_json(*c.experts);
  if (c.latent) {
    out["latent"] = {{"width", c.latent->R},
                     {"rotated", c.latent->Dr},
                     {"value", c.latent->Dv},
                     {"query_rank", c.latent->q_rank}};
  }
  out["kv_numbers_per_token"] = c.layers * c.cached_numbers();
  return out;
}

nlohmann::ordered_json metadata_json(const ModelFile& file) {
  nlohmann::ordered_json out = nlohmann::ordered_json::object();
  if (const auto* gguf = std::get_if<GgufFile>(&file)) {
    for (const GgufEntry& entry : gguf->metadata().entries()) {
      out[std::string(entry.key)] = {{"type", type_name(entry.value)},
                                     {"value", preview(entry.value)}};
    }
    return out;
  }
  return std::get<HfFolder>(file).config().value();
}

int64_t token_bytes(const Model& model) {
  return token_weight_bytes(
      model.forward({.capacity = {1, 1, 1}, .pages = 1, .page_size = 1, .pages_per_sequence = 1}));
}

void print_json(const Model& model) {
  nlohmann::ordered_json tensors = nlohmann::ordered_json::array();
  for (const TensorInfo& tensor : model.source().tensors()) {
    tensors.push_back({{"name", tensor.name},
                       {"type", tensor.type},
                       {"shape", tensor.shape},
                       {"bytes", tensor.bytes}});
  }
  const nlohmann::ordered_json out = {{"path", model.source().path()},
                                      {"format", model.source().description()},
                                      {"config", config_json(model.config())},
                                      {"parameters", model.parameters()},
                                      {"active_parameters", model.active_parameters()},
                                      {"weight_bytes", model.weight_bytes()},
                                      {"token_weight_bytes", token_bytes(model)},
                                      {"metadata", metadata_json(model.file())},
                                      {"tensors", std::move(tensors)}};
  print(json_text(out, 2) + "\n");
}

void print_text(const Model& model) {
  const auto millions = [](int64_t n) { return static_cast<double>(n) / 1e6; };
  const std::string active =
      model.config().experts
          ? fmt::format(" ({:.2f} M, {:.2f} MiB for a token)", millions(model.active_parameters()),
                        static_cast<double>(token_bytes(model)) / (1 << 20))
          : "";
  print(fmt::format("{}: {}\n{:.2f} M parameters{}, {:.2f} MiB\n\n", model.source().path(),
                    model.source().description(), millions(model.parameters()), active,
                    static_cast<double>(model.weight_bytes()) / (1 << 20)));
  const nlohmann::ordered_json config = config_json(model.config());
  for (const auto& [key, value] : config.items()) {
    print(fmt::format("{:12} {}\n", key,
                      value.is_string() ? value.get<std::string>() : value.dump()));
  }
  print("\n");
  const nlohmann::ordered_json metadata = metadata_json(model.file());
  for (const auto& [key, value] : metadata.items()) {
    const bool typed = value.is_object() && value.contains("type") && value.contains("value");
    print(fmt::format("{} = {}\n", key,
                      typed ? fmt::format("{} ({})", value["value"].get<std::string>(),
                                          value["type"].get<std::string>())
                            : value.dump()));
  }
  print("\n");
  for (const TensorInfo& tensor : model.source().tensors()) {
    print(fmt::format("{:6} {:16} {:>12}  {}\n", tensor.type,
                      fmt::format("{}", fmt::join(tensor.shape, " x ")), tensor.bytes,
                      tensor.name));
  }
}

}  // namespace

void add_inspect(CLI::App& app) {
  auto* command = app.add_subcommand("inspect", "Shows what a model file holds");
  const auto option = std::make_shared<ModelOption>();
  const auto json = std::make_shared<bool>(false);
  option->add_with_argument(*command);
  command->add_flag("--json", *json, "print one JSON object");
  command->footer("Example:\n  braid inspect model.gguf");
  command->callback([option, json] {
    option->rest(0);
    const Model model(option->path());
    print_remarks(model.config().remarks);
    *json ? print_json(model) : print_text(model);
  });
}

}  // namespace braid::app
