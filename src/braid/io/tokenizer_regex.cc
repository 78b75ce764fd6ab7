#include "braid/io/tokenizer_regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "braid/base/error.h"
#include "braid/io/quoted.h"
#include "braid/io/tokenizer_utf8.h"

namespace braid {
namespace {

constexpr size_t kMaxPattern = 1 << 14;
constexpr uint32_t kMaxSteps = 10'000'000;  // of backtracking, per match
constexpr uint32_t kMaxHeapKib = 64 << 10;
constexpr size_t kJitStack = 1 << 20;

template <auto free>
struct Free {
  template <class T>
  void operator()(T* p) const {
    free(p);
  }
};
using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Free<pcre2_jit_stack_free>>;

std::string message(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

}  // namespace

Regex::Regex(const std::string& pattern) : pattern_(pattern) {
  if (pattern.size() > kMaxPattern) {
    fail(ErrorCode::kUnsupported, "a pattern of {} bytes, at most {} are allowed", pattern.size(),
         kMaxPattern);
  }
  int error = 0;
  PCRE2_SIZE place = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MATCH_INVALID_UTF | PCRE2_NEVER_BACKSLASH_C,
                    &error, &place, nullptr);
  if (!code) {
    fail(ErrorCode::kUnsupported, "pattern {} does not compile: {} at byte {}", quoted(pattern),
         message(error), place);
  }
  code_ = std::shared_ptr<const void>(code, [](pcre2_code* p) { pcre2_code_free(p); });
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // where it cannot, matching interprets
}

void Regex::split(std::string_view text, const std::function<void(std::string_view)>& piece) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const MatchData match(pcre2_match_data_create(1, nullptr));
  const MatchContext context(pcre2_match_context_create(nullptr));
  if (!match || !context) fail(ErrorCode::kResource, "out of memory");
  pcre2_set_match_limit(context.get(), kMaxSteps);
  pcre2_set_heap_limit(context.get(), kMaxHeapKib);
  JitStack stack;  // for matches that outgrow the machine's own

  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t done = 0;
  for (size_t from = 0; from <= text.size();) {
    const auto run = [&] {
      return pcre2_match(code, subject, text.size(), from, 0, match.get(), context.get());
    };
    int rc = run();
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT && !stack) {
      stack.reset(pcre2_jit_stack_create(32 << 10, kJitStack, nullptr));
      pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
      rc = run();
    }
    if (rc == PCRE2_ERROR_NOMATCH) break;
    if (rc < 0) {
      fail(ErrorCode::kResource, "pattern {} failed on {}: {}", quoted(pattern_),
           quoted(text.substr(from), 24), message(rc));
    }
    const PCRE2_SIZE* ovector = pcre2_get_ovector_pointer(match.get());
    const size_t begin = ovector[0], end = ovector[1];
    if (begin < from || end < begin) break;  // \K in a lookaround: no progress to be had
    if (begin > done) piece(text.substr(done, begin - done));
    if (end > begin) piece(text.substr(begin, end - begin));
    done = end;
    from = end > begin ? end : end == text.size() ? end + 1 : end + decode_utf8(text, end).size;
  }
  if (done < text.size()) piece(text.substr(done));
}

}  // namespace braid
