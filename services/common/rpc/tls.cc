#include "services/common/rpc/tls.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "services/common/base/logging.h"
#include "services/common/base/status_macros.h"

namespace tandem {
namespace {

namespace tls = grpc::experimental;

using File = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;
using Certificate = std::unique_ptr<X509, void (*)(X509*)>;
using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;

absl::StatusOr<File> Open(const char* flag, const std::string& path) {
  File file(std::fopen(path.c_str(), "re"), &std::fclose);
  if (file != nullptr) return file;
  return absl::NotFoundError(absl::StrFormat("%s %s: %s", flag, path, std::strerror(errno)));
}

absl::Status Bad(const char* flag, const std::string& path, const char* what) {
  ERR_clear_error();
  return absl::FailedPreconditionError(absl::StrFormat("%s %s: %s", flag, path, what));
}

std::string DateOf(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return "a date that cannot be read";
  return absl::StrFormat("%04d-%02d-%02d %02d:%02d UTC", parts.tm_year + 1900, parts.tm_mon + 1,
                         parts.tm_mday, parts.tm_hour, parts.tm_min);
}

// The first certificate of a file, in its time.
absl::StatusOr<Certificate> ReadCertificate(const char* flag, const std::string& path) {
  TANDEM_ASSIGN_OR_RETURN(const File file, Open(flag, path));
  Certificate certificate(PEM_read_X509(file.get(), nullptr, nullptr, nullptr), &X509_free);
  if (certificate == nullptr) return Bad(flag, path, "holds no certificate in PEM form");
  const ASN1_TIME* const end = X509_get0_notAfter(certificate.get());
  if (X509_cmp_current_time(end) < 0) {
    return Bad(flag, path, ("the certificate expired on " + DateOf(end)).c_str());
  }
  const ASN1_TIME* const begin = X509_get0_notBefore(certificate.get());
  if (X509_cmp_current_time(begin) > 0) {
    return Bad(flag, path,
               ("the certificate begins on " + DateOf(begin) + "; is the clock right?").c_str());
  }
  return certificate;
}

bool Bears(const std::vector<grpc::string_ref>& names, const std::string& name) {
  return std::any_of(names.begin(), names.end(), [&name](const grpc::string_ref& have) {
    return std::string_view(have.data(), have.size()) == name;
  });
}

// Lets clients in by the names in their certificates, whose signatures have been checked before.
class AllowedNames final : public tls::ExternalCertificateVerifier {
 public:
  explicit AllowedNames(std::vector<std::string> names) : names_(std::move(names)) {}

  bool Verify(tls::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*callback*/, grpc::Status* status) override {
    const auto dns = request->dns_names();
    const auto uris = request->uri_names();
    const auto addresses = request->ip_names();
    for (const std::string& name : names_) {
      if (Bears(dns, name) || Bears(uris, name) || Bears(addresses, name)) return true;
    }
    std::vector<std::string> borne;
    for (const auto* names : {&dns, &uris, &addresses}) {
      for (const grpc::string_ref& name : *names) borne.emplace_back(name.data(), name.size());
    }
    const std::string reason = absl::StrFormat(
        "the certificate is for %s, allowed are %s",
        borne.empty() ? "no name" : absl::StrJoin(borne, ", "), absl::StrJoin(names_, ", "));
    LogWarning("client refused", {{"reason", reason}, {"flag", "--tls-allow"}});
    *status = {grpc::StatusCode::UNAUTHENTICATED, reason};
    return true;
  }
  void Cancel(tls::TlsCustomVerificationCheckRequest* /*request*/) override {}

 private:
  const std::vector<std::string> names_;
};

std::shared_ptr<tls::CertificateProviderInterface> Watch(const TlsFiles& files) {
  return std::make_shared<tls::FileWatcherCertificateProvider>(files.key, files.certificate,
                                                               files.ca, files.refresh_seconds);
}

}  // namespace

absl::Status CheckTlsFiles(const TlsFiles& files) {
  const std::pair<const char*, const std::string*> flags[] = {
      {"--tls-cert", &files.certificate}, {"--tls-key", &files.key}, {"--tls-ca", &files.ca}};
  if (!files.given()) {
    if (files.allow.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError("--tls-allow needs --tls-cert, --tls-key and --tls-ca");
  }
  for (const auto& [flag, path] : flags) {
    if (!path->empty()) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is missing: --tls-cert, --tls-key and --tls-ca go together", flag));
  }
  TANDEM_ASSIGN_OR_RETURN(const Certificate certificate,
                          ReadCertificate("--tls-cert", files.certificate));
  TANDEM_RETURN_IF_ERROR(ReadCertificate("--tls-ca", files.ca).status());
  TANDEM_ASSIGN_OR_RETURN(const File file, Open("--tls-key", files.key));
  // An empty password, so that nobody is asked for one.
  const Key key(PEM_read_PrivateKey(file.get(), nullptr, nullptr, const_cast<char*>("")),
                &EVP_PKEY_free);
  if (key == nullptr)
    return Bad("--tls-key", files.key, "holds no key in PEM form without password");
  if (X509_check_private_key(certificate.get(), key.get()) != 1) {
    return Bad("--tls-key", files.key, "is not the key of the certificate in --tls-cert");
  }
  return absl::OkStatus();
}

std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const TlsFiles& files) {
  tls::TlsServerCredentialsOptions options(Watch(files));
  options.watch_identity_key_cert_pairs();
  options.watch_root_certs();
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  if (files.allow.empty()) {
    options.set_certificate_verifier(std::make_shared<tls::NoOpCertificateVerifier>());
  } else {
    options.set_certificate_verifier(
        tls::ExternalCertificateVerifier::Create<AllowedNames>(files.allow));
  }
  return tls::TlsServerCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(const TlsFiles& files) {
  tls::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(Watch(files));
  options.watch_identity_key_cert_pairs();
  options.watch_root_certs();
  options.set_certificate_verifier(std::make_shared<tls::HostNameCertificateVerifier>());
  return tls::TlsCredentials(options);
}

}  // namespace tandem
