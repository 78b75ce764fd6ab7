#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "braid/text/call_parser.h"

namespace braid {

// A callable function for an answer.
struct CallableFunction {
  std::string name;
  nlohmann::ordered_json parameters;  // a schema; null: any object
  bool strict = false;                // calls fulfil the schema, or the request is refused
  std::string place;                  // place in the request, for errors
};

struct CallRules {
  CallFormat format = CallFormat::none;
  bool must = false;                  // the answer is calls and nothing else; else text with calls
  bool one = false;                   // a single call
  std::optional<int32_t> mark_token;  // the mark before calls, if it is a special token
};

// The required form of an answer with calls, as in grammar_tag.h; empty: any. Without `must` and
// without a strict function nothing is bound. Arguments of a function that is not strict follow its
// schema where all words can be kept, and are any object otherwise. Fails with kInvalidArgument,
// naming the place, where a strict schema cannot be kept.
std::string calls_tag(const std::vector<CallableFunction>& functions, const CallRules& rules);

}  // namespace braid
