#include "tools/tandem/http_gateway.h"

#include <curl/curl.h>
#include <google/protobuf/util/json_util.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/rpc/channel.h"

namespace tandem {
namespace {

constexpr long kConnectSeconds = 10;
constexpr size_t kMostErrorBytes = 64 << 10;

grpc::StatusCode CodeOf(long http_code) {
  switch (http_code) {
    case 400:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case 401:
      return grpc::StatusCode::UNAUTHENTICATED;
    case 403:
      return grpc::StatusCode::PERMISSION_DENIED;
    case 404:
      return grpc::StatusCode::NOT_FOUND;
    case 429:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case 502:
    case 503:
      return grpc::StatusCode::UNAVAILABLE;
    case 504:
      return grpc::StatusCode::DEADLINE_EXCEEDED;
    default:
      return grpc::StatusCode::UNKNOWN;
  }
}

// google.rpc.Status, alone or as {"error": ...} (the last line of a stream); `otherwise` where
// `json` is neither.
grpc::Status StatusOf(const nlohmann::json& json, const grpc::Status& otherwise) {
  const nlohmann::json* status = &json;
  if (json.is_object() && json.contains("error")) status = &json["error"];
  if (!status->is_object() || !status->contains("code") || !(*status)["code"].is_number_integer()) {
    return otherwise;
  }
  const int code = (*status)["code"].get<int>();
  // OpenAI's errors have HTTP's codes.
  if (code <= 0 || code > 16) return otherwise;
  return {static_cast<grpc::StatusCode>(code), status->value("message", "")};
}

grpc::Status FromJson(const std::string& text, google::protobuf::Message* message) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;  // of a newer gateway
  if (google::protobuf::util::JsonStringToMessage(text, message, options).ok()) {
    return grpc::Status::OK;
  }
  return {grpc::StatusCode::DATA_LOSS,
          "the answer is not this API's: is there a Tandem gateway at this address?"};
}

}  // namespace

struct HttpGateway::Transfer {
  CURL* handle = nullptr;
  const grpc::ServerContext* context = nullptr;
  const LineSink* sink = nullptr;  // null: collect
  std::string received;            // the line or answer so far
  grpc::Status status;             // what the sink said

  bool failed() const {
    long code = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &code);
    return code >= 400;
  }

  static size_t Take(char* bytes, size_t one, size_t count, void* user) {
    auto& self = *static_cast<Transfer*>(user);
    self.received.append(bytes, one * count);
    if (self.failed()) {
      return self.received.size() > kMostErrorBytes ? CURL_WRITEFUNC_ERROR : count;
    }
    if (self.sink == nullptr) return count;
    size_t begin = 0;
    for (size_t end; (end = self.received.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
      const std::string line = self.received.substr(begin, end - begin);
      if (line.empty()) continue;  // keeps the connection
      self.status = (*self.sink)(line);
      if (!self.status.ok()) return CURL_WRITEFUNC_ERROR;
    }
    self.received.erase(0, begin);
    return count;
  }

  static int Progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    return static_cast<Transfer*>(user)->context->IsCancelled() ? 1 : 0;
  }
};

HttpGateway::HttpGateway(GatewayAddress address)
    : address_(std::move(address)),
      base_(address_.target.substr(0, address_.target.find_last_not_of('/') + 1)) {
  curl_global_init(CURL_GLOBAL_DEFAULT);
  grpc::ServerBuilder builder;
  builder.RegisterService(this);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  server_ = builder.BuildAndStart();
}

HttpGateway::~HttpGateway() {
  server_->Shutdown(std::chrono::system_clock::now());
  for (void* handle : handles_) curl_easy_cleanup(handle);
}

std::shared_ptr<grpc::Channel> HttpGateway::channel() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  return server_->InProcessChannel(arguments);
}

void* HttpGateway::TakeHandle() {
  const std::lock_guard lock(mutex_);
  if (handles_.empty()) return curl_easy_init();
  void* handle = handles_.back();
  handles_.pop_back();
  return handle;
}

void HttpGateway::GiveHandle(void* handle) {
  curl_easy_reset(handle);  // keeps its connections
  const std::lock_guard lock(mutex_);
  handles_.push_back(handle);
}

