#include "braid/io/tokenizer_flags.h"
#include "braid/io/tokenizer_impl.h"
#include "braid/io/tokenizer_utf8.h"

namespace braid {
namespace {

constexpr std::string_view kReplacement = "\ufffd";

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, const DecodeOptions& options)
    : impl_(tokenizer.impl_.get()), options_(options) {
  finish();
}

void StreamDecoder::append(int32_t id, std::string& out) {
  impl_->check_range(id);
  if (options_.skip_special && (impl_->flags[id] & kSpecialFlag)) return;
  const DecodeRule& rule = impl_->spec.decode;
  const bool strip_all = first_ && rule.strip_first && !options_.continuation;
  impl_->append_bytes(id, strip_all ? "" : " ", pending_);
  first_ = false;
  size_t at = 0;
  while (at < pending_.size()) {
    const Utf8Char c = decode_utf8(pending_, at);
    if (c.status == Utf8Status::kIncomplete) break;
    if (c.status == Utf8Status::kValid) {
      if (strip_ > 0 && c.code == ' ') {
        --strip_;
      } else {
        strip_ = 0;
        out.append(pending_, at, c.size);
      }
      at += c.size;
      continue;
    }
    strip_ = 0;
    // Byte fallback replaces byte by byte, as SentencePiece does; byte level as Unicode 3.9 says.
    for (int i = 0; i < (rule.byte_level ? 1 : c.size); ++i) out += kReplacement;
    at += c.size;
  }
  pending_.erase(0, at);
}

std::string StreamDecoder::push(int32_t id) {
  std::string out;
  append(id, out);
  return out;
}

std::string StreamDecoder::finish() {
  const DecodeRule& rule = impl_->spec.decode;
  std::string out;
  if (!pending_.empty()) {
    for (size_t i = 0; i < (rule.byte_level ? 1 : pending_.size()); ++i) out += kReplacement;
  }
  pending_.clear();
  strip_ = options_.continuation ? 0 : rule.strip_left;
  first_ = true;
  return out;
}

}  // namespace braid
