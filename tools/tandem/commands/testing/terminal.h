// The `tandem` program with somebody at a terminal.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "services/common/base/unique_fd.h"

namespace tandem {

class Terminal {
 public:
  // Runs `tandem` with these arguments on a terminal of its own, its files under `home`.
  Terminal(const std::vector<std::string>& arguments, const std::string& home,
           unsigned short columns = 200, bool keep_no_color = false);
  // Kills it if it still runs.
  ~Terminal();

  void Type(std::string_view keys);
  // Reads until `text` comes after what was waited for before; false when the program ends, or
  // after 30 seconds.
  bool WaitFor(std::string_view text);
  // Waits for the end.  Exit code, or minus the signal's number; kStillRuns after 30 seconds
  // without a word from it.
  static constexpr int kStillRuns = 1000;
  int Wait();

 private:
  bool ReadSome();

  pid_t pid_ = -1;
  UniqueFd terminal_;
  std::string screen_;
  size_t seen_ = 0;
};

}  // namespace tandem
