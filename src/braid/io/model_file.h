#pragma once

#include <string>
#include <variant>

#include "braid/io/gguf_file.h"
#include "braid/io/hf_folder.h"

namespace braid {

// A model on disk in either form that Braid reads.
using ModelFile = std::variant<GgufFile, HfFolder>;

// Opens a .gguf file or a Hugging Face folder. Fails with kNotFound without such a file, with
// kInvalidArgument, naming the found and the accepted kinds, for other files, and like the
// readers for a broken model.
ModelFile open_model_file(const std::string& path);

const WeightSource& weights_of(const ModelFile& model);

}  // namespace braid
