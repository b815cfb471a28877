#include "services/gateway/constraint/regex/regex_class_names.h"

#include <utility>

namespace tandem::gateway::constraint {
namespace {

const CodePointSet& Digits() {
  static const auto* const set = new CodePointSet{{'0', '9'}};
  return *set;
}

const CodePointSet& Words() {
  static const auto* const set = new CodePointSet{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  return *set;
}

}  // namespace

std::optional<CodePointSet> PerlClass(char letter, bool ecma) {
  const auto spaces = [ecma] {
    return ecma ? CodePointSet{{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},
                               {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029},
                               {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000},
                               {0xFEFF, 0xFEFF}}
                : CodePointSet{{'\t', '\n'}, {'\f', '\r'}, {' ', ' '}};
  };
  switch (letter) {
    case 'd':
      return Digits();
    case 'w':
      return Words();
    case 's':
      return spaces();
    default:
      return std::nullopt;
  }
}

std::optional<CodePointSet> PosixClass(std::string_view name) {
  static const auto* const classes = new std::vector<std::pair<std::string_view, CodePointSet>>{
      {"alnum", {{'0', '9'}, {'A', 'Z'}, {'a', 'z'}}},
      {"alpha", {{'A', 'Z'}, {'a', 'z'}}},
      {"ascii", {{0, 0x7F}}},
      {"blank", {{'\t', '\t'}, {' ', ' '}}},
      {"cntrl", {{0, 0x1F}, {0x7F, 0x7F}}},
      {"digit", {{'0', '9'}}},
      {"graph", {{'!', '~'}}},
      {"lower", {{'a', 'z'}}},
      {"print", {{' ', '~'}}},
      {"punct", {{'!', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}}},
      {"space", {{'\t', '\r'}, {' ', ' '}}},
      {"upper", {{'A', 'Z'}}},
      {"word", {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}},
      {"xdigit", {{'0', '9'}, {'A', 'F'}, {'a', 'f'}}},
  };
  for (const auto& [known, set] : *classes) {
    if (known == name) return set;
  }
  return std::nullopt;
}

std::string_view EcmaPropertyName(std::string_view name) {
  for (const std::string_view prefix :
       {"Script=", "sc=", "Script_Extensions=", "scx=", "General_Category=", "gc="}) {
    if (name.starts_with(prefix)) {
      name.remove_prefix(prefix.size());
      break;
    }
  }
  static constexpr std::pair<std::string_view, std::string_view> kLongNames[] = {
      {"Letter", "L"},
      {"Uppercase_Letter", "Lu"},
      {"Lowercase_Letter", "Ll"},
      {"Titlecase_Letter", "Lt"},
      {"Modifier_Letter", "Lm"},
      {"Other_Letter", "Lo"},
      {"Mark", "M"},
      {"Nonspacing_Mark", "Mn"},
      {"Spacing_Mark", "Mc"},
      {"Enclosing_Mark", "Me"},
      {"Number", "N"},
      {"Decimal_Number", "Nd"},
      {"digit", "Nd"},
      {"Letter_Number", "Nl"},
      {"Other_Number", "No"},
      {"Punctuation", "P"},
      {"punct", "P"},
      {"Connector_Punctuation", "Pc"},
      {"Dash_Punctuation", "Pd"},
      {"Open_Punctuation", "Ps"},
      {"Close_Punctuation", "Pe"},
      {"Initial_Punctuation", "Pi"},
      {"Final_Punctuation", "Pf"},
      {"Other_Punctuation", "Po"},
      {"Symbol", "S"},
      {"Math_Symbol", "Sm"},
      {"Currency_Symbol", "Sc"},
      {"Modifier_Symbol", "Sk"},
      {"Other_Symbol", "So"},
      {"Separator", "Z"},
      {"Space_Separator", "Zs"},
      {"Line_Separator", "Zl"},
      {"Paragraph_Separator", "Zp"},
      {"Other", "C"},
      {"Control", "Cc"},
      {"Format", "Cf"},
      {"Private_Use", "Co"},
  };
  for (const auto& [long_name, short_name] : kLongNames) {
    if (long_name == name) return short_name;
  }
  return name;
}

}  // namespace tandem::gateway::constraint
