#include "braid/io/tokenizer.h"

#include <algorithm>
#include <utility>

#include "braid/base/error.h"
#include "braid/io/quoted.h"
#include "braid/io/tokenizer_added.h"
#include "braid/io/tokenizer_alphabet.h"
#include "braid/io/tokenizer_bpe.h"
#include "braid/io/tokenizer_flags.h"
#include "braid/io/tokenizer_impl.h"
#include "braid/io/tokenizer_normalize.h"
#include "braid/io/tokenizer_split.h"
#include "braid/io/tokenizer_utf8.h"
#include "braid/io/tokenizer_vocab.h"

namespace braid {
namespace {

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
  same(spec.log_probs.size(), "log probabilities");
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

std::string normalized(std::string_view text, const Normalizer& normalizer) {
  MarkedText marked{std::string(text), {}};
  normalizer.apply(marked);
  return std::move(marked.text);
}

}  // namespace

Tokenizer::Impl::Impl(TokenizerSpec given)
    : spec((check(given), std::move(given))),
      flags(token_flags(spec)),
      vocab(spec.pieces),
      normalizer(spec.normalize),
      splitter(spec.split),
      bpe(spec, vocab, flags) {
  if (!spec.log_probs.empty()) unigram.emplace(spec, flags);
  struct Found {
    std::vector<AddedToken> tokens;
    std::vector<std::string> texts;
    void add(const AddedToken& token, std::string text) {
      tokens.push_back(token);
      texts.push_back(std::move(text));
    }
    AddedTokens made() { return {std::move(tokens), texts}; }
  };
  Found raw, in_normalized, specials, normalized_specials;
  for (const AddedToken& token : spec.added) {
    if (token.special) specials.add(token, std::string(token.text));
    if (!token.normalized) {
      raw.add(token, std::string(token.text));
      continue;
    }
    const std::string text = normalized(token.text, normalizer);
    in_normalized.add(token, text);
    if (token.special) normalized_specials.add(token, text);
  }
  raw_added = raw.made();
  normalized_added = in_normalized.made();
  special_texts = specials.made();
  normalized_special_texts = normalized_specials.made();
  spec.merges = {};  // in `bpe` from here on
}

void Tokenizer::Impl::check_range(int32_t id) const {
  if (id < 0 || static_cast<size_t>(id) >= spec.pieces.size()) {
    fail(ErrorCode::kInvalidArgument, "token id {} is not in the vocabulary, 0 to {}", id,
         spec.pieces.size() - 1);
  }
}

void Tokenizer::Impl::append_bytes(int32_t id, std::string_view space, std::string& out) const {
  std::string_view piece = spec.pieces[id];
  const DecodeRule& rule = spec.decode;
  if (!rule.end_of_word.empty() && piece.ends_with(rule.end_of_word) &&
      !(flags[id] & kSpecialFlag)) {
    piece.remove_suffix(rule.end_of_word.size());
    append_spelled(piece, space, out);
    out += ' ';
  } else {
    append_spelled(piece, space, out);
  }
}

void Tokenizer::Impl::append_spelled(std::string_view piece, std::string_view space,
                                     std::string& out) const {
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
  MarkedText unmarked, buffer;
  std::string_view own;
  if (!options.mark.empty()) {
    unmarked = unmark(text, options.mark);
    text = unmarked.text;
    own = unmarked.own;
  }
  impl_->raw_added.cut(text, options.parse_special, own, raw);
  for (const AddedCut& part : raw) {
    if (part.id >= 0) {
      ids.push_back(part.id);
      continue;
    }
    std::string_view plain = part.text, plain_own;
    if (!own.empty()) {
      plain_own = own.substr(static_cast<size_t>(plain.data() - text.data()), plain.size());
    }
    if (!impl_->normalizer.empty()) {
      buffer = {std::string(plain), std::string(plain_own)};
      impl_->normalizer.apply(buffer);
      plain = buffer.text;
      plain_own = buffer.own;
    }
    cuts.clear();
    impl_->normalized_added.cut(plain, options.parse_special, plain_own, cuts);
    for (const AddedCut& cut : cuts) {
      if (cut.id >= 0) {
        ids.push_back(cut.id);
        continue;
      }
      const bool first = part.text.data() == text.data() && cut.text.data() == plain.data();
      impl_->splitter.split(cut.text, first, [&](std::string_view word) {
        if (impl_->unigram) {
          impl_->unigram->encode(word, ids);
        } else {
          impl_->bpe.encode(word, scratch, ids);
        }
      });
    }
  }
  if (options.add_special) {
    ids.insert(ids.end(), impl_->spec.suffix.begin(), impl_->spec.suffix.end());
  }
  return ids;
}

std::string Tokenizer::defuse(std::string_view text, std::string_view mark) const {
  std::string own(text.size(), '\0');
  impl_->special_texts.cover(text, own);
  // The characters that a normalizer turns into a token are unknown: all are marked then.
  const std::string plain = normalized(text, impl_->normalizer);
  std::string found(plain.size(), '\0');
  if (impl_->normalized_special_texts.cover(plain, found)) own.assign(text.size(), '\1');
  return mark_own(text, own, mark);
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

std::span<const int32_t> Tokenizer::suffix() const {
  return impl_->spec.suffix;
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
  return impl_->flags[id] & kSpecialFlag;
}

bool Tokenizer::is_end_of_generation(int32_t id) const {
  impl_->check_range(id);
  return impl_->flags[id] & kEndFlag;
}

std::optional<int32_t> Tokenizer::find(std::string_view piece) const {
  const int32_t id = impl_->vocab.find(piece);
  return id < 0 ? std::nullopt : std::optional(id);
}

}  // namespace braid
