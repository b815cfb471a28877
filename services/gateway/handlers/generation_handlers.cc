#include "services/gateway/handlers/generation_handlers.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "services/common/base/cancellation.h"
#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/handlers/stream_run.h"
#include "services/gateway/model/client_limits.h"
#include "services/gateway/model/request_parser.h"
#include "services/gateway/model/response_writer.h"
#include "services/gateway/model/text_tokens.h"
#include "services/gateway/tool_calls/tool_messages.h"
#include "services/gateway/trace/trace_response.h"
#include "tandem/v1/generation.pb.h"

namespace tandem::gateway {
namespace {

// Texts up to this length are handled on the thread of the call.
constexpr size_t kShortBytes = 4 << 10;

// Copies the call's API, trace and deadline to a request.  Each request of a call has its own span.
void SetOrigin(const RpcCaller& caller, size_t index, EngineRequest& request) {
  request.api = caller.api;
  request.trace = index == 0 ? caller.trace : caller.trace.Sibling();
  request.deadline = caller.deadline;
}

// What the two streaming methods have in common; `parse`: ParseGenerate or ParseChat.
template <class Request, class Response, auto parse>
void StartStream(const Launcher& launcher, uint32_t max_unread_tokens,
                 const std::shared_ptr<RpcCall>& call) {
  const auto& request = call->request<Request>();
  const auto model = launcher.model();
  auto parsed =
      model.ok() ? parse(request, **model) : absl::StatusOr<EngineRequest>(model.status());
  if (!parsed.ok()) {
    launcher.ReportRefused(call->caller().api, parsed.status());
    return call->Finish(parsed.status());
  }
  call->NameRequest(parsed->request_id);
  SetOrigin(call->caller(), 0, *parsed);
  const bool with_logprobs = request.has_logprobs();
  CallOptions calls;
  if constexpr (requires { request.tools(); }) {
    calls = CallOptionsOf(request, (*model)->tool_format());
  }
  call->ReleaseRequest();
  StreamRun<Response>::Start(**model, *std::move(parsed), with_logprobs, std::move(calls),
                             max_unread_tokens, call);
}

}  // namespace

GenerationHandlers::GenerationHandlers(const Launcher& launcher, GenerationServiceOptions options)
    : launcher_(launcher), options_(std::move(options)) {
  const auto add = [this](const char* name, RpcHandler answer,
                          decltype(RpcMethod::refused) refused) {
    methods_[std::string("tandem.v1.Generation.") + name] = {std::move(answer), std::move(refused)};
  };
  const auto refused = [this](Api api, const absl::Status& status) {
    launcher_.ReportRefused(api, status);
  };
  const uint32_t unread = options_.max_unread_tokens;
  add(
      "Generate",
      [this, unread](const Call& call) {
        StartStream<v1::GenerateRequest, v1::GenerateResponse, ParseGenerate>(launcher_, unread,
                                                                              call);
      },
      refused);
  add(
      "Chat",
      [this, unread](const Call& call) {
        StartStream<v1::ChatRequest, v1::ChatResponse, ParseChat>(launcher_, unread, call);
      },
      refused);
  add(
      "Embed", [this](const Call& call) { Embed(call); }, refused);
  add(
      "Tokenize", [this](const Call& call) { Tokenize(call); }, nullptr);
  add(
      "Detokenize", [this](const Call& call) { Detokenize(call); }, nullptr);
  add(
      "ListModels", [this](const Call& call) { ListModels(call); }, nullptr);
  add(
      "GetStatus", [this](const Call& call) { GetStatus(call); }, nullptr);
  add(
      "GetTrace", [this](const Call& call) { call->Finish(DoGetTrace(*call)); }, nullptr);
}

void GenerationHandlers::Embed(const Call& call) {
  const auto model = launcher_.model();
  auto parsed = model.ok() ? ParseEmbed(call->request<v1::EmbedRequest>(), **model)
                           : absl::StatusOr<std::vector<EngineRequest>>(model.status());
  if (!parsed.ok()) {
    launcher_.ReportRefused(call->caller().api, parsed.status());
    return call->Finish(parsed.status());
  }
  call->ReleaseRequest();
  const std::string request_id = parsed->front().request_id;
  call->NameRequest(request_id);
  for (size_t i = 0; i < parsed->size(); ++i) SetOrigin(call->caller(), i, (*parsed)[i]);
  const auto run = ReserveEmbedding(call->caller().client, **model, *std::move(parsed),
                                    [call, model = *model, request_id](const EmbedResult& result) {
                                      auto& response = call->response<v1::EmbedResponse>();
                                      response.set_request_id(request_id);
                                      WriteEmbeddings(result, response);
                                      response.set_placement(model->replicas().placement());
                                      call->Finish(result.status);
                                    });
  if (!run.ok()) return call->Finish(run.status());
  call->SetCallbacks(nullptr, [run = *run] { run->Cancel(); });
  (*run)->Start();
}

void GenerationHandlers::AnswerText(const Call& call, size_t text_bytes,
                                    std::function<absl::Status()> work) {
  if (text_bytes <= kShortBytes) return call->Finish(work());
  texts_.Post(call->caller().client->tenant(), text_bytes, [call, work = std::move(work)] {
    const CancellationScope scope(
        [&call] { return call->gone() || absl::Now() >= call->caller().deadline; });
    absl::Status status = CheckCancelled();
    if (status.ok()) status = work();
    call->Finish(std::move(status));
  });
}

void GenerationHandlers::Tokenize(const Call& call) {
  AnswerText(call, call->request<v1::TokenizeRequest>().text().size(),
             [this, call] { return DoTokenize(*call); });
}

absl::Status GenerationHandlers::DoTokenize(RpcCall& call) const {
  const auto& request = call.request<v1::TokenizeRequest>();
  auto& response = call.response<v1::TokenizeResponse>();
  TANDEM_ASSIGN_OR_RETURN(const ServedModel* model, launcher_.model());
  TANDEM_RETURN_IF_ERROR(model->CheckName(request.model()));
  TANDEM_ASSIGN_OR_RETURN(const std::vector<uint32_t> ids,
                          TokensOf(request.text(), request.add_bos(), *model));
  response.mutable_ids()->Assign(ids.begin(), ids.end());
  for (const uint32_t id : ids) {
    response.add_pieces(std::string(model->tokenizer().Piece(id)));
  }
  return absl::OkStatus();
}

void GenerationHandlers::Detokenize(const Call& call) {
  AnswerText(call, call->request<v1::DetokenizeRequest>().ids_size(),
             [this, call] { return DoDetokenize(*call); });
}

absl::Status GenerationHandlers::DoDetokenize(RpcCall& call) const {
  const auto& request = call.request<v1::DetokenizeRequest>();
  TANDEM_ASSIGN_OR_RETURN(const ServedModel* model, launcher_.model());
  TANDEM_RETURN_IF_ERROR(model->CheckName(request.model()));
  TANDEM_RETURN_IF_ERROR(CheckNumTokens(request.ids_size(), *model));
  const std::vector<uint32_t> ids(request.ids().begin(), request.ids().end());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < model->config().vocab_size) continue;
    return absl::InvalidArgumentError(absl::StrFormat("ids[%d]: %d, the vocabulary has %d", i,
                                                      ids[i], model->config().vocab_size));
  }
  call.response<v1::DetokenizeResponse>().set_text(model->tokenizer().Decode(ids));
  return absl::OkStatus();
}

