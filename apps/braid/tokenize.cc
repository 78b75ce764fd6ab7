#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "braid/commands.h"
#include "braid/engine/loaded_model.h"
#include "braid/model_option.h"
#include "braid/options.h"
#include "braid/text_io.h"

namespace braid::app {
namespace {

struct TokenizeOptions {
  ModelOption model;
  std::string text;
  bool json = false;
  EncodeOptions encode;
};

void tokenize(const TokenizeOptions& options) {
  const ModelFile file = open_model_file(options.model.path());
  const Tokenizer tokenizer = load_tokenizer(file);
  const std::vector<int32_t> ids = tokenizer.encode(options.text, options.encode);
  if (options.json) return print(nlohmann::json(ids).dump() + "\n");
  for (int32_t id : ids) print(fmt::format("{:6}  {}\n", id, tokenizer.piece(id)));
}

void detokenize(const ModelOption& model, const std::vector<int32_t>& ids) {
  const ModelFile file = open_model_file(model.path());
  print(load_tokenizer(file).decode(ids, {.skip_special = false}) + "\n");
}

}  // namespace

void add_tokenize(CLI::App& app) {
  auto* command = app.add_subcommand("tokenize", "Turns text into token ids");
  const auto options = std::make_shared<TokenizeOptions>();
  options->model.add_to(*command);
  command->add_option("text", options->text, "the text; standard input when absent");
  command->add_flag("--json", options->json, "print one list of ids");
  command->add_flag("--parse-special", options->encode.parse_special,
                    "take the text of special tokens for those tokens");
  command->add_flag("!--no-add-special", options->encode.add_special,
                    "without the tokens that the model puts around a text");
  command->footer("Example:\n  braid tokenize -m model.gguf --json 'Hello, world'");
  command->callback([command, options] {
    if (command->count("text") == 0) options->text = read_stdin();
    require_utf8(options->text, "the text");
    tokenize(*options);
  });
}

void add_detokenize(CLI::App& app) {
  auto* command = app.add_subcommand("detokenize", "Turns token ids into text");
  const auto model = std::make_shared<ModelOption>();
  const auto ids = std::make_shared<std::vector<int32_t>>();
  model->add_to(*command);
  command->add_option("ids", *ids, "token ids")->required();
  command->footer("Example:\n  braid detokenize -m model.gguf 19556 28 905");
  command->callback([model, ids] { detokenize(*model, *ids); });
}

}  // namespace braid::app
