#include "braid/text/reasoning_parser.h"

#include <utility>

#include "braid/text/mark_search.h"

namespace braid {

ReasoningMarks reasoning_marks(std::string_view template_source) {
  for (const auto& [open, close] : {std::pair("<think>", "</think>"), {"[THINK]", "[/THINK]"}}) {
    if (template_source.find(open) != std::string_view::npos ||
        template_source.find(close) != std::string_view::npos) {
      return {open, close};
    }
  }
  return {};
}

ReasoningParser::ReasoningParser(ReasoningMarks marks)
    : marks_(std::move(marks)),
      state_(marks_.open.empty() ? State::outside
             : marks_.opened     ? State::begin_inside
                                 : State::before) {}

ReasoningDelta ReasoningParser::push(std::string_view piece) {
  held_ += piece;
  return advance(false);
}

ReasoningDelta ReasoningParser::finish() {
  return advance(true);
}

ReasoningDelta ReasoningParser::advance(bool ended) {
  ReasoningDelta delta;
  if (state_ == State::before) {
    const std::string_view text = std::string_view(held_).substr(skip_blanks(held_));
    if (text.starts_with(marks_.open)) {
      held_.erase(0, held_.size() - text.size() + marks_.open.size());
      state_ = State::begin_inside;
    } else if (ended || !std::string_view(marks_.open).starts_with(text)) {
      state_ = State::outside;
    }
  }
  if (state_ == State::begin_inside) {
    held_.erase(0, skip_blanks(held_));
    if (!held_.empty()) state_ = State::inside;
  }
  if (state_ == State::inside) {
    const size_t close = held_.find(marks_.close);
    if (close != std::string::npos) {
      delta.reasoning = held_.substr(0, trim_blanks(held_, close));
      held_.erase(0, close + marks_.close.size());
      state_ = State::behind;
    } else {
      const size_t certain =
          ended ? held_.size() : trim_blanks(held_, held_.size() - begun_mark(held_, marks_.close));
      delta.reasoning = held_.substr(0, certain);
      held_.erase(0, certain);
    }
  }
  if (state_ == State::behind) {
    held_.erase(0, skip_blanks(held_));
    if (!held_.empty()) state_ = State::outside;
  }
  if (state_ == State::outside) delta.rest = std::exchange(held_, "");
  return delta;
}

}  // namespace braid
