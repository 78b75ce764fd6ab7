// What a schema becomes before it is compiled, and which words are refused.
#include "braid/grammar/json_schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "braid/base/error.h"

namespace braid {
namespace {

using Json = nlohmann::ordered_json;
using testing::HasSubstr;

std::string refusal(const std::string& schema) {
  try {
    return "kept: " + enforceable_schema(Json::parse(schema)).dump();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << schema;
    return error.what();
  }
}

TEST(JsonSchema, NamesThePlaceAndTheWordThatIsNotKept) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"type": "array", "uniqueItems": true})", "at #: uniqueItems is not supported"},
      {R"({"properties": {"a": {"not": {}}}})", "at #/properties/a: not is not supported"},
      {R"({"$defs": {"d": {"type": "array", "contains": {}}}})", "at #/$defs/d: contains is not"},
      {R"({"if": {}, "then": {}})", "if is not supported"},
      {R"({"type": "object", "dependentRequired": {}})", "dependentRequired is not supported"},
      {R"({"type": "string", "nullable": true})", "nullable is not supported"},
      {R"({"allOf": [{}, {}]})", "allOf of several schemas is not supported"},
      {R"({"anyOf": []})", "anyOf is no list of schemas"},
      {R"({"anyOf": [{"type": "null"}], "minLength": 1})", "minLength beside anyOf"},
      {R"({"anyOf": [{"type": "null"}], "type": "null"})", "type beside anyOf"},
      {R"({"$ref": "#/$defs/none"})", "names '#/$defs/none', which is not there"},
      {R"({"$ref": "http://elsewhere/x"})", "wanted a place inside the schema"},
      {R"({"enum": ["a"], "type": "integer"})", "enum has no value of the type"},
      {R"({"type": "text"})", "type is 'text', which no value has"},
      {R"({"type": []})", "type names no type"},
      {R"({"minLength": 1, "minItems": 1})", "words of several types"},
      {R"({"type": "string", "format": "ipv6"})", "format is \"ipv6\", supported are date,"},
      {R"({"type": "string", "pattern": "a", "maxLength": 3})", "pattern beside another word"},
      {R"({"type": "string", "minLength": 4, "maxLength": 3})", "minLength is 4, over maxLength 3"},
      {R"({"type": "string", "maxLength": -1})", "maxLength is -1, wanted an integer from 0"},
      {R"x({"type": "string", "pattern": "(?=a)"})x", "looks around"},
      {R"({"type": "integer", "minimum": "1"})", "minimum is \"1\", wanted a number"},
      {R"({"type": "object", "required": ["a"], "additionalProperties": false})",
       "required names \"a\", which may not be there"},
      {R"({"patternProperties": {"^a": {}}, "properties": {"b": {}}})", "with a single pattern"},
      {R"({"propertyNames": {"maxLength": 2}, "properties": {"b": {}}})", "without other words"},
      {R"({"type": "object", "minProperties": 2})", "minProperties over 1"},
      {R"({"type": "array", "prefixItems": [false]})", "allows nothing"},
      {R"({"type": "object", "properties": []})", "properties is no object"},
      {R"([])", "is neither an object nor true or false"},
  };
  for (const auto& [schema, message] : cases)
    EXPECT_THAT(refusal(schema), HasSubstr(message)) << schema;
}

TEST(JsonSchema, SaysWhatIsLeftOpen) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({})", R"({})"},
      {R"({"title": "T", "x-y": 1, "description": "D"})", R"({})"},
      // Listed properties are all of them; a schema without any leaves them open.
      {R"({"properties": {"b": {}, "a": true}})",
       R"({"type":"object","properties":{"b":{},"a":true},"additionalProperties":false})"},
      {R"({"type": "object"})", R"({"type":"object","additionalProperties":true})"},
      {R"({"type": "object", "required": ["z", "z"]})",
       R"({"type":"object","required":["z"],"properties":{"z":true},"additionalProperties":true})"},
      {R"({"type": "array"})", R"({"type":"array","items":true})"},
      {R"({"type": "array", "prefixItems": [true]})",
       R"({"type":"array","prefixItems":[{}],"items":false})"},
      {R"({"const": 3})", R"({"enum":[3]})"},
      {R"({"type": ["string", "null"], "enum": ["a", 1, null]})", R"({"enum":["a",null]})"},
      // Words about other types than the value's say nothing.
      {R"({"type": "boolean", "minLength": 3})", R"({"type":"boolean"})"},
      {R"({"minimum": 1})", R"({"type":"number","minimum":1})"},
  };
  for (const auto& [schema, kept] : cases)
    EXPECT_EQ(enforceable_schema(Json::parse(schema)).dump(), kept) << schema;
}

TEST(JsonSchema, OneOfSeesThroughReferences) {
  const Json schema = Json::parse(R"({"oneOf": [{"$ref": "#/$defs/a"}, {"type": "null"}],
                                      "$defs": {"a": {"type": "string"}}})");
  EXPECT_EQ(enforceable_schema(schema)["oneOf"][0].dump(), R"({"type":"string"})");
}

}  // namespace
}  // namespace braid
