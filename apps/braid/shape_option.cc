#include "braid/shape_option.h"

#include <cstdlib>

#include "braid/base/error.h"
#include "braid/engine/limits.h"
#include "braid/io/model_lookup.h"

namespace braid::app {

void ShapeOption::add_to(CLI::App& command) {
  command.add_option("--config", config_, "a config.json in place of -m, with --random-weights");
  command.add_flag("--random-weights", random_, "measure without a download");
  command.add_option("--weights", weights_,
                     "with --config: their type (bf16), also GGUF's blocks, like q4_k");
  command.add_option("--layers", layers_, "with --config: the first layers only (0: all)");
}

void ShapeOption::require_none() const {
  if (!random_ && weights_.empty() && layers_ == 0) return;
  fail(ErrorCode::kInvalidArgument,
       "--random-weights, --weights and --layers go with --config, not -m");
}

ModelShape ShapeOption::read() const {
  require_between("--layers", layers_, 0, 10000);
  if (!random_) {
    fail(ErrorCode::kInvalidArgument,
         "--config names a shape without weights: add --random-weights");
  }
  const std::optional<DType> weights = parse_dtype(weights_.empty() ? "bf16" : weights_);
  if (!weights || (!is_float(*weights) && !is_quantized(*weights))) {
    fail(ErrorCode::kInvalidArgument,
         "--weights '{}': f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k or q6_k",
         weights_);
  }
  ModelShape shape = read_model_shape(config_, *weights);
  if (layers_ > shape.config.layers) {
    fail(ErrorCode::kInvalidArgument, "--layers is {}, {} has {}", layers_, config_,
         shape.config.layers);
  }
  if (layers_ > 0) shape.config.layers = layers_;
  return shape;
}

std::function<std::unique_ptr<LoadedModel>()> ShapeOption::opener(
    const std::string& tokenizer) const {
  if (tokenizer.empty()) {
    fail(ErrorCode::kInvalidArgument,
         "--config names a shape, which has no tokenizer: add --tokenizer MODEL");
  }
  const ModelStores stores = model_stores([](const char* name) { return std::getenv(name); });
  return [shape = read(), text = find_model(tokenizer, stores)] {
    return std::make_unique<LoadedModel>(shape, text);
  };
}

}  // namespace braid::app
