#include "braid/level_options.h"

#include "braid/number_list.h"
#include "braid/options.h"

namespace braid::app {

void LevelOptions::add_to(CLI::App& command, const std::string& parts) {
  command_ = &command;
  command
      .add_option("--keep", keep_,
                  "approximate: the share of a prompt's far keys that attention reads, by level: "
                  "0.5,0.25; where ranks divide a prompt's tokens, of the keys on far ranks")
      ->type_name(kNumbers)
      ->group(kRanks);
  command
      .add_option(
          "--levels", levels_,
          "with --keep: ranks of the group of each level, near ones first: 2,8 (default: one "
          "level; for several shares a machine, a rack, all; " +
              parts + ")")
      ->type_name(kNumbers)
      ->group(kRanks);
  command
      .add_option(
          "--importance", importance_,
          "with --keep: which queries choose keys: own (the last of the keys' part; pages stay "
          "shared, perplexity is honest), probe (the prompt's last; finds what a question at the "
          "end asks for) or previous (all parts' last, in the layer before)")
      ->capture_default_str()
      ->group(kRanks);
  command
      .add_flag("--drop-queries", drop_queries_,
                "with --keep: tokens whose keys are left out see no far keys either")
      ->group(kRanks);
}

Thinning LevelOptions::request() const {
  for (const char* name : {"--levels", "--importance", "--drop-queries"}) {
    if (command_->count(name) == 0 || !keep_.empty()) continue;
    fail(ErrorCode::kInvalidArgument, "{} goes with --keep, which says what each level reads",
         name);
  }
  return {.keep = parse_numbers<double>("--keep", keep_),
          .groups = parse_numbers<int>("--levels", levels_),
          .importance = parse_importance(importance_),
          .drop_queries = drop_queries_};
}

}  // namespace braid::app
