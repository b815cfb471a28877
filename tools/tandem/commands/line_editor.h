// A line typed at a terminal, with editing, history and UTF-8.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace tandem {

enum class InputEvent { kLine, kEnd, kInterrupt };

class LineEditor {
 public:
  // `signals`: a signalfd that holds SIGINT; borrowed.  `history_path`: the file for lines
  // between runs; empty: none.  nullptr if standard input or error is no terminal.
  static std::unique_ptr<LineEditor> Create(int signals, std::string history_path);
  // Tab completes the first word of a line to one of `words`, and a word after it to the name of a
  // file.  Lines whose first letter starts none of the words are not completed.
  void SetCompletions(std::vector<std::string> words);
  // Saves the history.
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // Shows `prompt` and waits for a line (without its line feed), the end of input, or Ctrl-C, which
  // drops the input.  A paste of several lines is one line that contains line feeds.
  InputEvent Read(const char* prompt, std::string& line);

 private:
  struct State;
  explicit LineEditor(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// $XDG_STATE_HOME/tandem/history, else ~/.local/state/tandem/history; creates its folder.  Empty if
// neither is set or the folder cannot be created.
std::string DefaultHistoryPath();

}  // namespace tandem
