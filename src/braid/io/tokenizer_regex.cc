#include "braid/io/tokenizer_regex.h"

#include <oniguruma.h>

#include <algorithm>
#include <optional>

#include "braid/base/error.h"
#include "braid/io/quoted.h"
#include "braid/io/tokenizer_utf8.h"

namespace braid {
namespace {

constexpr size_t kMaxPattern = 1 << 14;
// Backtracking: each match takes a number of steps for free. Steps beyond are charged to the whole
// text, so that the bound is linear in the text and the same on every machine.
constexpr unsigned long kFreeSteps = 1024;
constexpr unsigned long kChargedSteps = 20'000'000;
constexpr unsigned long kChargedStepsPerByte = 16;
constexpr unsigned int kStackEntries = 1 << 16;  // of backtracking, about 40 bytes each
constexpr unsigned int kStackEntriesPerByte = 4;

const OnigUChar* bytes_of(std::string_view text) {
  return reinterpret_cast<const OnigUChar*>(text.data());
}

std::string message(int error, OnigErrorInfo* info = nullptr) {
  OnigUChar text[ONIG_MAX_ERROR_MESSAGE_LEN];
  const int size =
      info ? onig_error_code_to_str(text, error, info) : onig_error_code_to_str(text, error);
  return {reinterpret_cast<const char*>(text), static_cast<size_t>(std::max(size, 0))};
}

void initialize() {
  static const int error = [] {
    OnigEncoding encodings[] = {ONIG_ENCODING_UTF8};
    return onig_initialize(encodings, 1);
  }();
  if (error != ONIG_NORMAL) fail(ErrorCode::kResource, "Oniguruma: {}", message(error));
}

// Before Oniguruma 6.9.9 [[:punct:]] had no symbols beyond ASCII's; tokenizers brings a later
// version. Spelling the class out makes every version read alike.
std::string spell_punct(std::string_view pattern) {
  static constexpr std::string_view kPunct = "[:punct:]", kNot = "[:^punct:]";
  std::string out;
  int depth = 0;  // of brackets
  for (size_t at = 0; at < pattern.size();) {
    const std::string_view rest = pattern.substr(at);
    size_t size = 1;
    if (depth > 0 && (rest.starts_with(kPunct) || rest.starts_with(kNot))) {
      const bool negated = rest.starts_with(kNot);
      out += negated ? R"([^\p{P}\p{S}])" : R"(\p{P}\p{S})";
      at += negated ? kNot.size() : kPunct.size();
      continue;
    }
    if (rest[0] == '\\') {
      size = std::min<size_t>(2, rest.size());
    } else if (rest[0] == '[') {
      ++depth;
      if (rest.substr(1).starts_with('^')) ++size;
      if (rest.substr(size).starts_with(']')) ++size;  // a bracket in front is itself
    } else if (rest[0] == ']' && depth > 0) {
      --depth;
    }
    out += rest.substr(0, size);
    at += size;
  }
  return out;
}

// The end of the bytes from `at` on that are (`valid`) or are not UTF-8.
size_t utf8_run(std::string_view text, size_t at, bool valid) {
  while (at < text.size()) {
    const Utf8Char c = decode_utf8(text, at);
    if ((c.status == Utf8Status::kValid) != valid) break;
    at += c.size;
  }
  return at;
}

}  // namespace

// Searches in a text, with the rest of the bounds.
class Regex::Search {
 public:
  Search(const Regex& regex, std::string_view text)
      : regex_(regex),
        code_(static_cast<regex_t*>(const_cast<void*>(regex.code_.get()))),
        region_(onig_region_new()),
        param_(onig_new_match_param()),
        charge_left_(kChargedSteps + kChargedStepsPerByte * text.size()) {
    if (!region_ || !param_) fail(ErrorCode::kResource, "out of memory");
    onig_set_match_stack_limit_size_of_match_param(
        param_.get(), static_cast<unsigned int>(std::min<size_t>(
                          kStackEntries + kStackEntriesPerByte * text.size(), UINT32_MAX)));
  }

