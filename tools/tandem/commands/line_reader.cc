#include "tools/tandem/commands/line_reader.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "absl/status/status.h"

namespace tandem {
namespace {

// Waits until one of two descriptors can be read; says whether each can.
struct Readable {
  bool first = false;
  bool second = false;
};
Readable WaitReadable(int first, int second) {
  pollfd polled[] = {{first, POLLIN, 0}, {second, POLLIN, 0}};
  while (::poll(polled, 2, -1) < 0 && errno == EINTR) {
  }
  return {polled[0].revents != 0, polled[1].revents != 0};
}

void TakeSignal(int signals) {
  signalfd_siginfo info;
  while (::read(signals, &info, sizeof(info)) < 0 && errno == EINTR) {
  }
}

}  // namespace

absl::StatusOr<LineReader> LineReader::Create() {
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, SIGINT);
  LineReader reader;
  if (::pthread_sigmask(SIG_BLOCK, &mask, nullptr) == 0) {
    reader.signals_.Reset(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  if (!reader.signals_.valid()) {
    return absl::ErrnoToStatus(errno, "no descriptor for signals");
  }
  reader.editor_ = LineEditor::Create(reader.signals_.get(), DefaultHistoryPath());
  return reader;
}

InputEvent LineReader::Read(const char* prompt, std::string& line) {
  if (editor_ != nullptr) return editor_->Read(prompt, line);
  while (true) {
    const size_t feed = buffer_.find('\n');
    if (feed != std::string::npos || (at_end_ && !buffer_.empty())) {
      line = buffer_.substr(0, feed);
      buffer_.erase(0, feed == std::string::npos ? feed : feed + 1);
      return InputEvent::kLine;
    }
    if (at_end_) return InputEvent::kEnd;
    const Readable readable = WaitReadable(signals_.get(), STDIN_FILENO);
    if (readable.first) {
      TakeSignal(signals_.get());
      buffer_.clear();
      return InputEvent::kInterrupt;
    }
    if (!readable.second) continue;
    char bytes[1 << 12];
    const ssize_t count = ::read(STDIN_FILENO, bytes, sizeof(bytes));
    if (count > 0) buffer_.append(bytes, static_cast<size_t>(count));
    at_end_ = count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN);
  }
}

LineReader::CancelOnInterrupt::CancelOnInterrupt(const LineReader& reader,
                                                 grpc::ClientContext& context)
    : stop_(::eventfd(0, EFD_CLOEXEC)) {
  const int signals = reader.signals_.get();
  thread_ = std::thread([this, signals, &context] {
    const Readable readable = WaitReadable(signals, stop_.get());
    if (!readable.first) return;
    TakeSignal(signals);
    interrupted_ = true;
    context.TryCancel();
  });
}

LineReader::CancelOnInterrupt::~CancelOnInterrupt() {
  const uint64_t one = 1;
  while (::write(stop_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
  }
  thread_.join();
}

}  // namespace tandem
