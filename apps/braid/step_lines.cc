#include "braid/step_lines.h"

#include "braid/text_io.h"

namespace braid::app {

void StepLines::add(std::span<const TimedRow> rows, double seconds, double planning) {
  Line& line = steps_.emplace_back();
  line.seconds = seconds;
  line.planning = planning;
  for (const TimedRow& row : rows) {
    if (row.decode) {
      ++line.answers;
      line.keys += row.cached + row.tokens;
    } else {
      line.prompts.push_back({row.tokens, row.cached});
    }
  }
}

std::string StepLines::text(const std::string& policy) const {
  std::string text;
  for (const Line& line : steps_) {
    nlohmann::ordered_json json = {{"policy", policy}, {"ms", 1e3 * line.seconds}};
    json["prompts"] = nlohmann::ordered_json::array();
    for (const Prompt& p : line.prompts) json["prompts"].push_back({p.tokens, p.cached});
    json["answers"] = line.answers;
    json["keys"] = line.keys;
    if (line.planning > 0) json["planning_ms"] = 1e3 * line.planning;
    text += json_text(json) + "\n";
  }
  return text;
}

}  // namespace braid::app
