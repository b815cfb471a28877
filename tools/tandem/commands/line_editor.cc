#include "tools/tandem/commands/line_editor.h"

#include <histedit.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace tandem {
namespace {

constexpr int kHistoryLines = 1000;
// A terminal in bracketed-paste mode puts these around pasted text.
constexpr char kPasteOn[] = "\033[?2004h";
constexpr char kPasteOff[] = "\033[?2004l";
constexpr std::string_view kPasteEnd = "\033[201~";

}  // namespace

struct LineEditor::State {
  int signals = -1;
  std::string history_path;
  const char* prompt = "";
  bool interrupted = false;
  mbstate_t partial{};  // of a character whose bytes have not all come
  EditLine* editor = nullptr;
  History* history = nullptr;
  std::vector<std::string> completions;

  static State* Of(EditLine* editor) {
    void* state = nullptr;
    el_get(editor, EL_CLIENTDATA, &state);
    return static_cast<State*>(state);
  }
  static char* Prompt(EditLine* editor) { return const_cast<char*>(Of(editor)->prompt); }

  bool LineIsEmpty() const {
    const LineInfo* line = el_line(editor);
    return line->buffer == line->lastchar;
  }

  // One character for the editor: 1, or 0 at the end of input and on Ctrl-C.
  static int GetCharacter(EditLine* editor, wchar_t* character) {
    State& state = *Of(editor);
    while (true) {
      pollfd polled[] = {{state.signals, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
      if (::poll(polled, 2, -1) < 0) {
        if (errno == EINTR) continue;
        return -1;
      }
      if (polled[0].revents != 0) {
        signalfd_siginfo info;
        while (::read(state.signals, &info, sizeof(info)) < 0 && errno == EINTR) {
        }
        state.interrupted = true;
        return 0;
      }
      char byte = 0;
      const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
      if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (count <= 0) return 0;
      if (byte == '\0') {  // how Ctrl-D reads that was typed before the editor had the terminal
        if (state.LineIsEmpty()) return 0;
        continue;
      }
      const size_t used = std::mbrtowc(character, &byte, 1, &state.partial);
      if (used == static_cast<size_t>(-2)) continue;
      if (used == static_cast<size_t>(-1)) {
        state.partial = {};
        *character = L'\uFFFD';
      }
      return 1;
    }
  }

  // What comes between the marks of a paste goes into the line as it is, line feeds included.
  static unsigned char Paste(EditLine* editor, int /*key*/) {
    std::string text;
    while (!text.ends_with(kPasteEnd)) {
      wchar_t character = 0;
      if (GetCharacter(editor, &character) != 1) return CC_EOF;
      char bytes[MB_LEN_MAX];
      mbstate_t state{};
      const size_t count = std::wcrtomb(bytes, character, &state);
      if (count != static_cast<size_t>(-1)) text.append(bytes, count);
    }
    text.resize(text.size() - kPasteEnd.size());
    for (char& c : text) {
      if (c == '\r') c = '\n';  // what terminals make of line feeds
    }
    return text.empty() || el_insertstr(editor, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
  }

  static unsigned char Complete(EditLine* editor, int /*key*/) {
    const LineInfo* line = el_line(editor);
    const std::string before(line->buffer, line->cursor);
    const size_t space = before.rfind(' ');
    const std::vector<std::string>& words = Of(editor)->completions;
    if (space == std::string::npos) return Offer(editor, before, WithPrefix(words, before), " ");
    if (WithPrefix(words, before.substr(0, before.find(' '))).empty()) return CC_ERROR;
    const std::string name = before.substr(space + 1);
    return Offer(editor, name, FilesThatBegin(name), "");
  }

  // Inserts the common continuation of all candidates after `word`, or lists them.
  static unsigned char Offer(EditLine* editor, const std::string& word,
                             const std::vector<std::string>& candidates, const char* after) {
    if (candidates.empty()) return CC_ERROR;
    std::string common = candidates[0];
    for (const std::string& candidate : candidates) {
      const auto differ =
          std::mismatch(common.begin(), common.end(), candidate.begin(), candidate.end());
      common.erase(differ.first, common.end());
    }
    if (candidates.size() == 1 && !common.ends_with('/')) common += after;
    if (common.size() > word.size()) {
      return el_insertstr(editor, common.c_str() + word.size()) == 0 ? CC_REFRESH : CC_ERROR;
    }
    if (candidates.size() == 1) return CC_ERROR;
    std::string list = "\n";
    for (const std::string& candidate : candidates) list += candidate + "  ";
    std::fprintf(stderr, "%s\n", list.c_str());
    return CC_REDISPLAY;
  }

  static std::vector<std::string> WithPrefix(const std::vector<std::string>& words,
                                             const std::string& prefix) {
    std::vector<std::string> found;
    for (const std::string& word : words) {
      if (!prefix.empty() && word.starts_with(prefix)) found.push_back(word);
    }
    return found;
  }

  static std::vector<std::string> FilesThatBegin(const std::string& name) {
    const size_t slash = name.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : name.substr(0, slash + 1);
    std::vector<std::string> found;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(folder.empty() ? "." : folder, error)) {
      std::string path = folder + entry.path().filename().string();
      if (!path.starts_with(name)) continue;
      std::error_code unknown;
      if (entry.is_directory(unknown)) path += '/';
      found.push_back(std::move(path));
    }
    std::sort(found.begin(), found.end());
    return found;
  }

  ~State() {
    if (editor != nullptr) std::fputs(kPasteOff, stderr);
    if (history != nullptr) {
      HistEvent event;
      if (!history_path.empty()) ::history(history, &event, H_SAVE, history_path.c_str());
      history_end(history);
    }
    if (editor != nullptr) el_end(editor);
  }
};

LineEditor::LineEditor(std::unique_ptr<State> state) : state_(std::move(state)) {}
LineEditor::~LineEditor() = default;

std::unique_ptr<LineEditor> LineEditor::Create(int signals, std::string history_path) {
  if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDERR_FILENO) != 1) return nullptr;
  if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) {
    std::setlocale(LC_CTYPE, "C.UTF-8");
  }
  auto state = std::make_unique<State>();
  state->signals = signals;
  state->history_path = std::move(history_path);
  state->editor = el_init("tandem", stdin, stderr, stderr);
  state->history = history_init();
  if (state->editor == nullptr || state->history == nullptr) return nullptr;
  EditLine* editor = state->editor;
  el_set(editor, EL_CLIENTDATA, state.get());
  el_set(editor, EL_PROMPT, State::Prompt);
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_SIGNAL, 0);
  el_set(editor, EL_GETCFN, State::GetCharacter);
  HistEvent event;
  history(state->history, &event, H_SETSIZE, kHistoryLines);
  history(state->history, &event, H_SETUNIQUE, 1);
  if (!state->history_path.empty()) {
    history(state->history, &event, H_LOAD, state->history_path.c_str());
  }
  el_set(editor, EL_HIST, history, state->history);
  el_set(editor, EL_ADDFN, "tandem-paste", "Insert pasted text", State::Paste);
  el_set(editor, EL_BIND, "\\e[200~", "tandem-paste", nullptr);
  el_set(editor, EL_ADDFN, "tandem-complete", "Complete a command", State::Complete);
  el_set(editor, EL_BIND, "^I", "tandem-complete", nullptr);
  el_source(editor, nullptr);  // the user's ~/.editrc
  // Also while an answer comes: text pasted then is read after it.
  std::fputs(kPasteOn, stderr);
  return std::unique_ptr<LineEditor>(new LineEditor(std::move(state)));
}

