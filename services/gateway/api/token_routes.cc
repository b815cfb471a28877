#include "services/gateway/api/token_routes.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/common/base/client_text.h"
#include "services/common/base/status_macros.h"
#include "services/common/base/utf8.h"
#include "services/gateway/api/api_error.h"
#include "services/gateway/api/json.h"
#include "services/gateway/api/json_fields.h"
#include "services/gateway/api/token_json.h"
#include "services/gateway/model/text_tokens.h"

namespace tandem::gateway {
namespace {

using Answer = absl::StatusOr<std::string> (*)(const Json& body, const ServedModel& model);

// The piece as a text if it is UTF-8, else its bytes as numbers.
void AppendPiece(uint32_t id, const Tokenizer& tokenizer, std::string& out) {
  const std::string_view bytes = tokenizer.TokenBytes(id);
  if (!FindInvalidUtf8(bytes).has_value()) {
    out += DumpJson(TokenText(id, tokenizer));
    return;
  }
  const char* before = "[";
  for (const char byte : bytes) {
    absl::StrAppend(&out, before, static_cast<unsigned char>(byte));
    before = ",";
  }
  out += ']';
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

absl::StatusOr<std::string> Tokenize(const Json& body, const ServedModel& model) {
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
  TANDEM_ASSIGN_OR_RETURN(const std::vector<uint32_t> ids,
                          TokensOf(content.has_value() ? *content : *prompt, add_special, model));
  // Appended as text: a JSON tree of it would take ten times the memory.
  std::string out;
  absl::StrAppend(&out, R"({"count":)", ids.size(), R"(,"max_model_len":)",
                  model.info().context_len(), R"(,"tokens":[)");
  const char* before = "";
  for (const uint32_t id : ids) {
    absl::StrAppend(&out, before);
    if (with_pieces) {
      absl::StrAppend(&out, R"({"id":)", id, R"(,"piece":)");
      AppendPiece(id, model.tokenizer(), out);
      out += '}';
    } else {
      absl::StrAppend(&out, id);
    }
    before = ",";
  }
  return out + "]}";
}

absl::StatusOr<std::string> Detokenize(const Json& body, const ServedModel& model) {
  absl::Status error;
  JsonFields fields(body, error);
  const Json* tokens = fields.Array("tokens");
  const std::string name = fields.String("model").value_or("");
  if (tokens == nullptr) fields.Missing("tokens");
  if (!error.ok()) return error;
  TANDEM_RETURN_IF_ERROR(model.CheckName(name));
  TANDEM_RETURN_IF_ERROR(CheckNumTokens(tokens->size(), model));
  std::vector<uint32_t> ids;
  ids.reserve(tokens->size());
  for (const Json& token : *tokens) {
    const uint32_t vocab_size = model.config().vocab_size;
    if (!token.is_number_unsigned() || token.get<uint64_t>() >= vocab_size) {
      return absl::InvalidArgumentError(
          absl::StrFormat("tokens[%d]: %s is no token of a vocabulary of %d", ids.size(),
                          ClientText(DumpJson(token), 40), vocab_size));
    }
    ids.push_back(token.get<uint32_t>());
  }
  const std::string text = DumpJson(model.tokenizer().Decode(ids));
  return absl::StrCat(R"({"content":)", text, R"(,"prompt":)", text, "}");
}

HttpHandler Handles(Answer answer, const Launcher& launcher) {
  return [answer, &launcher](const HttpRequest& request,
                             const std::shared_ptr<HttpResponder>& responder) {
    const auto run = [&]() -> absl::StatusOr<std::string> {
      TANDEM_ASSIGN_OR_RETURN(const Json body, ParseJsonObject(request.body));
      TANDEM_ASSIGN_OR_RETURN(const ServedModel* model, launcher.model());
      return answer(body, *model);
    };
    auto json = run();
    if (json.ok()) {
      responder->Send({.body = *std::move(json)});
    } else {
      responder->SendStatus(json.status());
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
