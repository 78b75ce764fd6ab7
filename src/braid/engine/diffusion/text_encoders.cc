#include "braid/engine/diffusion/text_encoders.h"

#include <algorithm>
#include <numeric>

#include "braid/io/padded_prompt.h"
#include "braid/io/tokenizer_load.h"

namespace braid {
namespace {

// Files that transformers 5 wrote have no prefix before the weights' names.
ClipTextConfig clip_config(const DiffusersFolder& folder, const WeightSource& weights) {
  ClipTextConfig config = read_clip_text_config(folder.config("text_encoder"));
  const std::string embedding = "embeddings.token_embedding.weight";
  if (weights.find_type(embedding)) config.prefix.clear();
  return config;
}

}  // namespace

ClipEncoder::ClipEncoder(const DiffusersFolder& folder, const NetworkConfig& network,
                         const std::string& variant)
    : tokenizer_(tokenizer_from_folder(folder.folder("tokenizer"))),
      weights_(folder.weights("text_encoder", variant)),
      config_(clip_config(folder, *weights_)),
      network_("text encoder", *weights_, network) {
  const Program program = clip_text(config_, 1, config_.positions, network_.dtype_of());
  network_.check({&program, 1}, clip_text_ignores);
}

BoundNetwork& ClipEncoder::bound() {
  return network_.plan(
      "one", [&] { return clip_text(config_, 1, config_.positions, network_.dtype_of()); });
}

EncodedPrompt ClipEncoder::encode(const std::string& prompt) {
  const PaddedPrompt padded = padded_prompt(tokenizer_, prompt, config_.positions);
  BoundNetwork& network = bound();
  std::vector<int32_t> positions(padded.ids.size());
  std::iota(positions.begin(), positions.end(), 0);
  const auto end = std::ranges::find(padded.ids, tokenizer_.special().eos);
  BRAID_CHECK(end != padded.ids.end(), "a prompt of {} tokens without an end", padded.tokens);
  const std::vector<int32_t> rows = {static_cast<int32_t>(end - padded.ids.begin())};
  network.write("token_ids", padded.ids);
  network.write("positions", positions);
  network.write("rows", rows);
  network.run();
  const auto pooled = network.output(0);
  return {{pooled.begin(), pooled.end()}, padded.tokens, padded.cut};
}

int64_t ClipEncoder::value_bytes() const {
  return network_.value_bytes(clip_text(config_, 1, config_.positions, network_.dtype_of()));
}

T5Encoder::T5Encoder(const DiffusersFolder& folder, const NetworkConfig& network,
                     const std::string& variant, const std::string& suffix)
    : tokenizer_(tokenizer_from_folder(folder.folder("tokenizer" + suffix))),
      weights_(folder.weights("text_encoder" + suffix, variant)),
      config_(read_t5_encoder_config(folder.config("text_encoder" + suffix))),
      network_(suffix.empty() ? "text encoder" : "second text encoder", *weights_, network) {
  const Program program = t5_encoder(config_, {.length = 1}, network_.dtype_of());
  network_.check({&program, 1}, t5_encoder_ignores);
}

int64_t T5Encoder::value_bytes(int64_t length) const {
  return network_.value_bytes(t5_encoder(config_, {.length = length}, network_.dtype_of()));
}

BoundNetwork& T5Encoder::bound(int64_t length) {
  return network_.plan(fmt::format("length {}", length), [&] {
    return t5_encoder(config_, {.length = length}, network_.dtype_of());
  });
}

EncodedPrompt T5Encoder::encode(const std::string& prompt, int64_t length) {
  const PaddedPrompt padded = padded_prompt(tokenizer_, prompt, length);
  BoundNetwork& network = bound(length);
  network.write("token_ids", padded.ids);
  network.run();
  const auto states = network.output(0);
  return {{states.begin(), states.end()}, padded.tokens, padded.cut};
}

}  // namespace braid
