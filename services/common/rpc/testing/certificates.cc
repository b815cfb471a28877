#include "services/common/rpc/testing/certificates.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <filesystem>
#include <functional>

#include "services/common/base/check.h"

namespace tandem::testing {
namespace {

using Key = std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)>;
using Certificate = std::unique_ptr<X509, void (*)(X509*)>;

Key MakeKey() { return {EVP_EC_gen("P-256"), &EVP_PKEY_free}; }

// Beside the file and then in its place, so that a reader never sees half of it.
void WritePem(const std::string& path, const std::function<int(std::FILE*)>& write) {
  const std::string beside = path + ".new";
  std::FILE* const file = std::fopen(beside.c_str(), "we");
  TANDEM_CHECK(file != nullptr && write(file) == 1 && std::fclose(file) == 0);
  std::filesystem::rename(beside, path);
}

Certificate MakeCertificate(const std::string& name, EVP_PKEY* key,
                            CertificateAuthority::Validity validity) {
  Certificate certificate(X509_new(), &X509_free);
  X509_set_version(certificate.get(), X509_VERSION_3);
  uint32_t serial = 0;
  TANDEM_CHECK(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial)) == 1);
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate.get()), serial);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), validity.from_seconds);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), validity.to_seconds);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  return certificate;
}

void AddExtension(X509* certificate, int kind, const std::string& value) {
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str());
  TANDEM_CHECK(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

}  // namespace

struct CertificateAuthority::Keys {
  Key key = MakeKey();
  Certificate certificate{nullptr, &X509_free};
};

CertificateAuthority::CertificateAuthority(const std::string& folder, const std::string& name)
    : folder_(folder), name_(name), keys_(std::make_unique<Keys>()) {
  keys_->certificate = MakeCertificate(name, keys_->key.get(), {});
  X509* const certificate = keys_->certificate.get();
  X509_set_issuer_name(certificate, X509_get_subject_name(certificate));
  AddExtension(certificate, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(certificate, NID_key_usage, "critical,keyCertSign,cRLSign");
  TANDEM_CHECK(X509_sign(certificate, keys_->key.get(), EVP_sha256()) > 0);
  WritePem(folder_ + "/" + name_ + ".pem",
           [&](std::FILE* file) { return PEM_write_X509(file, certificate); });
}

CertificateAuthority::~CertificateAuthority() = default;

TlsFiles CertificateAuthority::Issue(const std::string& name, const std::string& alternative_names,
                                     Validity validity) const {
  const Key key = MakeKey();
  const Certificate certificate = MakeCertificate(name, key.get(), validity);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(keys_->certificate.get()));
  if (!alternative_names.empty()) {
    AddExtension(certificate.get(), NID_subject_alt_name, alternative_names);
  }
  TANDEM_CHECK(X509_sign(certificate.get(), keys_->key.get(), EVP_sha256()) > 0);
  TlsFiles files{.certificate = folder_ + "/" + name + ".pem",
                 .key = folder_ + "/" + name + ".key",
                 .ca = folder_ + "/" + name_ + ".pem"};
  WritePem(files.key, [&](std::FILE* file) {
    return PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  WritePem(files.certificate,
           [&](std::FILE* file) { return PEM_write_X509(file, certificate.get()); });
  return files;
}

}  // namespace tandem::testing
