// tandem-image-decoder: decodes one picture of a stranger's in a sandbox, then ends.
//
// The gateway starts it with a socket as its standard input; it takes no arguments of people.
//   tandem-image-decoder MEMORY_BYTES CPU_SECONDS
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"
#include "services/common/picture/decoder_wire.h"
#include "services/image_decoder/decode_service.h"
#include "services/image_decoder/sandbox.h"

namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

bool IsSocket(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  return ::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_SEQPACKET;
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "tandem-image-decoder: %s\n", std::string(status.message()).c_str());
  return kFailed;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tandem::image_decoder;
  SandboxLimits limits;
  if (argc != 3 || !absl::SimpleAtoi(argv[1], &limits.max_memory_bytes) ||
      !absl::SimpleAtoi(argv[2], &limits.max_cpu_seconds) || !IsSocket(tandem::kDecoderSocket)) {
    std::fputs(
        "tandem-image-decoder decodes pictures for Tandem, which starts it: there is nothing to "
        "run by hand\n",
        stderr);
    return kUsage;
  }
  const absl::Status inside = EnterSandbox(limits);
  if (!inside.ok()) return Fail(inside);
  const absl::Status served = ServeOnePicture(tandem::kDecoderSocket);
  // No message from inside the sandbox: it may not write.
  ::_exit(served.ok() ? 0 : kFailed);
}