grpc::Status HttpGateway::Call(const grpc::ServerContext& context, const std::string& path,
                               const std::string* body, const LineSink& sink, std::string* answer) {
  CURL* handle = TakeHandle();
  if (handle == nullptr) return {grpc::StatusCode::INTERNAL, "libcurl gives no handle"};
  Transfer transfer{.handle = handle, .context = &context, .sink = sink ? &sink : nullptr};
  const std::string url = base_ + path;
  curl_slist* headers = curl_slist_append(nullptr, "Content-Type: application/json");
  headers = curl_slist_append(headers, "Accept: application/x-ndjson, application/json");
  if (!address_.api_key.empty()) {
    headers = curl_slist_append(headers, ("Authorization: Bearer " + address_.api_key).c_str());
  }
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      context.deadline() - std::chrono::system_clock::now());
  if (left < std::chrono::hours(24)) {
    const int64_t milliseconds = std::max<int64_t>(1, left.count());
    headers =
        curl_slist_append(headers, absl::StrFormat("Grpc-Timeout: %dm", milliseconds).c_str());
    curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(milliseconds));
  }
  char reason[CURL_ERROR_SIZE] = "";
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers);
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, reason);
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, Transfer::Take);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, Transfer::Progress);
  curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &transfer);
  if (!address_.ca_file.empty()) {
    curl_easy_setopt(handle, CURLOPT_CAINFO, address_.ca_file.c_str());
  }
  if (body != nullptr) {
    curl_easy_setopt(handle, CURLOPT_POSTFIELDS, body->data());
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body->size()));
  }
  const CURLcode code = curl_easy_perform(handle);
  long http_code = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &http_code);
  curl_slist_free_all(headers);
  GiveHandle(handle);

  if (!transfer.status.ok()) return transfer.status;
  if (context.IsCancelled()) return grpc::Status::CANCELLED;
  if (http_code >= 400) {
    const grpc::Status plain(CodeOf(http_code),
                             absl::StrFormat("%s answers with HTTP status %d", url, http_code));
    return StatusOf(nlohmann::json::parse(transfer.received, nullptr, false), plain);
  }
  // Also while it connects, if the call has less time than connecting may take.
  if (code == CURLE_OPERATION_TIMEDOUT &&
      (http_code != 0 || left < std::chrono::seconds(kConnectSeconds))) {
    return {grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded"};
  }
  if (code != CURLE_OK) {
    const std::string why = *reason != '\0' ? reason : curl_easy_strerror(code);
    return {grpc::StatusCode::UNAVAILABLE,
            http_code == 0 ? absl::StrFormat("failed to connect to %s: %s", base_, why)
                           : absl::StrFormat("the connection to %s broke: %s", base_, why)};
  }
  if (answer != nullptr) *answer = std::move(transfer.received);
  return grpc::Status::OK;
}

grpc::Status HttpGateway::Unary(const grpc::ServerContext& context, const std::string& path,
                                const google::protobuf::Message* request,
                                google::protobuf::Message* response) {
  std::string body, answer;
  if (request != nullptr && !google::protobuf::util::MessageToJsonString(*request, &body).ok()) {
    return {grpc::StatusCode::INTERNAL, "the request cannot be written as JSON"};
  }
  const grpc::Status status =
      Call(context, path, request == nullptr ? nullptr : &body, nullptr, &answer);
  return status.ok() ? FromJson(answer, response) : status;
}

template <typename Response>
grpc::Status HttpGateway::Stream(const grpc::ServerContext& context, const std::string& path,
                                 const google::protobuf::Message& request,
                                 grpc::ServerWriter<Response>& writer) {
  std::string body;
  if (!google::protobuf::util::MessageToJsonString(request, &body).ok()) {
    return {grpc::StatusCode::INTERNAL, "the request cannot be written as JSON"};
  }
  const LineSink sink = [&writer](const std::string& line) -> grpc::Status {
    if (line.starts_with("{\"error\"")) {
      return StatusOf(nlohmann::json::parse(line, nullptr, false),
                      {grpc::StatusCode::UNKNOWN, line.substr(0, 200)});
    }
    Response response;
    const grpc::Status status = FromJson(line, &response);
    if (!status.ok()) return status;
    return writer.Write(response) ? grpc::Status::OK : grpc::Status::CANCELLED;
  };
  return Call(context, path, &body, sink, nullptr);
}

grpc::Status HttpGateway::Generate(grpc::ServerContext* context, const v1::GenerateRequest* request,
                                   grpc::ServerWriter<v1::GenerateResponse>* writer) {
  return Stream(*context, "/tandem/v1/generate", *request, *writer);
}

grpc::Status HttpGateway::Chat(grpc::ServerContext* context, const v1::ChatRequest* request,
                               grpc::ServerWriter<v1::ChatResponse>* writer) {
  return Stream(*context, "/tandem/v1/chat", *request, *writer);
}

grpc::Status HttpGateway::Embed(grpc::ServerContext* context, const v1::EmbedRequest* request,
                                v1::EmbedResponse* response) {
  return Unary(*context, "/tandem/v1/embed", request, response);
}

grpc::Status HttpGateway::ListModels(grpc::ServerContext* context, const v1::ListModelsRequest*,
                                     v1::ListModelsResponse* response) {
  return Unary(*context, "/tandem/v1/models", nullptr, response);
}

grpc::Status HttpGateway::GetStatus(grpc::ServerContext* context, const v1::GetStatusRequest*,
                                    v1::GetStatusResponse* response) {
  return Unary(*context, "/tandem/v1/status", nullptr, response);
}

grpc::Status HttpGateway::GetTrace(grpc::ServerContext* context, const v1::GetTraceRequest* request,
                                   v1::GetTraceResponse* response) {
  char* escaped = curl_easy_escape(nullptr, request->id().c_str(), 0);
  const std::string query = request->id().empty() ? "" : std::string("?id=") + escaped;
  curl_free(escaped);
  return Unary(*context, "/tandem/v1/trace" + query, nullptr, response);
}

}  // namespace tandem
