#include <algorithm>
#include <set>
#include <string>
#include <unordered_map>

#include "braid/base/error.h"
#include "braid/io/quoted.h"
#include "braid/io/tokenizer_flags.h"
#include "braid/io/tokenizer_json_node.h"
#include "braid/io/tokenizer_json_steps.h"
#include "braid/io/tokenizer_load.h"

namespace braid {
namespace {

AddedToken read_added(const JsonNode& node, int32_t id) {
  const bool special = node["special"].boolean(false);
  return {.id = id,
          .text = node["content"].text(),
          .special = special,
          .lstrip = node["lstrip"].boolean(false),
          .rstrip = node["rstrip"].boolean(false),
          .single_word = node["single_word"].boolean(false),
          .normalized = node["normalized"].boolean(!special)};
}

// Added tokens of both files, by id; tokenizer_config.json wins.
std::vector<AddedToken> read_added_tokens(const JsonNode& root, const JsonNode& config,
                                          int64_t limit) {
  std::vector<AddedToken> tokens;
  std::unordered_map<int32_t, size_t> index;
  const auto put = [&](const AddedToken& token) {
    if (token.text.empty()) return;
    const auto [at, fresh] = index.try_emplace(token.id, tokens.size());
    if (fresh) {
      tokens.push_back(token);
    } else {
      tokens[at->second] = token;
    }
  };
  const JsonNode list = root["added_tokens"];
  for (size_t i = 0; i < list.array_size(); ++i) {
    put(read_added(list.at(i), list.at(i)["id"].id(limit)));
  }
  const JsonNode more = config["added_tokens_decoder"];
  if (!more.is_null()) {
    for (const auto& [key, value] : more.object()) {
      const bool digits = !key.empty() && key.size() < 10 &&
                          std::ranges::all_of(key, [](char c) { return c >= '0' && c <= '9'; });
      const nlohmann::json id = digits ? nlohmann::json(std::stol(key)) : nlohmann::json(key);
      const std::string place = fmt::format("{}[{}]", more.place(), braid::quoted(key));
      put(read_added({value, place}, JsonNode(id, place).id(limit)));
    }
  }
  return tokens;
}

// A single allocation for all strings in a spec, sized before the first string.
class Arena {
 public:
  void reserve(size_t bytes) { text_->reserve(bytes); }
  std::string_view put(std::string_view text) {
    BRAID_CHECK(text_->size() + text.size() <= text_->capacity());
    const size_t at = text_->size();
    text_->append(text);
    return {text_->data() + at, text.size()};
  }
  std::shared_ptr<const void> share() const { return text_; }

 private:
  std::shared_ptr<std::string> text_ = std::make_shared<std::string>();
};

void read_merges(const JsonNode& merges, Arena& arena, std::vector<MergePair>& out) {
  const size_t count = merges.array_size();
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const auto& value = merges.value()[i];
    if (value.is_string()) {  // "left right"
      const std::string_view text = value.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space == text.npos || text.find(' ', space + 1) != text.npos) {
        merges.at(i).expected("two pieces with one space between them");
      }
      const std::string_view kept = arena.put(text);
      out.push_back({kept.substr(0, space), kept.substr(space + 1)});
    } else {
      const JsonNode pair = merges.at(i);
      if (pair.array_size() != 2) pair.expected("two pieces");
      const std::string_view left = arena.put(pair.at(0).text());
      out.push_back({left, arena.put(pair.at(1).text())});
    }
  }
}

// Calls piece(text, id node) for each entry in a BPE vocabulary, {"text": id}; for a unigram
// vocabulary, [["text", log probability]], calls piece(text, place).
template <class BpePiece, class UnigramPiece>
void each_piece(const JsonNode& vocab, const BpePiece& bpe, const UnigramPiece& unigram) {
  if (vocab.value().is_array()) {
    for (size_t i = 0; i < vocab.array_size(); ++i) {
      const JsonNode entry = vocab.at(i);
      if (entry.array_size() != 2) entry.expected("a piece and its log probability");
      unigram(entry.at(0).text(), entry.at(1));
    }
    return;
  }
  for (const auto& [piece, id] : vocab.object()) {
    bpe(piece, JsonNode(id, fmt::format("{}[{}]", vocab.place(), braid::quoted(piece))));
  }
}

