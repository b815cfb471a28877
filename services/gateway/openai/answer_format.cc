#include "services/gateway/openai/answer_format.h"

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"

namespace tandem::gateway {
namespace {

constexpr size_t kMaxChoiceTexts = 10'000;
constexpr size_t kMaxFormatNameBytes = 64;  // OpenAI's

bool IsFormatName(std::string_view name) {
  if (name.empty() || name.size() > kMaxFormatNameBytes) return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-';
  });
}

// {"name", "description", "schema", "strict"}.  The answer fits the schema, strict or not.
void ReadNamedSchema(JsonFields& fields, ConstraintMember& member) {
  const auto name = fields.String("name");
  if (!name.has_value()) return fields.Missing("name");
  if (!IsFormatName(*name)) {
    return fields.Fail(
        "name", "invalid_value",
        absl::StrFormat("Invalid '%s': \"%s\". Expected 1 to %d letters, digits, "
                        "\"_\" and \"-\".",
                        fields.PathOf("name"), ClientText(*name), kMaxFormatNameBytes));
  }
  fields.String("description");
  fields.Bool("strict");
  if (!fields.Has("schema")) return fields.Missing("schema");
  ReadSchema(fields, "schema", /*or_text=*/false, member);
}

// The member `name`: {"type": "text"}, {"type": "json_object"} or {"type": "json_schema"}.
// `within`: the member of the last one that has its name and schema; empty: it has them itself.
void ReadFormat(JsonFields& outer, std::string_view name, std::string_view within,
                ConstraintMember& member) {
  const Json* format = outer.Object(name);
  if (format == nullptr || format->empty()) return;
  JsonFields fields(*format, outer.error(), outer.PathOf(name) + ".");
  const auto type = fields.String("type");
  if (!type.has_value()) return fields.Missing("type");
  if (*type == "text") return;
  if (*type == "json_object") {
    // llama.cpp's servers take a schema there.
    if (fields.Has("schema")) return ReadSchema(fields, "schema", /*or_text=*/false, member);
    if (v1::Constraint* constraint = member.Set(outer, name)) constraint->set_json(true);
    return;
  }
  if (*type != "json_schema") {
    return fields.Unsupported("type",
                              absl::StrFormat("\"%s\": this server knows 'text', 'json_object' and "
                                              "'json_schema'.",
                                              ClientText(*type, 40)));
  }
  if (within.empty()) return ReadNamedSchema(fields, member);
  const Json* named = fields.Object(within);
  if (named == nullptr) return fields.Missing(within);
  JsonFields inner(*named, fields.error(), fields.PathOf(within) + ".");
  ReadNamedSchema(inner, member);
}

void ReadRegex(JsonFields& fields, std::string_view name, ConstraintMember& member) {
  const std::string regex = fields.String(name).value_or("");
  if (regex.empty()) return;
  if (v1::Constraint* constraint = member.Set(fields, name)) constraint->set_regex(regex);
}

void ReadChoices(JsonFields& fields, std::string_view name, ConstraintMember& member) {
  const Json* choices = fields.Array(name);
  if (choices == nullptr) return;
  if (choices->empty()) {
    return fields.Fail(name, "empty_array",
                       absl::StrFormat("Invalid '%s': empty array. Expected at least one element.",
                                       fields.PathOf(name)));
  }
  const auto texts = fields.Strings(name, kMaxChoiceTexts);
  v1::Constraint* constraint = member.Set(fields, name);
  if (constraint == nullptr) return;
  for (const std::string& text : texts) constraint->mutable_choices()->add_texts(text);
}

// `gbnf`: it is llama.cpp's, whatever it looks like.
void ReadGrammar(JsonFields& fields, std::string_view name, bool gbnf, ConstraintMember& member) {
  const std::string grammar = fields.String(name).value_or("");
  if (grammar.empty()) return;
  v1::Constraint* constraint = member.Set(fields, name);
  if (constraint == nullptr) return;
  if (!gbnf && IsLarkGrammar(grammar)) {
    constraint->set_lark(grammar);
  } else {
    constraint->set_gbnf(grammar);
  }
}

constexpr char kTags[] = "this server does not know structural tags; send tools instead.";
constexpr char kOfSchema[] =
    "this server takes it from the schema: 'additionalProperties' and 'x-guidance' say it.";

// vLLM's member since 0.11.
void ReadStructuredOutputs(JsonFields& outer, ConstraintMember& member) {
  const Json* object = outer.Object("structured_outputs");
  if (object == nullptr) return;
  JsonFields fields(*object, outer.error(), outer.PathOf("structured_outputs."));
  ReadSchema(fields, "json", /*or_text=*/true, member);
  ReadRegex(fields, "regex", member);
  ReadChoices(fields, "choice", member);
  ReadGrammar(fields, "grammar", /*gbnf=*/false, member);
  if (fields.Bool("json_object").value_or(false)) {
    if (v1::Constraint* constraint = member.Set(fields, "json_object")) constraint->set_json(true);
  }
  fields.RefuseIfSet("structural_tag", kTags);
  for (const char* name :
       {"whitespace_pattern", "disable_any_whitespace", "disable_additional_properties"}) {
    fields.RefuseIfSet(name, kOfSchema);
  }
}

void ReadOtherServers(JsonFields& fields, ConstraintMember& member) {
  ReadSchema(fields, "guided_json", /*or_text=*/true, member);
  ReadRegex(fields, "guided_regex", member);
  ReadChoices(fields, "guided_choice", member);
  ReadGrammar(fields, "guided_grammar", /*gbnf=*/false, member);
  fields.RefuseIfSet("guided_whitespace_pattern", kOfSchema);
  fields.RefuseIfSet("structural_tag", kTags);
  ReadStructuredOutputs(fields, member);
  ReadGrammar(fields, "grammar", /*gbnf=*/true, member);
  ReadSchema(fields, "json_schema", /*or_text=*/false, member);
}

}  // namespace

ConstraintMember ReadAnswerFormat(JsonFields& fields) {
  ConstraintMember member;
  ReadFormat(fields, "response_format", "json_schema", member);
  ReadOtherServers(fields, member);
  return member;
}

ConstraintMember ReadTextFormat(JsonFields& fields) {
  ConstraintMember member;
  if (const Json* text = fields.Object("text")) {
    JsonFields inner(*text, fields.error(), "text.");
    ReadFormat(inner, "format", "", member);
  }
  ReadOtherServers(fields, member);
  return member;
}

bool IsLarkGrammar(std::string_view grammar) {
  while (!grammar.empty()) {
    const size_t end = std::min(grammar.find('\n'), grammar.size());
    std::string_view line = grammar.substr(0, end);
    grammar.remove_prefix(std::min(end + 1, grammar.size()));
    line = line.substr(0, std::min(line.find('#'), line.find("//")));
    if (line.find("::=") != std::string_view::npos) return false;
  }
  return true;
}

}  // namespace tandem::gateway
