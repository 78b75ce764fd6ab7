#include "braid/grammar/regex.h"

#include <cctype>
#include <cstdint>
#include <utility>

#include "braid/base/error.h"
#include "braid/grammar/character_set.h"

namespace braid {
namespace {

constexpr int kMostDepth = 64;
constexpr uint32_t kSeveral = ~uint32_t{0};  // characters, from a single escape
constexpr int64_t kMostRepeats = 100000;
constexpr std::string_view kSigns = "^$\\.*+?()[]{}|/-";

class RegexReader {
 public:
  RegexReader(std::string_view pattern, RegexUse use, std::string_view where)
      : characters_(characters_of(pattern)), use_(use), where_(where) {
    if (characters_.empty() && !pattern.empty()) fail("is no UTF-8");
    forbidden_.add(0, 0);
    if (use == RegexUse::json_string) forbidden_ = CharacterSet::escaped_in_json();
  }

  // Alternatives with their own anchors.
  std::string whole() {
    std::string out;
    do {
      const bool begins = take('^');
      std::string branch = sequence(0);
      const bool ends = take('$');
      const bool part = use_ == RegexUse::json_string;
      if (part && !begins) branch = any() + "*" + branch;
      if (part && !ends) branch += any() + "*";
      out += (out.empty() ? "" : "|") + (branch.empty() ? "(?:)" : branch);
    } while (take('|'));
    if (more()) fail(fmt::format("has '{}' where nothing opened it", text_of(characters_[at_])));
    return "(?:" + out + ")";
  }

 private:
  bool more() const { return at_ < characters_.size(); }
  uint32_t next() {
    if (!more()) fail("ends too early");
    return characters_[at_++];
  }
  bool sees(std::string_view text) const {
    if (characters_.size() - at_ < text.size()) return false;
    for (size_t i = 0; i < text.size(); ++i) {
      if (characters_[at_ + i] != static_cast<unsigned char>(text[i])) return false;
    }
    return true;
  }
  bool take(char c) {
    if (!sees(std::string_view(&c, 1))) return false;
    ++at_;
    return true;
  }
  [[noreturn]] void fail(const std::string& why) const {
    braid::fail(ErrorCode::kInvalidArgument, "{}: the regular expression, character {}, {}", where_,
                at_, why);
  }

  std::string any() const {
    CharacterSet set;
    set.invert();
    return shown(set);
  }
  std::string shown(CharacterSet set) const {
    set.remove(forbidden_);
    if (set.empty()) fail("allows no character that can stand there unescaped");
    return set.regex();
  }

  std::string sequence(int depth) {
    std::string out;
    while (more() && !sees("|") && !sees(")")) {
      if (sees("$")) {
        if (depth == 0 && (at_ + 1 == characters_.size() || characters_[at_ + 1] == '|')) break;
        fail("has '$' before an end");
      }
      if (sees("^")) fail("has '^' behind a begin");
      out += repeated(atom(depth));
    }
    return out;
  }

  std::string atom(int depth) {
    const uint32_t c = next();
    switch (c) {
      case '(':
        return group(depth + 1);
      case '[':
        return shown(character_class());
      case '.': {
        CharacterSet set = CharacterSet::line_ends();
        set.invert();
        return shown(set);
      }
      case '*':
      case '+':
      case '?':
      case '{':
        fail(fmt::format("has '{}' behind nothing", static_cast<char>(c)));
      default:
        break;
    }
    CharacterSet set;
    if (c == '\\') {
      escape(set);
    } else {
      set.add(c, c);
    }
    return shown(set);
  }

  std::string group(int depth) {
    if (depth > kMostDepth) fail(fmt::format("nests deeper than {} groups", kMostDepth));
    if (take('?')) {
      if (take('<') && more() && !sees("=") && !sees("!")) {
        while (next() != '>') {
        }
      } else if (!take(':')) {
        fail("looks around or sets a flag, which no grammar can keep");
      }
    }
    std::string out;
    bool first = true;
    do {
      const std::string branch = sequence(depth);
      out += (first ? "" : "|") + branch;
      first = false;
    } while (take('|'));
    if (!take(')')) fail("lacks a ')'");
    return "(?:" + out + ")";
  }

  int64_t count() {
    int64_t n = -1;
    while (more() && characters_[at_] >= '0' && characters_[at_] <= '9') {
      n = (n < 0 ? 0 : n) * 10 + (next() - '0');
      if (n > kMostRepeats) fail(fmt::format("repeats more than {} times", kMostRepeats));
    }
    return n;
  }

