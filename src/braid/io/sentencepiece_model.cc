#include "braid/io/sentencepiece_model.h"

#include <cstring>

#include "braid/base/error.h"

namespace braid {
namespace {

// The fields of a message in the protocol buffer wire format, in order.
class Fields {
 public:
  struct Field {
    uint32_t number = 0;
    uint64_t value = 0;     // a number; or a float's 32 bits
    std::string_view text;  // of a string or message
  };
  Fields(std::string_view bytes, std::string_view message, std::string_view name)
      : whole_(bytes), left_(message), name_(name) {}

  // False at the end of the message.
  bool next(Field& field) {
    if (left_.empty()) return false;
    const uint64_t key = varint();
    if (key >> 3 == 0 || key >> 3 > 0x1fffffff) broken("a field number");
    field = {.number = static_cast<uint32_t>(key >> 3)};
    switch (key & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        std::memcpy(&field.value, take(8).data(), 8);
        break;
      case 2:
        field.text = take(varint());
        break;
      case 5:
        std::memcpy(&field.value, take(4).data(), 4);
        break;
      default:
        broken("a wire type");
    }
    return true;
  }

 private:
  [[noreturn]] void broken(std::string_view what) const {
    fail(ErrorCode::kMalformed, "{}: {} is broken at byte {} of {}: no SentencePiece model", name_,
         what, left_.data() - whole_.data(), whole_.size());
  }
  std::string_view take(uint64_t count) {
    if (count > left_.size()) broken("a length");
    const std::string_view taken = left_.substr(0, count);
    left_.remove_prefix(count);
    return taken;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (left_.empty()) broken("a number");
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    broken("a number");
  }

  std::string_view whole_;
  std::string_view left_;
  std::string_view name_;
};

float as_float(uint64_t bits) {
  const auto word = static_cast<uint32_t>(bits);
  float value = 0;
  std::memcpy(&value, &word, sizeof value);
  return value;
}

}  // namespace

SentencePieceModel read_sentencepiece(std::string_view bytes, std::string_view name) {
  SentencePieceModel model;
  Fields::Field field, inner;
  for (Fields fields(bytes, bytes, name); fields.next(field);) {
    Fields parts(bytes, field.text, name);
    if (field.number == 1) {
      auto& piece = model.pieces.emplace_back();
      while (parts.next(inner)) {
        if (inner.number == 1) piece.text = inner.text;
        if (inner.number == 2) piece.score = as_float(inner.value);
        if (inner.number == 3) piece.type = static_cast<int32_t>(inner.value);
      }
    } else if (field.number == 2) {  // trainer_spec
      while (parts.next(inner)) {
        if (inner.number == 3) model.model_type = static_cast<int32_t>(inner.value);
        if (inner.number == 35) model.byte_fallback = inner.value != 0;
        if (inner.number == 40) model.unk_id = static_cast<int32_t>(inner.value);
      }
    } else if (field.number == 3) {  // normalizer_spec
      while (parts.next(inner)) {
        if (inner.number == 2) model.char_map = inner.text;
      }
    }
  }
  if (model.pieces.empty()) fail(ErrorCode::kMalformed, "{} has no pieces", name);
  return model;
}

}  // namespace braid