  struct Match {
    size_t begin;
    size_t end;
  };
  // The leftmost match in `text` (UTF-8) that starts at `from` or behind.
  std::optional<Match> find(std::string_view text, size_t from) {
    for (unsigned long steps = kFreeSteps;; steps *= 8) {
      onig_set_retry_limit_in_match_of_match_param(param_.get(), steps);
      onig_set_retry_limit_in_search_of_match_param(param_.get(), steps);
      const OnigUChar* begin = bytes_of(text);
      const OnigUChar* end = begin + text.size();
      const int rc = onig_search_with_param(code_, begin, end, begin + from, end, region_.get(),
                                            ONIG_OPTION_NONE, param_.get());
      if (rc == ONIG_MISMATCH) return std::nullopt;
      if (rc >= 0) {
        return Match{static_cast<size_t>(region_->beg[0]), static_cast<size_t>(region_->end[0])};
      }
      const bool limit =
          rc == ONIGERR_RETRY_LIMIT_IN_MATCH_OVER || rc == ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER;
      if (!limit || 8 * steps > charge_left_) {
        fail(ErrorCode::kResource, "pattern {} failed on {}: {}", quoted(regex_.pattern_),
             quoted(text.substr(from), 24), message(rc));
      }
      charge_left_ -= 8 * steps;
    }
  }

 private:
  struct FreeRegion {
    void operator()(OnigRegion* p) const { onig_region_free(p, 1); }
  };
  struct FreeParam {
    void operator()(OnigMatchParam* p) const { onig_free_match_param(p); }
  };
  const Regex& regex_;
  regex_t* code_;
  std::unique_ptr<OnigRegion, FreeRegion> region_;
  std::unique_ptr<OnigMatchParam, FreeParam> param_;
  unsigned long charge_left_;
};

Regex::Regex(const std::string& pattern) : pattern_(pattern) {
  if (pattern.size() > kMaxPattern) {
    fail(ErrorCode::kUnsupported, "a pattern of {} bytes, at most {} are allowed", pattern.size(),
         kMaxPattern);
  }
  if (utf8_run(pattern, 0, true) < pattern.size()) {
    fail(ErrorCode::kUnsupported, "pattern {} is not UTF-8", quoted(pattern));
  }
  initialize();
  const std::string spelled = spell_punct(pattern);
  regex_t* code = nullptr;
  OnigErrorInfo info{};
  const int error =
      onig_new(&code, bytes_of(spelled), bytes_of(spelled) + spelled.size(), ONIG_OPTION_NONE,
               ONIG_ENCODING_UTF8, const_cast<OnigSyntaxType*>(ONIG_SYNTAX_ONIGURUMA), &info);
  if (error != ONIG_NORMAL) {
    fail(ErrorCode::kUnsupported, "pattern {} does not compile: {}", quoted(pattern),
         message(error, &info));
  }
  code_ = std::shared_ptr<const void>(code, [](regex_t* p) { onig_free(p); });
}

void Regex::cut(std::string_view whole, std::vector<RegexCut>& out) const {
  Search search(*this, whole);
  for (size_t start = 0; start < whole.size();) {
    const size_t stop = utf8_run(whole, start, true);
    const std::string_view text = whole.substr(start, stop - start);
    // After an empty match directly behind another match, the search moves a character further: the
    // rule of tokenizers.
    size_t done = 0;
    std::optional<size_t> last_end;
    for (size_t from = 0; !text.empty() && from <= text.size();) {
      const auto match = search.find(text, from);
      // \K inside a lookaround may put the start behind the end, or before finished text.
      if (!match || match->begin < done || match->end < match->begin) break;
      const auto [begin, end] = *match;
      if (begin == end && last_end == end) {
        from += from < text.size() ? decode_utf8(text, from).size : 1;
        continue;
      }
      if (begin > done) out.push_back({text.substr(done, begin - done), false});
      out.push_back({text.substr(begin, end - begin), true});
      done = from = end;
      last_end = end;
    }
    if (done < text.size()) out.push_back({text.substr(done), false});
    start = utf8_run(whole, stop, false);
    if (start > stop) out.push_back({whole.substr(stop, start - stop), false});
  }
}

}  // namespace braid
