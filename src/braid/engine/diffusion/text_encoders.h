#pragma once

#include <memory>
#include <string>
#include <vector>

#include "braid/engine/diffusion/network.h"
#include "braid/io/diffusers_folder.h"
#include "braid/io/tokenizer.h"
#include "braid/model/clip_text.h"
#include "braid/model/t5_encoder.h"

namespace braid {

// A prompt after a text encoder.
struct EncodedPrompt {
  std::vector<float> values;  // pooled [C], or states [L, C]
  int64_t tokens = 0;         // without padding
  std::string cut;            // text beyond the last token
};

// A pipeline's "text_encoder" and "tokenizer", CLIP: a prompt becomes a single vector.
class ClipEncoder {
 public:
  // Fails as the readers of the files and Network::check do.
  ClipEncoder(const DiffusersFolder& folder, const NetworkConfig& network,
              const std::string& variant);
  void prepare() { bound(); }  // plans, and moves weights to the device: the first use does, too
  EncodedPrompt encode(const std::string& prompt);
  int64_t value_bytes() const;                     // while it encodes
  int64_t width() const { return config_.width; }  // C
  const Network& network() const { return network_; }
  int64_t positions() const { return config_.positions; }  // tokens of a text

 private:
  BoundNetwork& bound();

  Tokenizer tokenizer_;
  std::unique_ptr<WeightSource> weights_;
  ClipTextConfig config_;
  Network network_;
};

// A pipeline's T5: a prompt becomes `length` states, padding included. `suffix` tells its
// components: "_2" for "text_encoder_2" and "tokenizer_2".
class T5Encoder {
 public:
  T5Encoder(const DiffusersFolder& folder, const NetworkConfig& network, const std::string& variant,
            const std::string& suffix = "");
  void prepare(int64_t length) { bound(length); }  // as ClipEncoder's
  EncodedPrompt encode(const std::string& prompt, int64_t length);
  int64_t value_bytes(int64_t length) const;
  int64_t width() const { return config_.width; }  // C
  const Network& network() const { return network_; }

 private:
  BoundNetwork& bound(int64_t length);

  Tokenizer tokenizer_;
  std::unique_ptr<WeightSource> weights_;
  T5EncoderConfig config_;
  Network network_;
};

}  // namespace braid
