#include "braid/io/tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "braid/base/error.h"
#include "braid/io/quoted.h"
#include "braid/io/tokenizer_added.h"
#include "braid/io/tokenizer_alphabet.h"
#include "braid/io/tokenizer_bpe.h"
#include "braid/io/tokenizer_impl.h"
#include "braid/io/tokenizer_split.h"
#include "braid/io/tokenizer_utf8.h"
#include "braid/io/tokenizer_vocab.h"

namespace braid {
namespace {

// Texts of tokens that end an answer in the model families that chat.
constexpr std::array<std::string_view, 8> kEndTexts = {
    "<|im_end|>",    "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>",
    "<|endoftext|>", "<|end|>",    "<|eot|>",    "<end_of_turn>",
};

void check_id(int32_t id, size_t vocab, std::string_view what) {
  if (id < 0 || static_cast<size_t>(id) >= vocab) {
    fail(ErrorCode::kMalformed, "{} has id {}, the vocabulary ends at {}", what, id,
         static_cast<int64_t>(vocab) - 1);
  }
}

void check(const TokenizerSpec& spec) {
  const size_t vocab = spec.pieces.size();
  if (vocab == 0) fail(ErrorCode::kMalformed, "the vocabulary is empty");
  if (vocab > INT32_MAX) fail(ErrorCode::kMalformed, "{} pieces are too many", vocab);
  const auto same = [&](size_t count, std::string_view what) {
    if (count != 0 && count != vocab) {
      fail(ErrorCode::kMalformed, "{} {} for {} pieces", count, what, vocab);
    }
  };
  same(spec.types.size(), "token types");
  same(spec.scores.size(), "scores");
  for (size_t id = 0; id < spec.types.size(); ++id) {
    const int type = static_cast<int>(spec.types[id]);
    if (type < static_cast<int>(TokenType::kNormal) || type > static_cast<int>(TokenType::kByte)) {
      fail(ErrorCode::kMalformed, "piece {} has token type {}, 1 to 6 are known", id, type);
    }
  }
  for (const AddedToken& token : spec.added) check_id(token.id, vocab, "an added token");
  for (const int32_t id : spec.prefix) check_id(id, vocab, "a token in front of the text");
  for (const int32_t id : spec.suffix) check_id(id, vocab, "a token behind the text");
  for (const int32_t id : spec.end_of_generation) check_id(id, vocab, "an end-of-generation token");
  const auto optional = [&](int32_t id, std::string_view what) {
    if (id != -1) check_id(id, vocab, what);
  };
  optional(spec.special.bos, "the BOS token");
  optional(spec.special.eos, "the EOS token");
  optional(spec.special.eot, "the EOT token");
  optional(spec.special.unk, "the unknown token");
  optional(spec.unknown, "the unknown token");
  optional(spec.special.pad, "the padding token");
}

// `text` less every occurrence of `mark`; empty where there is no mark.
std::string without(std::string_view text, std::string_view mark) {
  std::string out;
  if (mark.empty()) return out;
  for (size_t at; (at = text.find(mark)) != text.npos; text.remove_prefix(at + mark.size())) {
    out.append(text, 0, at);
  }
  return out.append(text);
}

std::string normalized(std::string_view text, const std::vector<NormalizeStep>& steps) {
  std::string out(text);
  for (const NormalizeStep& step : steps) {
    switch (step.kind) {
      case NormalizeStep::Kind::kNfc:
        out = to_nfc(out);
        break;
      case NormalizeStep::Kind::kPrepend:
        if (!out.empty()) out.insert(0, step.to);
        break;
      case NormalizeStep::Kind::kReplace: {
        std::string replaced;
        size_t done = 0;
        for (size_t at; (at = out.find(step.from, done)) != out.npos;
             done = at + step.from.size()) {
          replaced.append(out, done, at - done).append(step.to);
        }
        out = std::move(replaced.append(out, done));
        break;
      }
    }
  }
  return out;
}

}  // namespace

Tokenizer::Impl::Impl(TokenizerSpec given)
    : spec((check(given), std::move(given))),
      vocab(spec.pieces),
      splitter(spec.split),
      bpe(spec, vocab),
      flags(spec.pieces.size()) {
  for (const NormalizeStep& step : spec.normalize) {
    if (step.kind == NormalizeStep::Kind::kReplace && step.from.empty()) {
      fail(ErrorCode::kMalformed, "a normalizer replaces the empty text");
    }
  }
  std::vector<AddedToken> tokens[2];
  std::vector<std::string> texts[2];
  for (const AddedToken& token : spec.added) {
    if (token.special) flags[token.id] |= kSpecial;
    tokens[token.normalized].push_back(token);
    texts[token.normalized].push_back(token.normalized ? normalized(token.text, spec.normalize)
                                                       : std::string(token.text));
    if (std::ranges::count(kEndTexts, token.text) > 0) flags[token.id] |= kEnd;
  }
  raw_added = AddedTokens(std::move(tokens[0]), texts[0]);
  normalized_added = AddedTokens(std::move(tokens[1]), texts[1]);
  for (size_t id = 0; id < spec.types.size(); ++id) {
    if (spec.types[id] == TokenType::kControl || spec.types[id] == TokenType::kUnknown) {
      flags[id] |= kSpecial;
    }
  }
  for (const int32_t id : {spec.special.eos, spec.special.eot}) {
    if (id >= 0) flags[id] |= kEnd;
  }
  for (const int32_t id : spec.end_of_generation) flags[id] |= kEnd;
  spec.merges = {};  // in `bpe` from here on
}

void Tokenizer::Impl::check_range(int32_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= spec.pieces.size()) {
    fail(ErrorCode::kInvalidArgument, "token id {} is not in the vocabulary, 0 to {}", id,
         spec.pieces.size() - 1);
  }
}