void read_vocabulary(const JsonNode& model, const JsonNode& root, const JsonNode& config,
                     TokenizerSpec& spec) {
  const JsonNode vocab = model["vocab"];
  const JsonNode merges = model["merges"];
  // Ids may have gaps, but may not ask for memory that the file does not pay for.
  const int64_t limit = std::min<int64_t>(
      2 * static_cast<int64_t>(vocab.value().size() + root["added_tokens"].array_size()) + 65536,
      INT32_MAX);
  std::vector<AddedToken> added = read_added_tokens(root, config, limit);

  size_t bytes = 0;
  const auto count = [&](const std::string& piece, const JsonNode&) { bytes += piece.size(); };
  each_piece(vocab, count, count);
  for (const AddedToken& token : added) bytes += token.text.size();
  for (size_t i = 0; i < merges.array_size(); ++i) {
    const auto& value = merges.value()[i];
    if (value.is_string()) {
      bytes += value.get_ref<const std::string&>().size();
    } else if (value.is_array()) {
      for (const auto& part : value) {
        if (part.is_string()) bytes += part.get_ref<const std::string&>().size();
      }
    }
  }
  Arena arena;
  arena.reserve(bytes);

  const auto place = [&](int32_t id, std::string_view piece, const std::string& where) {
    if (static_cast<size_t>(id) >= spec.pieces.size()) {
      spec.pieces.resize(id + 1);
      spec.types.resize(id + 1, TokenType::kUnused);
    }
    if (!spec.pieces[id].empty() && spec.pieces[id] != piece) {
      fail(ErrorCode::kMalformed, "{}: {} and {} both have id {}", where, quoted(spec.pieces[id]),
           braid::quoted(piece), id);
    }
    spec.types[id] = TokenType::kNormal;
    return spec.pieces[id].empty() ? spec.pieces[id] = arena.put(piece) : spec.pieces[id];
  };
  const bool fallback = model["byte_fallback"].boolean(false);
  const auto place_piece = [&](int32_t id, const std::string& piece, const JsonNode& node) {
    place(id, piece, node.place());
    if (fallback && piece.size() == 6 && piece.starts_with("<0x") && piece.ends_with('>')) {
      spec.types[id] = TokenType::kByte;
    }
  };
  each_piece(
      vocab,
      [&](const std::string& piece, const JsonNode& node) {
        place_piece(node.id(limit), piece, node);
      },
      [&](const std::string& piece, const JsonNode& node) {
        place_piece(static_cast<int32_t>(spec.log_probs.size()), piece, node);
        if (!node.value().is_number()) node.expected("a log probability");
        spec.log_probs.push_back(node.value().get<double>());
      });
  for (AddedToken& token : added) {
    token.text = place(token.id, token.text, root["added_tokens"].place());
    spec.types[token.id] = token.special ? TokenType::kControl : TokenType::kUserDefined;
  }
  // Added tokens behind a unigram vocabulary are no pieces of the model: such tokens are special,
  // or found in the text before the model.
  if (!spec.log_probs.empty()) spec.log_probs.resize(spec.pieces.size());
  spec.added = std::move(added);
  read_merges(merges, arena, spec.merges);
  spec.storage = arena.share();
}

void read_model(const JsonNode& root, const JsonNode& config, TokenizerSpec& spec) {
  const JsonNode model = root["model"];
  const bool unigram = model["vocab"].value().is_array();
  const std::string_view known = unigram ? "Unigram" : "BPE";
  if (!model["type"].is_null() && model["type"].text() != known) {
    model["type"].unsupported("BPE with an object as vocab, Unigram with an array");
  }
  static const std::string kNone;
  if (!model["continuing_subword_prefix"].text(kNone).empty()) {
    model["continuing_subword_prefix"].unsupported("none");
  }
  spec.end_of_word = model["end_of_word_suffix"].text(kNone);
  spec.decode.end_of_word = spec.end_of_word;
  const JsonNode dropout = model["dropout"];
  if (!dropout.is_null() && dropout.value() != 0) dropout.unsupported("none");
  spec.byte_fallback = model["byte_fallback"].boolean(false);
  spec.fuse_unk = model["fuse_unk"].boolean(false);
  spec.ignore_merges = model["ignore_merges"].boolean(false);
  read_vocabulary(model, root, config, spec);
  if (!spec.end_of_word.empty() && spec.ignore_merges) model["ignore_merges"].unsupported("false");
  if (unigram && !model["unk_id"].is_null()) {
    spec.unknown = model["unk_id"].id(static_cast<int64_t>(spec.pieces.size()));
    spec.types[spec.unknown] = TokenType::kUnknown;
  }
}

