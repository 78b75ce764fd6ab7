#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "braid/io/json_object.h"
#include "braid/io/weight_source.h"

namespace braid {

// A pipeline as diffusers lays it out: model_index.json names the library and the class of each
// component, and each component has a folder with its configuration and its weights in safetensors,
// perhaps in shards, perhaps in a variant ("fp16") beside the plain files.
class DiffusersFolder {
 public:
  // Reads model_index.json; fails with kNotFound where there is none, and as JsonObject does.
  explicit DiffusersFolder(const std::string& path);

  const std::string& path() const { return path_; }
  // The pipeline's class: "FluxPipeline".
  const std::string& pipeline() const { return pipeline_; }

  // A component's class, "T5EncoderModel"; nothing where the pipeline goes without it.
  std::optional<std::string> find_class(std::string_view component) const;
  // Fails with kNotFound where it goes without, with kUnsupported where the class is not `wanted`.
  void require_class(std::string_view component, std::string_view wanted) const;

  // The folder of a component, and a file in it; both fail with kNotFound.
  std::string folder(std::string_view component) const;
  std::string file(std::string_view component, std::string_view name) const;
  JsonObject config(std::string_view component, std::string_view name = "config.json") const;
  // The component's weights. Without a variant the plain files, or where these are missing the only
  // variant that is there. Fails with kNotFound, naming what was looked for.
  std::unique_ptr<WeightSource> weights(std::string_view component,
                                        std::string_view variant = "") const;

 private:
  std::string path_;
  JsonObject index_;
  std::string pipeline_;
};

}  // namespace braid
