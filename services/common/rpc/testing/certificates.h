// Certificates for tests: an authority and what it signs, as PEM files in a folder.
#pragma once

#include <memory>
#include <string>

#include "services/common/rpc/tls.h"

namespace tandem::testing {

class CertificateAuthority {
 public:
  // Writes `name`.pem into `folder`.
  CertificateAuthority(const std::string& folder, const std::string& name);
  ~CertificateAuthority();

  struct Validity {
    long from_seconds = -3600;  // from now
    long to_seconds = 3600;
  };
  // Writes `name`.pem and `name`.key, over those of before: a certificate with subject alternative
  // names as openssl spells them, "DNS:b.example,IP:127.0.0.1".  Returns the files, this authority
  // as --tls-ca.
  TlsFiles Issue(const std::string& name, const std::string& alternative_names,
                 Validity validity = {-3600, 3600}) const;

 private:
  struct Keys;
  const std::string folder_;
  const std::string name_;
  const std::unique_ptr<Keys> keys_;
};

}  // namespace tandem::testing
