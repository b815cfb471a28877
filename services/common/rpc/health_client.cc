#include "services/common/rpc/health_client.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <grpcpp/generic/generic_stub.h>

#include <vector>

#include "absl/strings/str_format.h"
#include "absl/synchronization/mutex.h"
#include "services/common/rpc/channel.h"
#include "services/common/rpc/status.h"

namespace tandem {
namespace {

// The protocol's messages have one field each, number 1: the service's name, and its status.
constexpr uint32_t kNameTag = 1 << 3 | 2;    // length-delimited
constexpr uint32_t kStatusTag = 1 << 3 | 0;  // varint
constexpr uint64_t kServing = 1;

grpc::ByteBuffer Request(const std::string& service) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.WriteTag(kNameTag);
    out.WriteVarint32(static_cast<uint32_t>(service.size()));
    out.WriteString(service);
  }
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// The status in an answer; 0, which is "unknown", where it has none.
uint64_t StatusIn(const grpc::ByteBuffer& response) {
  std::vector<grpc::Slice> slices;
  if (!response.Dump(&slices).ok()) return 0;
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(bytes.data()),
                                            static_cast<int>(bytes.size()));
  uint64_t status = 0;
  return in.ReadTag() == kStatusTag && in.ReadVarint64(&status) ? status : 0;
}

}  // namespace

absl::Status CheckHealth(const std::string& target, const std::string& service,
                         absl::Duration timeout) {
  grpc::GenericStub stub(CreateChannel(target, Keepalive::kOff));
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  const grpc::ByteBuffer request = Request(service);
  grpc::ByteBuffer response;
  absl::Mutex mutex;
  bool done = false;
  grpc::Status status;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &response,
                 [&](grpc::Status result) {
                   absl::MutexLock lock(&mutex);
                   status = std::move(result);
                   done = true;
                 });
  absl::MutexLock lock(&mutex);
  mutex.Await(absl::Condition(&done));
  const std::string who = service.empty() ? target : absl::StrFormat("%s of %s", service, target);
  if (!status.ok()) {
    const absl::Status reason = FromGrpcStatus(status);
    return absl::Status(reason.code(),
                        absl::StrFormat("%s: %s", who, std::string(reason.message())));
  }
  if (StatusIn(response) == kServing) return absl::OkStatus();
  return absl::UnavailableError(absl::StrFormat("%s answers that it does not serve", who));
}

}  // namespace tandem
