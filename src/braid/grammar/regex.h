#pragma once

#include <string>
#include <string_view>

namespace braid {

enum class RegexUse {
  text,         // the whole answer matches
  json_string,  // the inside of a JSON string has a match, as in a schema's `pattern`
};

// A regular expression (ECMAScript's words) in a plain form for xgrammar: anchors resolved, classes
// as ranges of characters, and in JSON strings without characters that JSON would escape. Fails
// with kInvalidArgument, naming `where` and the position, on words that no grammar can keep:
// look-around, back references, word boundaries, Unicode properties, anchors inside groups.
std::string plain_regex(std::string_view pattern, RegexUse use, std::string_view where);

}  // namespace braid
