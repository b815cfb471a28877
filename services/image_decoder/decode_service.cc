#include "services/image_decoder/decode_service.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "services/common/base/status_macros.h"
#include "services/common/picture/decoder_wire.h"
#include "services/image_decoder/formats/decode.h"

namespace tandem::image_decoder {
namespace {

// Its descriptors are never closed and its mappings never unmapped: the process ends with its picture.
struct Received {
  DecodeRequest request;
  int input = -1;
  int output = -1;
};

// nullopt when the other end has closed.
absl::StatusOr<std::optional<Received>> Receive(int socket) {
  Received received;
  iovec data{&received.request, sizeof(received.request)};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t size = 0;
  do {
    size = ::recvmsg(socket, &message, 0);
  } while (size < 0 && errno == EINTR);
  if (size < 0) return absl::ErrnoToStatus(errno, "the gateway's request cannot be received");
  if (size == 0) return std::optional<Received>();
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (size != sizeof(DecodeRequest) || received.request.magic != kDecoderMagic ||
      header == nullptr || header->cmsg_type != SCM_RIGHTS ||
      header->cmsg_len != CMSG_LEN(2 * sizeof(int))) {
    return absl::InvalidArgumentError("the gateway's request is malformed");
  }
  int descriptors[2];
  std::memcpy(descriptors, CMSG_DATA(header), sizeof(descriptors));
  received.input = descriptors[0];
  received.output = descriptors[1];
  return std::optional<Received>(received);
}

absl::StatusOr<std::span<uint8_t>> Map(int fd, uint64_t size, int protection) {
  if (size == 0) return std::span<uint8_t>();
  void* start = ::mmap(nullptr, size, protection, MAP_SHARED, fd, 0);
  if (start == MAP_FAILED) return absl::ErrnoToStatus(errno, "the picture cannot be mapped");
  return std::span(static_cast<uint8_t*>(start), size);
}

absl::Status Decode(const Received& received, DecodeReply& reply) {
  const DecodeRequest& request = received.request;
  TANDEM_ASSIGN_OR_RETURN(const std::span<const uint8_t> input,
                          Map(received.input, request.input_bytes, PROT_READ));
  TANDEM_ASSIGN_OR_RETURN(
      const std::span<uint8_t> output,
      Map(received.output, request.max_pixels * kBytesPerPixel, PROT_READ | PROT_WRITE));
  PixelSink sink(output, request.max_pixels);
  const absl::Status decoded = DecodePicture(input, sink);
  if (decoded.ok()) {
    reply.code = DecodeReply::kDecoded;
    reply.width = sink.width();
    reply.height = sink.height();
    return absl::OkStatus();
  }
  const absl::string_view text = decoded.message();
  std::memcpy(reply.message, text.data(), std::min(text.size(), sizeof(reply.message) - 1));
  return absl::OkStatus();
}

}  // namespace

absl::Status ServeOnePicture(int socket) {
  TANDEM_ASSIGN_OR_RETURN(const std::optional<Received> received, Receive(socket));
  if (!received.has_value()) return absl::OkStatus();
  DecodeReply reply;
  TANDEM_RETURN_IF_ERROR(Decode(*received, reply));
  iovec data{&reply, sizeof(reply)};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (::sendmsg(socket, &message, MSG_NOSIGNAL) != sizeof(reply)) {
    return absl::ErrnoToStatus(errno, "the reply cannot be sent");
  }
  return absl::OkStatus();
}

}  // namespace tandem::image_decoder
