// Whole words on a terminal, for text that arrives in pieces.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// Replaces a space by a line feed if the next word does not fit in the line.  Code between
// lines of ``` stays as it is.  A word longer than a line is left to the terminal.
class WordWrap {
 public:
  // `columns`: the terminal's width; 0: nothing is wrapped.
  explicit WordWrap(int columns) : columns_(columns) {}

  // Takes `text` (UTF-8, whole characters) and returns the text to show now.  A word is held back
  // until its end is known.
  std::string Add(std::string_view text);
  // Returns the rest at the end of the text.
  std::string Finish();

 private:
  void EndWord(std::string& out);
  void EndLine(std::string& out);
  void AddCharacter(std::string_view character, int width, std::string& out);

  const int columns_;
  int column_ = 0;
  int word_width_ = 0;
  std::string spaces_, word_;
  std::string line_start_;  // its first three characters that are no spaces
  bool in_code_ = false;
};

}  // namespace tandem