void GenerationHandlers::ListModels(const Call& call) {
  const auto model = launcher_.model();
  if (model.ok()) *call->response<v1::ListModelsResponse>().add_models() = (*model)->info();
  call->Finish(model.status());
}

void GenerationHandlers::GetStatus(const Call& call) {
  auto& response = call->response<v1::GetStatusResponse>();
  response.set_version(options_.version);
  response.set_uptime_seconds(absl::ToDoubleSeconds(absl::Now() - started_));
  launcher_.FillStatus(response);
  call->Finish(absl::OkStatus());
}

absl::Status GenerationHandlers::DoGetTrace(RpcCall& call) const {
  if (options_.traces == nullptr || options_.traces->max_requests() == 0) {
    return absl::FailedPreconditionError("no traces are kept (--trace-keep 0)");
  }
  const HttpClient& client = *call.caller().client;
  const std::string& id = call.request<v1::GetTraceRequest>().id();
  const std::vector<KeptTrace> found =
      options_.traces->Find(id, client.sees_all() ? std::nullopt : std::optional(client.tenant()));
  if (found.empty()) {
    return absl::NotFoundError(
        id.empty()
            ? std::string("no request has ended yet")
            : absl::StrFormat("no request '%s' is among the last %d that ended (--trace-keep)",
                              ClientText(id), options_.traces->max_requests()));
  }
  FillTrace(found, call.response<v1::GetTraceResponse>());
  return absl::OkStatus();
}

}  // namespace tandem::gateway
