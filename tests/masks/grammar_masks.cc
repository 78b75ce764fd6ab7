// Masks of tokens, for whoever compares them: `grammar_masks MODEL BRAID` first prints a line with
// the tokens of a model's vocabulary, {"texts": [hex by id], "ends": [ids]}. Each line of stdin is
// then {"schema": ...} or {"regex": ...}, which begins an answer, or {"token": id}, which goes on
// with the answer; each gets a line {"mask": hex of the words, "schema" or "regex" as compiled} or
// {"error": text}. BRAID is the program that compiles.
#include <fmt/core.h>

#include <iostream>
#include <nlohmann/json.hpp>

#include "braid/engine/loaded_model.h"
#include "braid/grammar/grammar_store.h"
#include "braid/grammar/grammar_tag.h"
#include "braid/grammar/json_schema.h"
#include "braid/grammar/regex.h"
#include "braid/io/model_file.h"

namespace {

using Json = nlohmann::ordered_json;

constexpr double kSeconds = 300;  // for a grammar, so that a busy machine refuses none

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(c));
  return text;
}

class Walk {
 public:
  Walk(const braid::Tokenizer& tokenizer, const std::string& program)
      : tokens_(braid::grammar_tokens(tokenizer, tokenizer.vocab_size())),
        store_(tokenizer, tokenizer.vocab_size(),
               {.program = program, .limits = {.seconds = kSeconds}, .compilers = 1}) {}

  Json vocabulary() const {
    Json texts = Json::array();
    for (const std::string& text : tokens_.texts) texts.push_back(hex(text));
    return {{"texts", std::move(texts)}, {"ends", tokens_.ends}};
  }

  Json answer(const Json& line) {
    Json reply = Json::object();
    if (line.contains("token")) {
      if (!matcher_ || !matcher_->accept(line["token"])) return {{"error", "not allowed"}};
    } else {
      std::string tag;
      if (line.contains("schema")) {
        tag = braid::schema_tag(line["schema"]);
        reply["schema"] = braid::enforceable_schema(line["schema"]);
      } else {
        const std::string regex = line.at("regex");
        tag = braid::regex_tag(regex);
        reply["regex"] = braid::plain_regex(regex, braid::RegexUse::text, "regex");
      }
      grammar_ = store_.compile_now(tag);
      matcher_ = grammar_->begin();
    }
    std::vector<uint32_t> words(static_cast<size_t>((tokens_.vocabulary + 31) / 32));
    matcher_->fill(words);
    reply["mask"] = hex({reinterpret_cast<const char*>(words.data()), 4 * words.size()});
    return reply;
  }

 private:
  const braid::GrammarTokens tokens_;
  braid::GrammarStore store_;
  std::shared_ptr<const braid::CompiledGrammar> grammar_;
  std::unique_ptr<braid::GrammarMatcher> matcher_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    if (argc != 3) throw std::runtime_error("usage: grammar_masks MODEL BRAID");
    const braid::ModelFile file = braid::open_model_file(argv[1]);
    const braid::Tokenizer tokenizer = braid::load_tokenizer(file);
    Walk walk(tokenizer, argv[2]);
    std::cout << walk.vocabulary().dump() << std::endl;
    for (std::string line; std::getline(std::cin, line);) {
      Json reply;
      try {
        reply = walk.answer(Json::parse(line));
      } catch (const std::exception& error) {
        reply = {{"error", error.what()}};
      }
      std::cout << reply.dump() << std::endl;
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "grammar_masks: " << error.what() << "\n";
    return 1;
  }
}
