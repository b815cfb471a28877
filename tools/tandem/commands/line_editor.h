// A line typed at a terminal, with editing, history and UTF-8.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace tandem {

enum class InputEvent { kLine, kEnd, kInterrupt };

class LineEditor {
 public:
  // `signals`: a signalfd that holds SIGINT; borrowed.  `history_path`: where lines are kept
  // between runs; empty: nowhere.  nullptr where standard input or error is no terminal.
  static std::unique_ptr<LineEditor> Create(int signals, std::string history_path);
  // Tab completes the first word of a line to one of `words`, and a word after it to the name of a
  // file.  Lines that begin with none of the words' first letters are left alone.
  void SetCompletions(std::vector<std::string> words);
  // Saves the history.
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Asks with `prompt` and waits for a line (without its line feed), the end of input or Ctrl-C,
  // which drops what was typed.  A paste of several lines is one line with line feeds in it.
  InputEvent Read(const char* prompt, std::string& line);

 private:
  struct State;
  explicit LineEditor(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// $XDG_STATE_HOME/tandem/history, else ~/.local/state/tandem/history; its folder is made.  Empty
// when neither is set or the folder cannot be made.
std::string DefaultHistoryPath();

}  // namespace tandem
