// Mutual TLS between hosts: each side shows a certificate and checks the other's.
#pragma once

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace tandem {

// PEM files.  They are looked at again every `refresh_seconds`: a certificate that is renewed in
// place is shown from the next connection on.
struct TlsFiles {
  std::string certificate;  // this service's, and those it is signed with, without the root
  std::string key;          // the certificate's
  std::string ca;           // roots that the peers' certificates must go back to
  // Of these a client's certificate must bear one as a subject alternative name (DNS, URI or IP
  // address, letter for letter); empty: whoever has a certificate of `ca` may come.
  std::vector<std::string> allow;
  unsigned refresh_seconds = 10;

  bool given() const { return !certificate.empty() || !key.empty() || !ca.empty(); }
};

// OK when none is given.  INVALID_ARGUMENT: some are, or names without files.  NOT_FOUND,
// FAILED_PRECONDITION: a file cannot be read, holds no certificate or another's key, or has
// expired; names the file and the flag.
absl::Status CheckTlsFiles(const TlsFiles& files);

// A server asks for a client's certificate and refuses without one.  A client checks that the
// server's is for the name or address it has called.  REQUIRES files that CheckTlsFiles took.
std::shared_ptr<grpc::ServerCredentials> MakeServerCredentials(const TlsFiles& files);
std::shared_ptr<grpc::ChannelCredentials> MakeChannelCredentials(const TlsFiles& files);

}  // namespace tandem
