#include "braid/grammar/grammar_mask.h"

#include <algorithm>
#include <utility>

#include "braid/base/error.h"
#include "braid/text/mark_search.h"

namespace braid {
namespace {

bool blank(std::string_view text) {
  return skip_blanks(text) == text.size();
}

class GrammarMask {
 public:
  GrammarMask(std::shared_ptr<const CompiledGrammar> grammar, const GrammarSpelling& spelling,
              const ReasoningMarks& marks)
      : grammar_(std::move(grammar)),
        spelling_(spelling),
        marks_(marks),
        matcher_(grammar_->begin()),
        state_(marks.open.empty() ? State::answer
               : marks.opened     ? State::inside
                                  : State::before),
        words_(static_cast<size_t>((spelling.vocabulary + 31) / 32)) {}

  std::span<const uint32_t> next(std::span<const int32_t> generated) {
    for (; seen_ < generated.size(); ++seen_) accept(generated[seen_]);
    switch (state_) {
      case State::before:
        fill_before();
        break;
      case State::inside:
        fill_inside();
        break;
      case State::answer:
        matcher_->fill(words_);
        break;
    }
    return words_;
  }

 private:
  enum class State {
    before,  // the text so far is a part of the opening mark, perhaps nothing
    inside,  // inside the reasoning
    answer,
  };

  const std::string& text_of(int32_t id) const {
    return spelling_.texts.at(static_cast<size_t>(id));
  }
  void allow(size_t id) { words_[id / 32] |= uint32_t{1} << (id % 32); }
  void forbid(size_t id) { words_[id / 32] &= ~(uint32_t{1} << (id % 32)); }

  void accept(int32_t id) {
    if (state_ == State::before) {
      held_ += text_of(id);
      if (held_.starts_with(marks_.open)) {
        state_ = State::inside;
        held_.erase(0, marks_.open.size());
        return;
      }
      if (!marks_.open.starts_with(held_)) state_ = State::answer;
    } else if (state_ == State::inside) {
      held_ += text_of(id);
      if (held_.find(marks_.close) != std::string::npos) {
        state_ = State::answer;  // blanks alone come behind the mark, by fill_inside()
        matcher_ = grammar_->begin();
        follows_ = true;
      } else {
        held_.erase(0, held_.size() - begun_mark(held_, marks_.close));
      }
      return;
    }
    follows_ = follows_ && matcher_->accept(id);
    if (state_ == State::answer && !follows_) {
      fail(ErrorCode::kInvalidArgument, "token {} of the answer does not follow its grammar",
           seen_ + 1);
    }
  }

  // The opening mark, or the answer.
  void fill_before() {
    std::ranges::fill(words_, 0);
    if (follows_) matcher_->fill(words_);
    const std::string_view rest = std::string_view(marks_.open).substr(held_.size());
    for (size_t id = 0; id < spelling_.texts.size(); ++id) {
      const std::string_view text = spelling_.texts[id];
      if (text.empty() || text[0] != rest[0]) continue;
      if (rest.starts_with(text) || (text.starts_with(rest) && blank(text.substr(rest.size()))))
        allow(id);
    }
  }

  // Everything but an end, and tokens that go on behind the closing mark.
  void fill_inside() {
    std::ranges::fill(words_, 0);
    const std::string_view close = marks_.close;
    std::string joined;
    for (size_t id = 0; id < spelling_.texts.size(); ++id) {
      const std::string_view text = spelling_.texts[id];
      if (text.find(close.back()) != std::string_view::npos) {
        joined = held_;
        joined += text;
        const size_t at = joined.find(close);
        if (at != std::string::npos && !blank(std::string_view(joined).substr(at + close.size())))
          continue;
      }
      allow(id);
    }
    for (const int32_t id : spelling_.ends) forbid(static_cast<size_t>(id));
  }

  const std::shared_ptr<const CompiledGrammar> grammar_;
  const GrammarSpelling& spelling_;
  const ReasoningMarks marks_;
  std::unique_ptr<GrammarMatcher> matcher_;
  State state_;
  bool follows_ = true;  // the text so far follows the grammar
  std::string held_;     // may be part of a mark
  size_t seen_ = 0;      // tokens
  std::vector<uint32_t> words_;
};

}  // namespace

GrammarSpelling grammar_spelling(const Tokenizer& tokenizer, const GrammarTokens& tokens) {
  GrammarSpelling spelling{.ends = tokens.ends, .vocabulary = tokens.vocabulary};
  for (int32_t id = 0; id < std::ssize(tokens.texts); ++id)
    spelling.texts.push_back(tokenizer.bytes(id));
  return spelling;
}

std::function<std::span<const uint32_t>(std::span<const int32_t>)> grammar_mask(
    std::shared_ptr<const CompiledGrammar> grammar, const GrammarSpelling& spelling,
    const ReasoningMarks& marks) {
  const auto mask = std::make_shared<GrammarMask>(std::move(grammar), spelling, marks);
  return [mask](std::span<const int32_t> generated) { return mask->next(generated); };
}

}  // namespace braid