// The content of "bos_token" and the like: a string or an added token.
const std::string* token_text(const JsonNode& node) {
  if (node.is_null()) return nullptr;
  return &(node.value().is_object() ? node["content"].text() : node.text());
}

// Texts that tokenizer_config.json names as special tokens: every "..._token" and the lists.
std::vector<const std::string*> named_texts(const JsonNode& config) {
  std::vector<const std::string*> texts;
  const auto add = [&](const JsonNode& node) {
    const auto& value = node.value();
    const auto& text = value.is_object() && value.contains("content") ? value["content"] : value;
    if (text.is_string()) texts.push_back(text.get_ptr<const std::string*>());
  };
  for (const auto& [key, value] : config.object()) {
    if (key.ends_with("_token")) add(config[key]);
    const bool list = key == "additional_special_tokens" || key == "extra_special_tokens";
    if (!list || !value.is_structured()) continue;
    for (const auto& token : value) add({token, key});
  }
  return texts;
}

}  // namespace

TokenizerSpec tokenizer_from_json(std::string_view tokenizer_json,
                                  std::string_view tokenizer_config_json, std::string_view name) {
  return read_tokenizer(parse_json_object(tokenizer_json, name), tokenizer_config_json, name);
}

TokenizerSpec read_tokenizer(const nlohmann::json& document, std::string_view tokenizer_config_json,
                             std::string_view name) {
  const nlohmann::json config_document =
      tokenizer_config_json.empty()
          ? nlohmann::json::object()
          : parse_json_object(tokenizer_config_json, "tokenizer_config.json");
  const JsonNode root(document, fmt::format("{}:", name));
  const JsonNode config(config_document, "tokenizer_config.json:");

  TokenizerSpec spec;
  spec.name = name;
  read_model(root, config, spec);
  read_normalizer(root["normalizer"], spec.normalize);
  read_pre_tokenizer(root["pre_tokenizer"], spec);
  bool fused = false;
  read_decoder(root["decoder"], spec.decode, fused);
  const bool has_template = read_post_processor(root["post_processor"], spec);

  const auto find = [&](const std::string& text) -> int32_t {
    const auto at = std::ranges::find(spec.pieces, text);
    return at == spec.pieces.end() ? -1 : static_cast<int32_t>(at - spec.pieces.begin());
  };
  const auto named = [&](const char* key, bool required) -> int32_t {
    const std::string* text = token_text(config[key]);
    if (!text || text->empty()) return -1;
    const int32_t id = find(*text);
    if (id < 0 && required) config[key].expected("a token of the vocabulary");
    return id;
  };
  for (const std::string* text : named_texts(config)) {
    const int32_t id = find(*text);
    if (id < 0 || is_spelling(spec.pieces[id], spec)) continue;
    const auto at = std::ranges::find(spec.added, id, &AddedToken::id);
    if (at == spec.added.end()) {
      spec.added.push_back({.id = id, .text = spec.pieces[id], .special = true});
    } else {
      at->special = true;
    }
    spec.types[id] = TokenType::kControl;
  }
  spec.special = {.bos = named("bos_token", true),
                  .eos = named("eos_token", true),
                  .unk = named("unk_token", false),
                  .pad = named("pad_token", false)};
  if (const std::string* unknown = token_text(root["model"]["unk_token"])) {
    spec.unknown = find(*unknown);
    if (spec.unknown < 0) root["model"]["unk_token"].expected("a piece of the vocabulary");
    spec.types[spec.unknown] = TokenType::kUnknown;
  }
  if (spec.special.unk < 0) spec.special.unk = spec.unknown;
  if (!has_template) {
    if (config["add_bos_token"].boolean(false) && spec.special.bos >= 0) {
      spec.prefix.push_back(spec.special.bos);
    }
    if (config["add_eos_token"].boolean(false) && spec.special.eos >= 0) {
      spec.suffix.push_back(spec.special.eos);
    }
  }
  return spec;
}

}  // namespace braid
