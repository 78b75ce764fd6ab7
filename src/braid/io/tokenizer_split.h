#pragma once

#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "braid/io/tokenizer_regex.h"
#include "braid/io/tokenizer_spec.h"

namespace braid {

// End of the piece that starts at `at` under a hand-written pattern; equal to the pattern's match
// at this place. `kind` is kGpt2, kLlama3, kQwen2, kDigits or kDigitRuns.
size_t piece_end(SplitStep::Kind kind, std::string_view text, size_t at);

// The regular expression that kGpt2, kLlama3 and kQwen2 stand for.
std::string_view pattern_of(SplitStep::Kind kind);

// Cuts normalized text into words, step by step; the model merges inside words alone.
class PreTokenizer {
 public:
  explicit PreTokenizer(const std::vector<SplitStep>& steps);

  // `first`: the text is the start of the user's text (Metaspace asks). The views given to `word`
  // may live only for that call.
  template <class Word>
  void split(std::string_view text, bool first, const Word& word) const {
    if (stages_.size() == 1 && !stages_[0].regex && is_pattern(stages_[0].step.kind)) {
      for (size_t at = 0; at < text.size();) {  // the usual case, without the calls
        const size_t end = piece_end(stages_[0].step.kind, text, at);
        word(text.substr(at, end - at));
        at = end;
      }
      return;
    }
    run(0, text, first, word);
  }

 private:
  struct Stage {
    SplitStep step;
    std::optional<Regex> regex;
  };
  using Word = std::function<void(std::string_view)>;
  static bool is_pattern(SplitStep::Kind kind) { return kind <= SplitStep::Kind::kDigitRuns; }
  void run(size_t stage, std::string_view text, bool first, const Word& word) const;
  static void run_regex(const Stage& stage, std::string_view text, const Word& next);

  std::vector<Stage> stages_;
};

}  // namespace braid
