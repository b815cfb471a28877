#include "services/gateway/picture/decoder_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"
#include "services/common/picture/decoder_wire.h"

namespace tandem::gateway {
namespace {

// Attributes and file actions of posix_spawn, destroyed with their scope.
class SpawnSettings {
 public:
  SpawnSettings() {
    ::posix_spawnattr_init(&attributes_);
    ::posix_spawn_file_actions_init(&actions_);
  }
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  // A group of its own, so that a terminal's Ctrl-C reaches the gateway alone; no signal blocked or
  // ignored.
  void SetDefaults() {
    sigset_t signals;
    ::sigemptyset(&signals);
    ::posix_spawnattr_setsigmask(&attributes_, &signals);
    ::sigfillset(&signals);
    ::posix_spawnattr_setsigdefault(&attributes_, &signals);
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    ::posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  posix_spawnattr_t* attributes() { return &attributes_; }
  posix_spawn_file_actions_t* actions() { return &actions_; }

 private:
  posix_spawnattr_t attributes_;
  posix_spawn_file_actions_t actions_;
};

absl::StatusOr<UniqueFd> SharedCopy(std::string_view bytes) {
  TANDEM_ASSIGN_OR_RETURN(UniqueFd fd, CreateSharedMemory("tandem-picture-file", bytes.size()));
  TANDEM_ASSIGN_OR_RETURN(const Mapping mapping,
                          Mapping::Map(fd.get(), bytes.size(), Mapping::Access::kReadWrite));
  std::memcpy(mapping.data(), bytes.data(), bytes.size());
  TANDEM_RETURN_IF_ERROR(SealSize(fd.get()));
  return fd;
}

absl::Status SendRequest(int socket, const DecodeRequest& request, int input, int output) {
  DecodeRequest copy = request;
  iovec data{&copy, sizeof(copy)};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(2 * sizeof(int));
  const int descriptors[2] = {input, output};
  std::memcpy(CMSG_DATA(header), descriptors, sizeof(descriptors));
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent == sizeof(copy)) return absl::OkStatus();
  return absl::UnavailableError("the picture's decoder has gone");
}

// DEADLINE_EXCEEDED, or UNAVAILABLE when the process has ended without a reply.
absl::Status ReceiveReply(int socket, absl::Time deadline, DecodeReply& reply) {
  while (true) {
    const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left <= 0) return absl::DeadlineExceededError("");
    pollfd waiting{socket, POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(std::min<int64_t>(left, 60'000))) > 0) break;
  }
  ssize_t received = 0;
  do {
    received = ::recv(socket, &reply, sizeof(reply), 0);
  } while (received < 0 && errno == EINTR);
  if (received <= 0) return absl::UnavailableError("");
  if (received != sizeof(reply) || reply.magic != kDecoderMagic ||
      reply.code > DecodeReply::kRefused) {
    return absl::InternalError("the picture's decoder sent a malformed reply");
  }
  return absl::OkStatus();
}

// The reply's message.  The decoder may have been taken over: only plain text passes.
std::string MessageOf(const DecodeReply& reply) {
  std::string text(reply.message, ::strnlen(reply.message, sizeof(reply.message)));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

absl::Status TooSlow(const DecoderLimits& limits) {
  return absl::InvalidArgumentError(
      absl::StrFormat("the picture takes longer than %s to decode: send it smaller",
                      absl::FormatDuration(limits.timeout)));
}

}  // namespace

absl::StatusOr<DecoderProcess> DecoderProcess::Start(const std::string& program,
                                                     const DecoderLimits& limits) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ErrnoToStatus(errno, "no socket for a picture's decoder");
  }
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  SpawnSettings settings;
  settings.SetDefaults();
  ::posix_spawn_file_actions_adddup2(settings.actions(), theirs.get(), kDecoderSocket);
  ::posix_spawn_file_actions_addopen(settings.actions(), STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  const auto seconds =
      std::max<int64_t>(1, absl::ToInt64Seconds(absl::Ceil(limits.timeout, absl::Seconds(1))));
  std::string arguments[] = {program, absl::StrFormat("%d", limits.max_memory_bytes),
                             absl::StrFormat("%d", seconds)};
  char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(), nullptr};
  char* no_environment[] = {nullptr};
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, program.c_str(), settings.actions(), settings.attributes(),
                                  argv, no_environment);
  if (error != 0) {
    return absl::ErrnoToStatus(
        error, absl::StrFormat("%s, which decodes pictures, does not start", program));
  }
  return DecoderProcess(pid, std::move(ours));
}

DecoderProcess::DecoderProcess(DecoderProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), socket_(std::move(other.socket_)) {}

DecoderProcess& DecoderProcess::operator=(DecoderProcess&& other) noexcept {
  if (this != &other) {
    End();
    pid_ = std::exchange(other.pid_, -1);
    socket_ = std::move(other.socket_);
  }
  return *this;
}

DecoderProcess::~DecoderProcess() { End(); }

int DecoderProcess::End() {
  if (pid_ < 0) return 0;
  ::kill(pid_, SIGKILL);
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  socket_.Reset();
  return status;
}

// Called when its end of the socket has closed: it is ending by itself.
absl::Status DecoderProcess::WhyItEnded(const DecoderLimits& limits) {
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    if (signal == SIGXCPU) return TooSlow(limits);
    if (signal == SIGKILL) {
      return absl::UnavailableError(
          "the picture's decoder was killed: by the system, if memory ran out, or by its operator");
    }
    return absl::InvalidArgumentError(
        absl::StrFormat("the picture is damaged: its decoder ended with signal %d", signal));
  }
  return absl::InternalError(
      absl::StrFormat("tandem-image-decoder ended with status %d: it does not run on this system "
                      "(see its message in the gateway's standard error)",
                      WEXITSTATUS(status)));
}

