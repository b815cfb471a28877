#include "tools/tandem/commands/word_wrap.h"

#include <cwchar>

namespace tandem {
namespace {

constexpr size_t kFenceLength = 3;

// The character at the beginning of `text`; a byte that begins none counts as one.
struct Character {
  size_t num_bytes = 1;
  char32_t code = 0;
};
Character FirstCharacter(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const size_t length = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  if (length == 1 || length > text.size()) return {1, lead};
  char32_t code = lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    code = (code << 6) | (static_cast<unsigned char>(text[i]) & 0x3Fu);
  }
  return {length, code};
}

int WidthOf(char32_t code) {
  const int width = ::wcwidth(static_cast<wchar_t>(code));
  return width < 0 ? 1 : width;
}

}  // namespace

std::string WordWrap::Add(std::string_view text) {
  if (columns_ <= 0) return std::string(text);
  std::string out;
  while (!text.empty()) {
    const Character character = FirstCharacter(text);
    AddCharacter(text.substr(0, character.num_bytes), WidthOf(character.code), out);
    text.remove_prefix(character.num_bytes);
  }
  return out;
}

void WordWrap::AddCharacter(std::string_view character, int width, std::string& out) {
  if (character == "\n") return EndLine(out);
  const bool space = character == " " || character == "\t";
  if (!space && line_start_.size() < kFenceLength) line_start_ += character;
  if (in_code_) {
    out += character;
    return;
  }
  if (space) {
    EndWord(out);
    spaces_ += character;
    return;
  }
  // Scripts that are written without spaces break at any of their wide characters.
  if (width == 2) EndWord(out);
  word_ += character;
  word_width_ += width;
  if (width == 2) EndWord(out);
}

void WordWrap::EndWord(std::string& out) {
  if (word_.empty()) return;
  const int spaces = static_cast<int>(spaces_.size());
  if (column_ > 0 && column_ + spaces + word_width_ > columns_) {
    out += '\n';
    column_ = 0;
  } else {
    out += spaces_;
    column_ += spaces;
  }
  out += word_;
  column_ = (column_ + word_width_) % columns_ == 0 ? columns_ : (column_ + word_width_) % columns_;
  spaces_.clear();
  word_.clear();
  word_width_ = 0;
}

void WordWrap::EndLine(std::string& out) {
  EndWord(out);
  out += spaces_ + "\n";
  spaces_.clear();
  column_ = 0;
  if (line_start_.starts_with("```")) in_code_ = !in_code_;
  line_start_.clear();
}

std::string WordWrap::Finish() {
  std::string out;
  EndWord(out);
  out += spaces_;
  spaces_.clear();
  return out;
}

}  // namespace tandem
