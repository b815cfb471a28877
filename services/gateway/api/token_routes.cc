#include "services/gateway/api/token_routes.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/utf8.h"
#include "services/gateway/api/api_error.h"
#include "services/gateway/api/json.h"
#include "services/gateway/api/json_fields.h"
#include "services/gateway/api/token_json.h"

namespace tandem::gateway {
namespace {

using Answer = absl::StatusOr<Json> (*)(const Json& body, const ServedModel& model);

Json PieceJson(uint32_t id, const Tokenizer& tokenizer) {
  const std::string_view bytes = tokenizer.TokenBytes(id);
  if (!FindInvalidUtf8(bytes).has_value()) return TokenText(id, tokenizer);
  Json numbers = Json::array();
  for (const char byte : bytes) numbers.push_back(static_cast<unsigned char>(byte));
  return numbers;
}

const char* TypeOf(int http_status) {
  switch (http_status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 501:
      return "not_supported_error";
    case 503:
      return "unavailable_error";
    default:
      return http_status < 500 ? "invalid_request_error" : "server_error";
  }
}

absl::StatusOr<Json> Tokenize(const Json& body, const ServedModel& model) {
  absl::Status error;
  JsonFields fields(body, error);
  const auto prompt = fields.String("prompt");
  const auto content = fields.String("content");
  const bool add_special = fields.Bool("add_special")
                               .value_or(fields.Bool("add_special_tokens")
                                             .value_or(prompt.has_value() && !content.has_value()));
  const bool with_pieces = fields.Bool("with_pieces").value_or(false);
  const std::string name = fields.String("model").value_or("");
  if (!prompt.has_value() && !content.has_value()) fields.Missing("content");
  if (!error.ok()) return error;
  TANDEM_RETURN_IF_ERROR(model.CheckName(name));
  const Tokenizer& tokenizer = model.tokenizer();
  TANDEM_ASSIGN_OR_RETURN(std::vector<uint32_t> ids,
                          tokenizer.Encode(content.has_value() ? *content : *prompt));
  if (add_special && model.bos().has_value()) ids.insert(ids.begin(), *model.bos());
  Json tokens = Json::array();
  for (const uint32_t id : ids) {
    if (with_pieces) {
      tokens.push_back({{"id", id}, {"piece", PieceJson(id, tokenizer)}});
    } else {
      tokens.push_back(id);
    }
  }
  return Json{{"count", ids.size()},
              {"max_model_len", model.info().context_len()},
              {"tokens", std::move(tokens)}};
}

absl::StatusOr<Json> Detokenize(const Json& body, const ServedModel& model) {
  absl::Status error;
  JsonFields fields(body, error);
  const Json* tokens = fields.Array("tokens");
  const std::string name = fields.String("model").value_or("");
  if (tokens == nullptr) fields.Missing("tokens");
  if (!error.ok()) return error;
  TANDEM_RETURN_IF_ERROR(model.CheckName(name));
  std::vector<uint32_t> ids;
  for (const Json& token : *tokens) {
    const uint32_t vocab_size = model.config().vocab_size;
    if (!token.is_number_unsigned() || token.get<uint64_t>() >= vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tokens[%d]: %.40s is no token of a vocabulary of %d", ids.size(),
                          DumpJson(token), vocab_size));
    }
    ids.push_back(token.get<uint32_t>());
  }
  const std::string text = model.tokenizer().Decode(ids);
  return Json{{"content", text}, {"prompt", text}};
}

HttpHandler Handles(Answer answer, const Launcher& launcher) {
  return [answer, &launcher](const HttpRequest& request, const std::shared_ptr<HttpResponder>& to) {
    const auto run = [&]() -> absl::StatusOr<Json> {
      TANDEM_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(request.body));
      TANDEM_ASSIGN_OR_RETURN(const ServedModel* model, launcher.model());
      return answer(body, *model);
    };
    const auto json = run();
    if (json.ok()) {
      to->Send({.body = DumpJson(*json)});
    } else {
      to->SendStatus(json.status());
    }
  };
}

}  // namespace

HttpResponse FormatLlamaCppFailure(const HttpFailure& failure) {
  const std::string param = ErrorParam(failure.status);
  const Json error = {{"code", failure.http_status},
                      {"message", ErrorMessage(failure.status)},
                      {"type", TypeOf(failure.http_status)},
                      {"param", param.empty() ? Json(nullptr) : Json(param)}};
  return {.status = failure.http_status, .body = DumpJson({{"error", error}})};
}

absl::Status AddTokenRoutes(HttpRouter& router, const Launcher& launcher) {
  for (const char* path : {"/tokenize", "/detokenize"}) {
    router.SetErrorFormat(path, FormatLlamaCppFailure);
  }
  TANDEM_RETURN_IF_ERROR(router.Add({"POST", "/tokenize", Handles(Tokenize, launcher)}));
  return router.Add({"POST", "/detokenize", Handles(Detokenize, launcher)});
}

}  // namespace tandem::gateway
