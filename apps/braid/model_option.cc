#include "braid/model_option.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "braid/base/error.h"
#include "braid/io/model_lookup.h"

namespace braid::app {

void ModelOption::add_to(CLI::App& command) {
  command.add_option("-m,--model,--hf-repo", name_,
                     "the model: a .gguf file, a Hugging Face folder, a name in Braid's cache, "
                     "ORG/REPO in Hugging Face's cache, or ollama's name");
}

void ModelOption::add_with_argument(CLI::App& command, const std::string& what) {
  command.add_option("MODEL", words_, what.empty() ? "the model, in place of -m" : what)
      ->type_name("");
  add_to(command);
}

std::string ModelOption::path() const {
  const ModelStores stores = model_stores([](const char* name) { return std::getenv(name); });
  const std::string name = !name_.empty() ? name_ : words_.empty() ? "" : words_[0];
  if (!name.empty()) return find_model(name, stores);
  if (const auto demo = demo_model(stores)) {
    std::fprintf(stderr, "braid: no model is named (-m): the demo model %s\n",
                 std::filesystem::path(*demo).filename().c_str());
    return *demo;
  }
  fail(ErrorCode::kInvalidArgument,
       "no model is named (-m), and the demo model is not in {}: `make model` in Braid's source "
       "fetches it, `hf download ORG/REPO` others",
       stores.braid.string());
}

std::vector<std::string> ModelOption::rest(size_t most) const {
  std::vector<std::string> rest(words_.begin() + (name_.empty() && !words_.empty() ? 1 : 0),
                                words_.end());
  if (rest.size() > most) {
    fail(ErrorCode::kInvalidArgument, "'{}' is one argument too many{}", rest[most],
         name_.empty() ? "" : fmt::format(" (-m names the model {})", name_));
  }
  return rest;
}

}  // namespace braid::app