absl::StatusOr<DecodedPixels> DecoderProcess::Decode(std::string_view file,
                                                     const DecoderLimits& limits) {
  if (file.empty()) return absl::InvalidArgumentError("the picture is empty");
  // Of the clock; the limit of processor time comes first where it is the picture's fault.
  const absl::Duration patience = 2 * limits.timeout;
  const absl::Time deadline = absl::Now() + patience;
  TANDEM_ASSIGN_OR_RETURN(const UniqueFd input, SharedCopy(file));
  // Takes memory only where pixels are written.
  TANDEM_ASSIGN_OR_RETURN(const UniqueFd output,
                          CreateSharedMemory("tandem-picture", limits.max_pixels * kBytesPerPixel));
  TANDEM_RETURN_IF_ERROR(SealSize(output.get()));
  DecodeRequest request;
  request.input_bytes = file.size();
  request.max_pixels = limits.max_pixels;
  TANDEM_RETURN_IF_ERROR(SendRequest(socket_.get(), request, input.get(), output.get()));
  DecodeReply reply;
  const absl::Status received = ReceiveReply(socket_.get(), deadline, reply);
  if (absl::IsUnavailable(received)) return WhyItEnded(limits);
  // Its pixels change no more from here on.
  End();
  if (absl::IsDeadlineExceeded(received)) {
    // It has not used up its processor time, or a signal would have ended it.
    return absl::ResourceExhaustedError(absl::StrFormat(
        "the picture was not decoded within %s, as this server is busy: try again later, or send "
        "it smaller",
        absl::FormatDuration(patience)));
  }
  TANDEM_RETURN_IF_ERROR(received);
  if (reply.code == DecodeReply::kRefused) return absl::InvalidArgumentError(MessageOf(reply));
  const uint64_t num_pixels = uint64_t{reply.width} * reply.height;
  if (num_pixels == 0 || num_pixels > limits.max_pixels ||
      std::max(reply.width, reply.height) > kMaxPictureSide) {
    return absl::InternalError(
        absl::StrFormat("the picture's decoder claims %d x %d pixels", reply.width, reply.height));
  }
  DecodedPixels decoded{reply.width, reply.height, {}};
  TANDEM_ASSIGN_OR_RETURN(decoded.pixels, Mapping::Map(output.get(), num_pixels * kBytesPerPixel,
                                                       Mapping::Access::kReadOnly));
  return decoded;
}

}  // namespace tandem::gateway
