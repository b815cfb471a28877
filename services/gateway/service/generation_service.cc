#include "services/gateway/service/generation_service.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"
#include "services/gateway/service/call_origin.h"
#include "services/gateway/service/client_status.h"
#include "services/gateway/service/embed_reactor.h"
#include "services/gateway/service/request_parser.h"
#include "services/gateway/service/stream_reactor.h"
#include "services/gateway/service/text_reactor.h"
#include "services/gateway/service/text_tokens.h"
#include "services/gateway/trace/trace_response.h"

namespace tandem::gateway {
namespace {

absl::Time Deadline(const grpc::CallbackServerContext& context) {
  const std::chrono::system_clock::time_point deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteFuture();
  return absl::FromChrono(deadline);
}

grpc::ServerUnaryReactor* Answer(grpc::CallbackServerContext* context, const absl::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(ToClientStatus(status));
  return reactor;
}

// What the two streaming methods have in common; `parse`: ParseGenerate or ParseChat.
template <class Response, class Request, class Parse>
grpc::ServerWriteReactor<Response>* Start(const Launcher& launcher,
                                          const GenerationServiceOptions& options,
                                          grpc::CallbackServerContext& context,
                                          const Request& request, Parse parse) {
  using Reactor = StreamReactor<Response>;
  const Api api = OriginOf(context);
  RequestTrace trace = TraceOf(context, options.sampler);
  context.AddInitialMetadata(kTraceParent, FormatTraceParent(trace.own));
  const auto model = launcher.model();
  auto parsed =
      model.ok() ? parse(request, **model) : absl::StatusOr<EngineRequest>(model.status());
  if (!parsed.ok()) {
    launcher.ReportRefused(api, parsed.status());
    return Reactor::Fail(parsed.status());
  }
  context.AddInitialMetadata(kRequestId, parsed->request_id);
  parsed->api = api;
  parsed->trace = std::move(trace);
  parsed->tenant = TenantOf(context);
  parsed->deadline = Deadline(context);
  return Reactor::Start(**model, *std::move(parsed), request.has_logprobs(),
                        options.max_unread_tokens);
}

}  // namespace

GenerationService::GenerationService(const Launcher& launcher, GenerationServiceOptions options)
    : launcher_(launcher), options_(std::move(options)) {}

grpc::ServerWriteReactor<v1::GenerateResponse>* GenerationService::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  return Start<v1::GenerateResponse>(launcher_, options_, *context, *request, ParseGenerate);
}

grpc::ServerWriteReactor<v1::ChatResponse>* GenerationService::Chat(
    grpc::CallbackServerContext* context, const v1::ChatRequest* request) {
  return Start<v1::ChatResponse>(launcher_, options_, *context, *request, ParseChat);
}

grpc::ServerUnaryReactor* GenerationService::Embed(grpc::CallbackServerContext* context,
                                                   const v1::EmbedRequest* request,
                                                   v1::EmbedResponse* response) {
  const Api api = OriginOf(*context);
  const RequestTrace trace = TraceOf(*context, options_.sampler);
  context->AddInitialMetadata(kTraceParent, FormatTraceParent(trace.own));
  const auto model = launcher_.model();
  auto parsed = model.ok() ? ParseEmbed(*request, **model)
                           : absl::StatusOr<std::vector<EngineRequest>>(model.status());
  if (!parsed.ok()) {
    launcher_.ReportRefused(api, parsed.status());
    return Answer(context, parsed.status());
  }
  context->AddInitialMetadata(kRequestId, parsed->front().request_id);
  for (size_t i = 0; i < parsed->size(); ++i) {
    EngineRequest& input = (*parsed)[i];
    input.api = api;
    input.trace = i == 0 ? trace : trace.Sibling();
    input.tenant = TenantOf(*context);
    input.deadline = Deadline(*context);
  }
  return EmbedReactor::Start(**model, answers_, *std::move(parsed), *response);
}

grpc::ServerUnaryReactor* GenerationService::Tokenize(grpc::CallbackServerContext* context,
                                                      const v1::TokenizeRequest* request,
                                                      v1::TokenizeResponse* response) {
  return TextReactor::Start(*context, texts_, answers_, request->text().size(), *response,
                            [this, request, response] { return DoTokenize(*request, *response); });
}

absl::Status GenerationService::DoTokenize(const v1::TokenizeRequest& request,
                                           v1::TokenizeResponse& response) const {
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

grpc::ServerUnaryReactor* GenerationService::Detokenize(grpc::CallbackServerContext* context,
                                                        const v1::DetokenizeRequest* request,
                                                        v1::DetokenizeResponse* response) {
  return TextReactor::Start(
      *context, texts_, answers_, request->ids_size(), *response,
      [this, request, response] { return DoDetokenize(*request, *response); });
}

absl::Status GenerationService::DoDetokenize(const v1::DetokenizeRequest& request,
                                             v1::DetokenizeResponse& response) const {
  TANDEM_ASSIGN_OR_RETURN(const ServedModel* model, launcher_.model());
  TANDEM_RETURN_IF_ERROR(model->CheckName(request.model()));
  TANDEM_RETURN_IF_ERROR(CheckNumTokens(request.ids_size(), *model));
  const std::vector<uint32_t> ids(request.ids().begin(), request.ids().end());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < model->config().vocab_size) continue;
    return absl::InvalidArgumentError(absl::StrFormat("ids[%d]: %d, the vocabulary has %d", i,
                                                      ids[i], model->config().vocab_size));
  }
  response.set_text(model->tokenizer().Decode(ids));
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* GenerationService::ListModels(grpc::CallbackServerContext* context,
                                                        const v1::ListModelsRequest* /*request*/,
                                                        v1::ListModelsResponse* response) {
  const auto model = launcher_.model();
  if (model.ok()) *response->add_models() = (*model)->info();
  return Answer(context, model.status());
}

grpc::ServerUnaryReactor* GenerationService::GetTrace(grpc::CallbackServerContext* context,
                                                      const v1::GetTraceRequest* request,
                                                      v1::GetTraceResponse* response) {
  return Answer(context, DoGetTrace(*request, TraceScopeOf(*context), *response));
}

absl::Status GenerationService::DoGetTrace(const v1::GetTraceRequest& request,
                                           const std::optional<std::string>& tenant,
                                           v1::GetTraceResponse& response) const {
  if (options_.traces == nullptr || options_.traces->max_requests() == 0) {
    return absl::FailedPreconditionError("no traces are kept (--trace-keep 0)");
  }
  const std::vector<KeptTrace> found = options_.traces->Find(request.id(), tenant);
  if (found.empty()) {
    return absl::NotFoundError(
        request.id().empty()
            ? std::string("no request has ended yet")
            : absl::StrFormat("no request '%s' is among the last %d that ended (--trace-keep)",
                              ClientText(request.id()), options_.traces->max_requests()));
  }
  FillTrace(found, response);
  return absl::OkStatus();
}

grpc::ServerUnaryReactor* GenerationService::GetStatus(grpc::CallbackServerContext* context,
                                                       const v1::GetStatusRequest* /*request*/,
                                                       v1::GetStatusResponse* response) {
  response->set_version(options_.version);
  response->set_uptime_seconds(absl::ToDoubleSeconds(absl::Now() - started_));
  launcher_.FillStatus(*response);
  return Answer(context, absl::OkStatus());
}

}  // namespace tandem::gateway
