// Classes that regular expressions name: \d, [[:alpha:]], ECMA-262's long property names.
#pragma once

#include <optional>
#include <string_view>

#include "services/gateway/constraint/regex/code_point_set.h"

namespace tandem::gateway::constraint {

// \d \w \s by their letter.  ECMA-262's \s has Unicode's spaces too.
std::optional<CodePointSet> PerlClass(char letter, bool ecma);
// "alpha" of [[:alpha:]].
std::optional<CodePointSet> PosixClass(std::string_view name);
// RE2's name of ECMA-262's property: "L" of "Letter", "Greek" of "Script=Greek".
std::string_view EcmaPropertyName(std::string_view name);

}  // namespace tandem::gateway::constraint
