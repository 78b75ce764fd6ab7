#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace braid {

// The used parts of a SentencePiece model file. The views point into the file's bytes.
struct SentencePieceModel {
  struct Piece {
    std::string_view text;
    float score = 0;
    int32_t type = 1;  // numbered as TokenType
  };
  std::vector<Piece> pieces;
  int32_t model_type = 1;  // 1 unigram, 2 BPE, 3 words, 4 characters
  bool byte_fallback = false;
  int32_t unk_id = 0;
  std::string_view char_map;  // normalizer_spec.precompiled_charsmap; may be empty
};

// Reads the protocol buffer of sentencepiece_model.proto; other fields are skipped. Fails with
// kMalformed, naming `name` and the byte.
SentencePieceModel read_sentencepiece(std::string_view bytes, std::string_view name);

}  // namespace braid
