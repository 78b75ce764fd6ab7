#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "braid/io/json_object.h"
#include "braid/io/weight_source.h"

namespace braid {

// A pipeline on disk in diffusers' form. model_index.json names each component's library and class.
// Each component has a folder with a configuration and safetensors: one file or shards, perhaps a
// variant ("fp16") beside plain files.
class DiffusersFolder {
 public:
  // Reads model_index.json; fails with kNotFound without the file, and as JsonObject does.
  explicit DiffusersFolder(const std::string& path);

  const std::string& path() const { return path_; }
  // The pipeline's class: "FluxPipeline".
  const std::string& pipeline() const { return pipeline_; }

  // A component's class, "T5EncoderModel"; nothing for an absent component.
  std::optional<std::string> find_class(std::string_view component) const;
  // Fails with kNotFound on an absent component, with kUnsupported on a class other than `wanted`.
  void require_class(std::string_view component, std::string_view wanted) const;

  // A component's folder, and a file inside; both fail with kNotFound.
  std::string folder(std::string_view component) const;
  std::string file(std::string_view component, std::string_view name) const;
  JsonObject config(std::string_view component, std::string_view name = "config.json") const;
  // A component's weights. Without a variant: plain files, or else the only variant present. Fails
  // with kNotFound, naming the wanted files.
  std::unique_ptr<WeightSource> weights(std::string_view component,
                                        std::string_view variant = "") const;

 private:
  std::string path_;
  JsonObject index_;
  std::string pipeline_;
};

}  // namespace braid
