#include "services/common/rpc/channel.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

namespace tandem {

namespace {

grpc::ChannelArguments Arguments(Keepalive keepalive, int max_message_bytes) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(max_message_bytes);
  arguments.SetMaxSendMessageSize(max_message_bytes);
  if (keepalive == Keepalive::kOn) {
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  }
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 50);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1'000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 2'000);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  return arguments;
}

}  // namespace

std::shared_ptr<grpc::Channel> CreateChannel(const std::string& target, Keepalive keepalive) {
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(),
                                   Arguments(keepalive, kMaxMessageBytes));
}

std::shared_ptr<grpc::Channel> CreateRemoteChannel(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
    Keepalive keepalive) {
  grpc::ChannelArguments arguments = Arguments(keepalive, kMaxInlineMessageBytes);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 3'000);  // what connecting may take
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

}  // namespace tandem
