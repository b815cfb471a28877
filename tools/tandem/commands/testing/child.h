// The `tandem` program as a child process.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "services/common/base/unique_fd.h"

namespace tandem {

class Child {
 public:
  // Runs `tandem` with these arguments, its three streams being pipes of ours; its output goes to
  // the file `output` instead, if one is named.
  explicit Child(const std::vector<std::string>& arguments, const char* output = nullptr);
  // Kills it if it still runs.
  ~Child();

  void Write(std::string_view text);
  void CloseInput() { input_.Reset(); }
  void Signal(int signal);
  // Reads standard output until it holds `text`; false when it ends before.
  bool WaitForOutput(std::string_view text);
  // Reads everything and waits for the end.  Exit code, or minus the signal's number.
  int Wait();

  // What has been read so far; all of it after Wait.
  const std::string& output() const { return output_text_; }
  const std::string& errors() const { return errors_text_; }

 private:
  // Reads what there is of both streams; false when both have ended, or after a minute in which
  // neither said anything: the program is killed then.
  bool ReadSome();

  pid_t pid_ = -1;
  UniqueFd input_;
  UniqueFd output_;
  UniqueFd errors_;
  std::string output_text_;
  std::string errors_text_;
};

}  // namespace tandem