void LineEditor::SetCompletions(std::vector<std::string> words) {
  state_->completions = std::move(words);
}

InputEvent LineEditor::Read(const char* prompt, std::string& line) {
  state_->prompt = prompt;
  state_->interrupted = false;
  // Before the prompt says that keys are the editor's.
  el_set(state_->editor, EL_PREP_TERM, 1);
  int count = 0;
  const char* text = el_gets(state_->editor, &count);
  if (state_->interrupted) {
    el_reset(state_->editor);
    return InputEvent::kInterrupt;
  }
  if (text == nullptr || count <= 0) return InputEvent::kEnd;
  line.assign(text, static_cast<size_t>(count));
  while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
  HistEvent event;
  if (line.find_first_not_of(" \t") != std::string::npos) {
    history(state_->history, &event, H_ENTER, line.c_str());
  }
  return InputEvent::kLine;
}

std::string DefaultHistoryPath() {
  std::filesystem::path folder;
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  if (state != nullptr && state[0] == '/') {
    folder = state;
  } else if (home != nullptr && home[0] == '/') {
    folder = std::filesystem::path(home) / ".local" / "state";
  } else {
    return "";
  }
  folder /= "tandem";
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  // What was asked is nobody else's business.
  if (error || ::chmod(folder.c_str(), 0700) != 0) return "";
  return folder / "history";
}

}  // namespace tandem
