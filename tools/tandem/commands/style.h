// Colours and weights of text at a terminal.
#pragma once

#include <cstdio>
#include <string>

namespace tandem {

enum class Style { kBold, kDim, kGood, kWarning, kBad };

// Whether text for `stream` is styled: it is a terminal that is not "dumb", and NO_COLOR is unset
// or empty (https://no-color.org).
bool HasStyle(std::FILE* stream);

// `text` styled for `stream`; unchanged if HasStyle is false.
std::string Styled(std::FILE* stream, Style style, const std::string& text);

}  // namespace tandem