void Tokenizer::Impl::append_bytes(int32_t id, std::string_view space, std::string& out) const {
  const std::string_view piece = spec.pieces[id];
  const DecodeRule& rule = spec.decode;
  if (rule.byte_level) {
    const size_t before = out.size();
    for (size_t at = 0; at < piece.size();) {
      const Utf8Char c = decode_utf8(piece, at);
      const int byte = c.status == Utf8Status::kValid ? byte_of(c.code) : -1;
      if (byte < 0) {  // a piece outside the alphabet is its own text
        out.resize(before);
        out += piece;
        return;
      }
      out += static_cast<char>(byte);
      at += c.size;
    }
    return;
  }
  if (rule.byte_fallback && piece.size() == 6 && piece.starts_with("<0x") && piece[5] == '>') {
    const auto digit = [](char c) {
      return c >= '0' && c <= '9'   ? c - '0'
             : c >= 'A' && c <= 'F' ? c - 'A' + 10
             : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                    : -1;
    };
    const int high = digit(piece[3]), low = digit(piece[4]);
    if (high >= 0 && low >= 0) {
      out += static_cast<char>(high * 16 + low);
      return;
    }
  }
  size_t done = 0;
  if (!rule.space.empty()) {
    for (size_t at; (at = piece.find(rule.space, done)) != piece.npos;
         done = at + rule.space.size()) {
      out.append(piece.substr(done, at - done)).append(space);
    }
  }
  out += piece.substr(done);
}

Tokenizer::Tokenizer(TokenizerSpec spec) {
  const std::string name = spec.name;
  try {
    impl_ = std::make_unique<Impl>(std::move(spec));
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", name, error.what()));
  }
}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  constexpr size_t kMaxText = size_t{1} << 31;
  if (text.size() >= kMaxText) {
    fail(ErrorCode::kInvalidArgument, "a text of {} bytes to tokenize, the limit is {}",
         text.size(), kMaxText - 1);
  }
  std::vector<int32_t> ids;
  if (options.add_special) ids = impl_->spec.prefix;
  BpeScratch scratch(text.size());
  std::vector<AddedCut> raw, cuts;
  impl_->raw_added.cut(text, options.parse_special, raw);
  for (const AddedCut& part : raw) {
    if (part.id >= 0) {
      ids.push_back(part.id);
      continue;
    }
    std::string buffer;
    std::string_view plain = part.text;
    if (!impl_->spec.normalize.empty()) plain = buffer = normalized(plain, impl_->spec.normalize);
    cuts.clear();
    impl_->normalized_added.cut(plain, options.parse_special, cuts);
    for (const AddedCut& cut : cuts) {
      if (cut.id >= 0) {
        ids.push_back(cut.id);
        continue;
      }
      const bool first = part.text.data() == text.data() && cut.text.data() == plain.data();
      const std::string unmarked = without(cut.text, options.mark);
      impl_->splitter.split(options.mark.empty() ? cut.text : unmarked, first,
                            [&](std::string_view word) { impl_->bpe.encode(word, scratch, ids); });
    }
  }
  if (options.add_special) {
    ids.insert(ids.end(), impl_->spec.suffix.begin(), impl_->spec.suffix.end());
  }
  return ids;
}

std::string Tokenizer::defuse(std::string_view text, std::string_view mark) const {
  std::string out(text);
  std::vector<AddedCut> cuts;
  for (bool found = true; found;) {  // what follows a mark may spell another, shorter token
    found = false;
    cuts.clear();
    impl_->raw_added.cut(out, true, cuts);
    std::string next;
    for (const AddedCut& cut : cuts) {
      const bool special = cut.id >= 0 && is_special(cut.id);
      const size_t first = special ? decode_utf8(cut.text, 0).size : 0;
      next.append(cut.text.substr(0, first)).append(special ? mark : "");
      next.append(cut.text.substr(first));
      found |= special;
    }
    out = std::move(next);
  }
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  StreamDecoder decoder(*this, options);
  std::string text;
  for (const int32_t id : ids) decoder.append(id, text);
  return text += decoder.finish();
}

std::span<const int32_t> Tokenizer::prefix() const {
  return impl_->spec.prefix;
}

int32_t Tokenizer::vocab_size() const {
  return static_cast<int32_t>(impl_->spec.pieces.size());
}

const SpecialIds& Tokenizer::special() const {
  return impl_->spec.special;
}

std::string_view Tokenizer::piece(int32_t id) const {
  impl_->check_range(id);
  return impl_->spec.pieces[id];
}

std::string Tokenizer::bytes(int32_t id) const {
  impl_->check_range(id);
  std::string out;
  impl_->append_bytes(id, " ", out);
  return out;
}

TokenType Tokenizer::type(int32_t id) const {
  impl_->check_range(id);
  return impl_->spec.types.empty() ? TokenType::kNormal : impl_->spec.types[id];
}

bool Tokenizer::is_special(int32_t id) const {
  impl_->check_range(id);
  return impl_->flags[id] & Impl::kSpecial;
}

bool Tokenizer::is_end_of_generation(int32_t id) const {
  impl_->check_range(id);
  return impl_->flags[id] & Impl::kEnd;
}

std::optional<int32_t> Tokenizer::find(std::string_view piece) const {
  const int32_t id = impl_->vocab.find(piece);
  return id < 0 ? std::nullopt : std::optional(id);
}

}  // namespace braid
