#include "services/common/pull/hub.h"

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "services/common/base/status_macros.h"

namespace tandem::pull {
namespace {

constexpr int kMaxHops = 5;
constexpr size_t kMaxListBytes = 16 << 20;

bool IsHex(const std::string& text, size_t size) {
  return text.size() == size && text.find_first_not_of("0123456789abcdef") == text.npos;
}

// An entity tag without W/ and quotes.
std::string BareTag(std::string tag) {
  if (tag.starts_with("W/")) tag.erase(0, 2);
  if (tag.size() >= 2 && tag.front() == '"' && tag.back() == '"')
    tag = tag.substr(1, tag.size() - 2);
  return tag;
}

bool IsRedirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

}  // namespace

std::string EndpointFromEnvironment() {
  const char* endpoint = std::getenv("HF_ENDPOINT");
  return endpoint != nullptr && *endpoint != '\0' ? endpoint : "https://huggingface.co";
}

absl::StatusOr<Hub> Hub::Create(HubOptions options) {
  while (options.endpoint.ends_with('/')) options.endpoint.pop_back();
  TANDEM_ASSIGN_OR_RETURN(options.http.token_origin, OriginOf(options.endpoint));
  if (!options.http.token.empty() && options.http.token_origin.starts_with("http:") &&
      !IsLoopbackUrl(options.endpoint)) {
    return absl::FailedPreconditionError(
        absl::StrFormat("a token would go to %s unencrypted: use an https address, or no token",
                        PrintableUrl(options.endpoint)));
  }
  return Hub(std::move(options));
}

absl::StatusOr<HttpReply> Hub::AskPatiently(const char* method, const std::string& url,
                                            size_t max_body_bytes) const {
  absl::Duration backoff = options_.first_backoff;
  for (int attempt = 1;; ++attempt) {
    auto reply = Ask(method, url, options_.http, max_body_bytes);
    const bool busy = reply.ok() && (reply->status == 429 || reply->status >= 500);
    const bool lost = !reply.ok() && absl::IsUnavailable(reply.status());
    if (!busy && !lost) return reply;
    absl::Duration wait = backoff;
    if (busy && reply->retry_after_seconds.has_value()) {
      wait = absl::Seconds(*reply->retry_after_seconds);
    }
    if (attempt >= options_.max_attempts || wait > options_.longest_wait) {
      if (lost) return reply.status();
      return absl::UnavailableError(
          absl::StrFormat("%s answers %d%s", PrintableUrl(url), reply->status,
                          wait > options_.longest_wait
                              ? absl::StrFormat(" and asks to wait %s", absl::FormatDuration(wait))
                              : ""));
    }
    for (const absl::Time end = absl::Now() + wait; absl::Now() < end;) {
      if (options_.http.keep_going != nullptr && !options_.http.keep_going()) {
        return absl::CancelledError("stopped");
      }
      absl::SleepFor(std::min(absl::Milliseconds(100), end - absl::Now()));
    }
    backoff = std::min(backoff * 2, absl::Seconds(30));
  }
}

absl::Status Hub::Explain(const HttpReply& reply, const HubFile& file) const {
  const std::string page = options_.endpoint + "/" + file.repository();
  const std::string code = reply.headers.Get("x-error-code");
  const bool has_token = !options_.http.token.empty();
  const auto origin = OriginOf(reply.url);
  const bool from_hub = origin.ok() && *origin == options_.http.token_origin;
  if (code == "GatedRepo" || (reply.status == 403 && code.empty() && from_hub)) {
    return absl::PermissionDeniedError(absl::StrFormat(
        "%s is behind a licence: sign in and accept it at %s, %s", file.repository(), page,
        has_token
            ? "with the account that the token belongs to (a fine-grained token must also be "
              "allowed to read gated repositories)"
            : absl::StrFormat("make a token at %s/settings/tokens, and give it by HF_TOKEN or "
                              "--token-file",
                              options_.endpoint)));
  }
  if (reply.status == 401 || code == "RepoNotFound") {
    return absl::UnauthenticatedError(
        absl::StrFormat("%s: there is no such repository, or it is private or gated; %s", page,
                        has_token ? "the token given does not open it"
                                  : "if it is, give a token by HF_TOKEN or --token-file"));
  }
  if (reply.status == 404) {
    return absl::NotFoundError(
        file.file.empty()
            ? absl::StrFormat("%s has no revision '%s'", page, file.revision)
            : absl::StrFormat("%s has no file '%s' at '%s'", page, file.file, file.revision));
  }
  return absl::UnavailableError(
      absl::StrFormat("%s answers %d", PrintableUrl(reply.url), reply.status));
}

absl::StatusOr<RemoteFile> Hub::Resolve(const HubFile& file) const {
  const std::string base = options_.endpoint + "/" + file.repository() + "/resolve/";
  std::string url = base + file.revision + "/" + file.file;
  RemoteFile remote;
  std::optional<uint64_t> size;
  for (int hop = 0;; ++hop) {
    if (hop > kMaxHops) {
      return absl::UnavailableError(
          absl::StrFormat("%s redirects over and over", PrintableUrl(url)));
    }
    TANDEM_ASSIGN_OR_RETURN(const HttpReply reply, AskPatiently("HEAD", url, 0));
    const bool redirect = IsRedirect(reply.status);
    if (!redirect && reply.status != 200) return Explain(reply, file);
    if (remote.commit.empty()) remote.commit = reply.headers.Get("x-repo-commit");
    if (remote.etag.empty()) remote.etag = BareTag(reply.headers.Get("x-linked-etag"));
    if (!size.has_value()) size = reply.headers.Number("x-linked-size");
    if (!redirect) {
      if (remote.etag.empty()) remote.etag = BareTag(reply.headers.Get("etag"));
      if (!size.has_value()) size = reply.headers.Number("content-length");
      remote.url = url;
      break;
    }
    TANDEM_ASSIGN_OR_RETURN(const std::string target,
                            FollowRedirect(url, reply.headers.Get("location")));
    TANDEM_ASSIGN_OR_RETURN(const std::string origin, OriginOf(target));
    // Another host's address is for a GET; it may be signed for nothing else.
    if (origin != options_.http.token_origin && size.has_value()) {
      remote.url = target;
      break;
    }
    url = target;
  }
  if (!IsHex(remote.commit, 40)) remote.commit.clear();
  if (IsHex(remote.etag, 64)) remote.sha256 = remote.etag;
  if (!size.has_value() || *size == 0) {
    return absl::DataLossError(
        absl::StrFormat("%s does not say how large the file is", PrintableUrl(url)));
  }
  remote.size = *size;
  return remote;
}

absl::StatusOr<std::vector<ListedFile>> Hub::List(const HubFile& file) const {
  const std::string url = options_.endpoint + "/api/models/" + file.repository() + "/tree/" +
                          file.revision + "?recursive=true";
  TANDEM_ASSIGN_OR_RETURN(const HttpReply reply, AskPatiently("GET", url, kMaxListBytes));
  if (reply.status != 200) {
    HubFile repository = file;
    repository.file.clear();
    return Explain(reply, repository);
  }
  const auto json = nlohmann::json::parse(reply.body, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) {
    return absl::DataLossError(
        absl::StrFormat("%s answers with no list of files", PrintableUrl(url)));
  }
  std::vector<ListedFile> files;
  for (const auto& one : json) {
    const auto path = one.is_object() ? one.find("path") : one.end();
    if (!one.is_object() || path == one.end() || !path->is_string()) continue;
    ListedFile listed{.path = path->get<std::string>()};
    const bool wanted = IsModelFile(listed.path) || IsEncoderFile(listed.path);
    if (!wanted || !CheckFile(listed.path).ok()) continue;
    if (const auto size = one.find("size"); size != one.end() && size->is_number_unsigned()) {
      listed.size = size->get<uint64_t>();
    }
    if (const auto lfs = one.find("lfs"); lfs != one.end() && lfs->is_object()) {
      const auto oid = lfs->find("oid");
      if (oid != lfs->end() && oid->is_string() && IsHex(oid->get<std::string>(), 64)) {
        listed.sha256 = oid->get<std::string>();
      }
    }
    files.push_back(std::move(listed));
  }
  return files;
}

absl::StatusOr<HubFile> Hub::Choose(const HubFile& file) const {
  HubFile chosen = file;
  if (file.file.ends_with(".gguf")) return chosen;
  TANDEM_ASSIGN_OR_RETURN(const std::vector<ListedFile> listed, List(file));
  std::vector<std::string> paths;
  for (const ListedFile& one : listed) {
    if (IsModelFile(one.path)) paths.push_back(one.path);
  }
  TANDEM_ASSIGN_OR_RETURN(chosen.file, ChooseFile(paths, file.file, file.repository()));
  return chosen;
}

absl::StatusOr<std::string> ChooseFile(const std::vector<std::string>& files,
                                       const std::string& wanted, const std::string& repository) {
  if (files.empty()) {
    return absl::NotFoundError(
        absl::StrFormat("%s has no GGUF file that is a whole model", repository));
  }
  const auto with = [&files](const std::string& part) {
    std::vector<std::string> found;
    const std::string small = absl::AsciiStrToLower(part);
    for (const std::string& file : files) {
      const std::string name = absl::AsciiStrToLower(file);
      if (name.ends_with("-" + small + ".gguf") || name.ends_with("." + small + ".gguf")) {
        found.push_back(file);
      }
    }
    return found;
  };
  const std::string all = absl::StrJoin(files, ", ");
  if (!wanted.empty()) {
    const auto found = with(wanted);
    if (found.size() == 1) return found[0];
    return absl::NotFoundError(
        found.empty() ? absl::StrFormat("%s has no file '%s'; it has %s", repository, wanted, all)
                      : absl::StrFormat("%s has several files '%s': %s", repository, wanted,
                                        absl::StrJoin(found, ", ")));
  }
  if (files.size() == 1) return files[0];
  // Q4_0 is the best choice where the weights were trained for it.  Elsewhere it comes last: files made
  // with an importance matrix have tensors of Q4_1 under that name, which the loader does not read.
  const auto is_qat = [&repository](const std::string& file) {
    return absl::AsciiStrToLower(repository + "/" + file).find("qat") != std::string::npos;
  };
  auto trained = with("Q4_0");
  std::erase_if(trained, [&is_qat](const std::string& file) { return !is_qat(file); });
  if (trained.size() == 1) return trained[0];
  for (const char* type : {"Q4_K_M", "Q8_0", "Q4_0"}) {
    if (const auto found = with(type); found.size() == 1) return found[0];
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s has several files: name one as hf:%s:FILE; it has %s", repository, repository, all));
}

}  // namespace tandem::pull