  std::string repeated(std::string atom) {
    std::string times;
    if (take('*')) {
      times = "*";
    } else if (take('+')) {
      times = "+";
    } else if (take('?')) {
      times = "?";
    } else if (take('{')) {
      const int64_t least = count();
      const bool range = take(',');
      const int64_t most = range ? count() : least;
      if (least < 0 || !take('}')) fail("has a '{' that counts nothing");
      if (range && most >= 0 && most < least) fail("counts down");
      times = !range      ? fmt::format("{{{}}}", least)
              : most >= 0 ? fmt::format("{{{},{}}}", least, most)
                          : fmt::format("{{{},}}", least);
    }
    if (times.empty()) return atom;
    take('?');  // the shortest match first: the same texts match
    if (sees("*") || sees("+") || sees("{") || sees("?")) fail("repeats a repetition");
    atom = "(?:" + std::move(atom) + ")";
    // xgrammar 0.2.8 takes (?:ab+)? for (?:ab+|b+): optional parts are alternatives here.
    if (times == "?") return "(?:" + atom + "|)";
    if (times.starts_with("{0,") && times != "{0,}" && times != "{0,0}")
      return "(?:" + atom + "{1," + times.substr(3) + "|)";
    return atom + times;
  }

  uint32_t hex(int digits) {
    uint32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const uint32_t c = next();
      const int digit = c >= '0' && c <= '9'   ? static_cast<int>(c - '0')
                        : c >= 'a' && c <= 'f' ? static_cast<int>(c - 'a' + 10)
                        : c >= 'A' && c <= 'F' ? static_cast<int>(c - 'A' + 10)
                                               : -1;
      if (digit < 0) fail("has an escape that is no number");
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    return value;
  }

  // Adds an escape's characters. Returns a single character, or kSeveral. Dialects differ on blanks
  // beyond ASCII: in a class that is inverted later (`inverted`) they count as blanks, else as
  // neither.
  uint32_t escape(CharacterSet& set, bool inverted = false) {
    const uint32_t c = next();
    const auto one = [&](uint32_t value) {
      set.add(value, value);
      return value;
    };
    const auto named = [&](CharacterSet of, bool others) {
      if (others) of.invert();
      set.add(of);
      return kSeveral;
    };
    switch (c) {
      case 'd':
      case 'D':
        return named(CharacterSet::digits(), c == 'D');
      case 'w':
      case 'W':
        return named(CharacterSet::word(), c == 'W');
      case 's':
        return named(inverted ? CharacterSet::blanks() : CharacterSet::ascii_blanks(), false);
      case 'S':
        return named(inverted ? CharacterSet::ascii_blanks() : CharacterSet::blanks(), true);
      case 'n':
        return one('\n');
      case 'r':
        return one('\r');
      case 't':
        return one('\t');
      case 'f':
        return one('\f');
      case 'v':
        return one('\v');
      case 'x':
        return one(hex(2));
      case 'u': {
        const uint32_t value = hex(4);
        if (value >= 0xd800 && value < 0xe000) fail("has half a character");
        return one(value);
      }
      default:
        break;
    }
    if (c < 0x80 && kSigns.find(static_cast<char>(c)) == std::string_view::npos &&
        (c == '0' || std::isalnum(static_cast<int>(c)) != 0)) {
      fail(fmt::format("has '\\{}', which no grammar can keep", static_cast<char>(c)));
    }
    return one(c);
  }

  CharacterSet character_class() {
    CharacterSet set;
    const bool inverted = take('^');
    if (sees("]")) fail("has a class of nothing");
    while (!take(']')) {
      uint32_t first = next();
      CharacterSet piece;
      if (first == '\\') {
        first = sees("b") ? (++at_, piece.add('\b', '\b'), '\b') : escape(piece, inverted);
      } else {
        piece.add(first, first);
      }
      if (first != kSeveral && sees("-") && at_ + 1 < characters_.size() &&
          characters_[at_ + 1] != ']') {
        ++at_;
        uint32_t last = next();
        CharacterSet end;
        if (last == '\\') last = escape(end);
        if (last < first || last == kSeveral) fail("has a class whose range counts down");
        piece.add(first, last);
      }
      set.add(piece);
    }
    if (inverted) set.invert();
    return set;
  }

  const std::vector<uint32_t> characters_;
  const RegexUse use_;
  const std::string where_;
  CharacterSet forbidden_;
  size_t at_ = 0;
};

}  // namespace

std::string plain_regex(std::string_view pattern, RegexUse use, std::string_view where) {
  return RegexReader(pattern, use, where).whole();
}

}  // namespace braid
