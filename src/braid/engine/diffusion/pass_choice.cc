#include "braid/engine/diffusion/pass_choice.h"

#include <algorithm>
#include <utility>

#include "braid/engine/diffusion/cfg_groups.h"

namespace braid {
namespace {

// Bytes of a rank's values beside the weights.
int64_t value_room(const PipelineConfig& config, const WeightSource& weights,
                   const MemoryRoom& room) {
  int64_t bytes = 0;
  for (const std::string_view tensor : weights.names()) {
    const TensorType type = weights.type(tensor);
    bytes += config.device.cuda ? bytes_of(config.dtype, type.shape.elems()) : type.bytes();
  }
  // Pages of a file may leave a host.
  const int64_t stays = room.is_gpu() || !room.frees ? bytes : 0;
  return std::max<int64_t>(1, (room.bytes() - stays) / (room.is_gpu() ? 1 : config.ranks()));
}

class Candidates {
 public:
  Candidates(const PipelineConfig& config, const CogVideoXConfig& transformer, int64_t text,
             int64_t tokens)
      : config_(config), block_(one_block(transformer)), text_(text), tokens_(tokens) {}

  // The choice for a group of ranks that computes `passes`.
  StepChoice choose(const Topology& topology, int passes, int64_t room) {
    orders_.clear();
    return choice_of(
        config_, topology, block_.heads,
        [&](TextRows rows) { return forms_of(rows, passes, topology.ranks()); }, room);
  }
  TextOrder order_of(const StepChoice& choice) const { return orders_.at(choice.form); }

 private:
  // One form is not priced. A named schedule runs all passes alike.
  std::vector<StepForm> forms_of(TextRows rows, int passes, int ranks) {
    std::vector<TextOrder> orders = {TextOrder::apart};
    if (passes > 1 && config_.schedule == "cfg_passes") {
      orders = {TextOrder::turns};
    } else if (passes > 1 && (config_.choose_sp || config_.schedule == "auto")) {
      if (passes * (text_ + tokens_) <= kMostBatchRows) orders.push_back(TextOrder::batch);
      const bool named = config_.schedule != "auto" && config_.schedule != "sequence_parallel";
      if (ranks > 1 && !named) orders.push_back(TextOrder::turns);
    }
    std::vector<StepForm> forms;
    for (const TextOrder order : orders) {
      const bool apart = order == TextOrder::apart, turns = order == TextOrder::turns;
      const CogVideoXShape shape{
          .texts = apart ? 1 : passes, .text = text_, .tokens = tokens_, .passes = turns};
      const DType dtype = config_.values();
      forms.push_back({.text = rows,
                       .program = cogvideox_step(block_, shape, all_in(dtype), dtype),
                       .parts = CogVideoXTransformer::row_parts(rows, shape),
                       .runs = apart ? passes : 1,
                       .schedule = turns ? "cfg_passes" : "",
                       .name = passes > 1 ? std::string(to_string(order)) : ""});
      orders_.push_back(order);
    }
    return forms;
  }

  const PipelineConfig& config_;
  const CogVideoXConfig block_;
  const int64_t text_, tokens_;
  std::vector<TextOrder> orders_;  // of all forms
};

}  // namespace

PassChoice choose_passes(const PipelineConfig& config, const CogVideoXConfig& transformer,
                         int64_t text, int64_t tokens, const WeightSource& weights,
                         const MemoryRoom& room) {
  const bool divided = config.sp || config.choose_sp;
  const Topology all = divided ? config.topology : Topology{.devices = config.ranks()};
  Candidates candidates(config, transformer, text, tokens);
  std::vector<int> groups = {config.cfg_ranks};
  if (config.cfg_ranks == 0) groups = {1, 2};
  PassChoice choice;
  std::pair<int64_t, double> least;  // bytes of values beyond the room, then seconds
  for (const int n : groups) {
    if (config.cfg_ranks == 0 && all.ranks() % n != 0) continue;
    const Topology topology = cfg_group(all, n);
    std::optional<StepChoice> made;
    const int passes = std::min(config.passes, cfg_passes(n));
    if (divided && (topology.ranks() > 1 || config.choose_sp)) {
      made = candidates.choose(topology, passes, value_room(config, weights, room));
      for (const std::string& line : made->priced) {
        choice.priced.push_back(groups.size() == 1 ? line
                                                   : fmt::format("cfg ranks {}, {}", n, line));
      }
      const auto price = std::pair(made->beyond, made->seconds);
      if (n != groups[0] && price >= least) continue;
      least = price;
    }
    choice.cfg_ranks = n;
    choice.order.reset();
    if (made && passes > 1 && !made->priced.empty()) choice.order = candidates.order_of(*made);
    choice.mesh.reset();
    if (!made || topology.ranks() == 1) continue;
    choice.mesh = made->mesh;
    choice.schedule = made->schedule;
    choice.text = made->text;
  }
  return choice;
}

}  // namespace braid
