#pragma once

#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "braid/engine/diffusion/cogvideox_pipeline.h"
#include "braid/engine/diffusion/flux_pipeline.h"
#include "braid/engine/diffusion/random_source.h"
#include "braid/engine/diffusion/torch_generator.h"
#include "golden/diffusion/case.h"
#include "golden/diffusion/differences.h"

// Components of real width with few blocks and random weights, as in
// tools/make_full_width_goldens.py.
namespace braid::golden {

inline std::vector<float> torch_normals(uint64_t seed, int64_t n) {
  std::vector<float> x(static_cast<size_t>(n));
  TorchGenerator(seed).normals(x);
  return x;
}

class FullWidth {
 public:
  // `dtype`: of weights, and on a GPU of values.
  FullWidth(DeviceSpec device, DType dtype) : device_(std::move(device)), dtype_(dtype) {}

  // The result of a component of full_width.json, whole.
  std::vector<float> result(const std::string& component) const {
    if (component == "flux") return flux();
    if (component == "cogvideox_2b") return cogvideox("cogvideox-2b.json");
    if (component == "cogvideox_5b") return cogvideox("cogvideox-5b.json");
    if (component == "cogvideox_1_5_5b") return cogvideox("cogvideox-1.5-5b.json");
    if (component == "flux_decoder") return kl_decoder();
    if (component == "cogvideox_decoder") return video_decoder();
    if (component == "t5") return t5();
    if (component == "clip") return clip();
    fail(ErrorCode::kNotFound, "no component '{}' of full width", component);
  }

 private:
  static constexpr int64_t kText = 226;  // tokens

  static std::string config(const std::string& file) {
    return BRAID_TEST_DATA "/../configs/" + file;
  }

  NetworkConfig network(const RandomWeights* random) const {
    return {.threads = 2, .device = device_, .dtype = dtype_, .random = random};
  }

  std::vector<float> flux() const {
    const PipelineParts parts = random_flux(config("flux-1-dev.json"), dtype_,
                                            {{"num_layers", 1}, {"num_single_layers", 1}});
    FluxTransformer transformer(parts.transformer, *parts.transformer_weights,
                                network(parts.random_transformer));
    const FluxConfig& c = transformer.config();
    const auto text = torch_normals(1, kText * c.text_dim), pooled = torch_normals(2, c.pooled_dim);
    const std::vector<float> sigmas = {0.5f};
    constexpr int64_t kSide = 7;
    transformer.begin({.token_rows = kSide,
                       .token_columns = kSide,
                       .text = text,
                       .pooled = pooled,
                       .sigmas = sigmas,
                       .guidance = 4});
    const auto v = transformer.velocity(0, torch_normals(3, kSide * kSide * c.in_channels));
    return {v.begin(), v.end()};
  }

  std::vector<float> cogvideox(const std::string& file) const {
    const PipelineParts parts = random_cogvideox(config(file), dtype_, {{"num_layers", 2}});
    CogVideoXTransformer transformer(parts.transformer, parts.transformer_weights,
                                     network(parts.random_transformer));
    const CogVideoXConfig& c = transformer.config();
    const VideoGrid grid{3, 4, 5};
    const auto text = torch_normals(1, kText * c.text_dim);
    const std::vector<int64_t> timesteps = {500};
    transformer.begin({.grid = grid, .text_states = text, .timesteps = timesteps});
    const auto v = transformer.predict(0, torch_normals(3, grid.tokens() * c.token_dim()));
    return {v.begin(), v.end()};
  }

  std::vector<float> kl_decoder() const {
    const PipelineParts parts = random_flux(config("flux-1-dev.json"), dtype_);
    VaeDecoder decoder(parts.vae, parts.vae_weights, network(parts.random_vae));
    const auto pixels = decoder.decode(torch_normals(4, 7 * 5 * decoder.channels()), 7, 5);
    return {pixels.begin(), pixels.end()};
  }

  std::vector<float> video_decoder() const {
    const PipelineParts parts = random_cogvideox(config("cogvideox-5b.json"), dtype_);
    VideoDecoder decoder(parts.vae, parts.vae_weights, network(parts.random_vae));
    const VideoLatentSize size{.frames = 5, .height = 3, .width = 2};
    return decoder.pixels(torch_normals(4, 5 * 3 * 2 * decoder.channels()), size);
  }

  static JsonObject text_config(const std::string& name) {
    return {name, diffusion_json("component_names.json").at(name).at("config")};
  }

  static std::vector<int32_t> token_ids(int64_t count, int64_t vocab) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>(i * 7919 % vocab));
    return ids;
  }

  using Inputs = std::map<std::string, std::vector<int32_t>>;
  std::vector<float> encoded(const Program& program, uint64_t seed, const Inputs& inputs) const {
    const RandomSource weights("random", {&program, 1}, seed);
    Network network("text encoder", weights, this->network(&weights.weights()));
    BoundNetwork& bound = network.plan("one", [&] { return program; });
    for (const auto& [name, ids] : inputs) bound.write(name, ids);
    bound.run();
    return {bound.output(0).begin(), bound.output(0).end()};
  }

  std::vector<float> t5() const {
    T5EncoderConfig c = read_t5_encoder_config(text_config("t5"));
    c.layers = 2;
    return encoded(t5_encoder(c, {.length = kText}, all_in(dtype_)), 3,
                   {{"token_ids", token_ids(kText, 32000)}});
  }

  std::vector<float> clip() const {
    const ClipTextConfig c = read_clip_text_config(text_config("clip"));
    Inputs inputs = {{"token_ids", token_ids(c.positions, 49000)}, {"rows", {20}}};
    std::fill(inputs["token_ids"].begin() + 20, inputs["token_ids"].end(), 49407);
    inputs["positions"].resize(static_cast<size_t>(c.positions));
    std::iota(inputs["positions"].begin(), inputs["positions"].end(), 0);
    return encoded(clip_text(c, 1, c.positions, all_in(dtype_)), 4, inputs);
  }

  const DeviceSpec device_;
  const DType dtype_;
};

// Distances from diffusers' results in f32, over their root mean square.
struct FullWidthError {
  double braid = 0;
  double diffusers_bf16 = 0;  // on a device of the same kind
};

inline FullWidthError full_width_error(const std::string& component, const DeviceSpec& device,
                                       DType dtype) {
  const nlohmann::json facts = diffusion_json("full_width.json").at(component);
  const std::vector<float> all = FullWidth(device, dtype).result(component);
  std::vector<float> some;
  for (size_t i = 0; i < all.size(); i += facts.at("every").get<size_t>()) some.push_back(all[i]);
  const SafetensorsFile golden(diffusion_golden("full_width.safetensors"));
  return {relative_rms(some, tensor<float>(golden, component)),
          facts.at(device.cuda ? "gpu_bf16" : "bf16")};
}

inline std::vector<std::string> full_width_components() {
  const nlohmann::json all = diffusion_json("full_width.json");
  std::vector<std::string> names;
  for (const auto& [name, facts] : all.items()) names.push_back(name);
  return names;
}

}  // namespace braid::golden
