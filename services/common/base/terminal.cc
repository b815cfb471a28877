#include "services/common/base/terminal.h"

#include <fcntl.h>

#include <cerrno>
#include <csignal>

#include "services/common/base/unique_fd.h"

namespace tandem {
namespace {

UniqueFd OpenTerminal() { return UniqueFd(::open("/dev/tty", O_RDWR | O_NOCTTY | O_CLOEXEC)); }

}  // namespace

StartingTerminal::StartingTerminal() {
  struct sigaction hangup {};
  const bool ignored = ::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler == SIG_IGN;
  counts_ = !ignored && OpenTerminal().valid();
}

bool StartingTerminal::Gone() const {
  return counts_ && !OpenTerminal().valid() && (errno == ENXIO || errno == EIO);
}

}  // namespace tandem
