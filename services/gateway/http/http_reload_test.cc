// Keys and certificates that change while the server runs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "services/common/rpc/testing/certificates.h"
#include "services/common/testing/temporary_directory.h"
#include "services/gateway/http/testing/http_server_fixture.h"

namespace tandem::gateway {
namespace {

using tandem::testing::CertificateAuthority;
using ::testing::HasSubstr;
using testing::HttpServerFixture;
using testing::HttpTestClient;
using testing::HttpTestResponse;

constexpr char kOneHash[] =
    "sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed";
constexpr char kTwoHash[] =
    "sha256:3fc4ccfe745870e2c0d99f71f30ff0656c8dedd41cc1d7d3d376b0dbe685e2f3";
constexpr char kOne[] = "Authorization: Bearer one\r\n";
constexpr char kTwo[] = "Authorization: Bearer two\r\n";

class HttpReloadTest : public HttpServerFixture {
 protected:
  void WriteKeys(const std::string& text) const { std::ofstream(KeyFile()) << text; }
  std::string KeyFile() const { return temporary_.path() + "/keys"; }
  void StartWithKeys(const std::string& text, HttpServerOptions options = {}) {
    WriteKeys(text);
    auto keys = ApiKeys::Load(KeyFile());
    ASSERT_TRUE(keys.ok()) << keys.status();
    keys_ = *keys;
    options.keys = keys_;
    StartServer(options);
  }

  const TemporaryDirectory temporary_;
  std::shared_ptr<ApiKeys> keys_;
};

TEST_F(HttpReloadTest, KeysComeAndGoWhileConnectionsAndRequestsGoOn) {
  StartWithKeys(absl::StrFormat("first %s\n", kOneHash));
  HttpTestClient client = Connect();
  EXPECT_EQ(client.Call("POST", "/echo", "", kTwo).status, 401);
  EXPECT_EQ(client.Call("POST", "/echo", "", kOne).status, 200);
  HttpTestClient busy = Connect();
  busy.Request("POST", "/held", "", kOne);
  const auto held = TakeHeld();
  held->BeginStream({});
  held->Write("before ");
  WriteKeys(absl::StrFormat("second %s\n", kTwoHash));
  ASSERT_TRUE(server_->Reload());
  EXPECT_EQ(client.Call("POST", "/echo", "", kOne).status, 401) << "the connection is the same";
  EXPECT_EQ(client.Call("POST", "/echo", "", kTwo).status, 200);
  EXPECT_TRUE(held->Write("and after"));
  held->End();
  EXPECT_EQ(busy.Read().body, "before and after") << "it was let in under the key that is gone";
}

TEST_F(HttpReloadTest, AKeysGetsHaveABucketOfTheirOwnWhateverTheConnection) {
  HttpServerOptions options;
  options.gets_per_second = 2;
  StartWithKeys(absl::StrFormat("first %s requests=2\nsecond %s\n", kOneHash, kTwoHash), options);
  const auto get = [this](const char* path, const char* key) {
    return Connect().Call("GET", path, "", key);
  };
  int num_let_in = 0;
  HttpTestResponse last;
  for (last.status = 200; last.status == 200 && num_let_in < 1000; ++num_let_in) {
    last = get("/echo", kOne);
  }
  EXPECT_GT(num_let_in, 4) << "the requests of the key do not count them";
  EXPECT_EQ(last.status, 429);
  EXPECT_EQ(last.Header("retry-after"), "1");
  EXPECT_THAT(last.body, HasSubstr("--http-gets"));
  EXPECT_EQ(get("/echo", kTwo).status, 200) << "another key's bucket";
  EXPECT_EQ(get("/open", "").status, 200) << "health is free";
  EXPECT_EQ(Connect().Call("POST", "/echo", "", kOne).status, 200);
}

TEST_F(HttpReloadTest, AGetThatIsWorkCountsAgainstItsKey) {
  StartWithKeys(absl::StrFormat("first %s requests=2\n", kOneHash));
  for (const int status : {200, 200, 429}) {
    EXPECT_EQ(Connect().Call("GET", "/counts", "", kOne).status, status);
    EXPECT_EQ(Connect().Call("GET", "/echo", "", kOne).status, 200);
  }
}

TEST_F(HttpReloadTest, AKeyThatStaysKeepsWhatItHasUsedUnderItsNewNameAndLimits) {
  StartWithKeys(absl::StrFormat("first %s requests=5 concurrency=1\n", kOneHash));
  HttpTestClient client = Connect();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.Call("POST", "/echo", "", kOne).status, 200);
  HttpTestClient busy = Connect();
  busy.Request("POST", "/held", "", kOne);
  const auto held = TakeHeld();
  WriteKeys(
      absl::StrFormat("renamed %s requests=5 concurrency=2\nsecond %s\n", kOneHash, kTwoHash));
  ASSERT_TRUE(server_->Reload());
  HttpTestClient another = Connect();
  another.Request("POST", "/held", "", kOne);  // the fifth, and the second at a time
  const auto held_too = TakeHeld();
  const HttpTestResponse third = client.Call("POST", "/echo", "", kOne);
  EXPECT_EQ(third.status, 429);
  EXPECT_THAT(third.body, HasSubstr("'renamed': its limit of 2 sequences at a time"));
  held->Send({});
  held_too->Send({});
  EXPECT_EQ(busy.Read().status, 200);
  EXPECT_EQ(another.Read().status, 200);
  const HttpTestResponse sixth = client.Call("POST", "/echo", "", kOne);
  EXPECT_EQ(sixth.status, 429);
  EXPECT_THAT(sixth.body, HasSubstr("5 requests a minute"));
  // Without a limit there is nothing to wait for; one that is new begins full.
  WriteKeys(absl::StrFormat("first %s\n", kOneHash));
  ASSERT_TRUE(server_->Reload());
  EXPECT_EQ(client.Call("POST", "/charge?1000", "", kOne).status, 200);
  EXPECT_EQ(client.Call("POST", "/echo", "", kOne).status, 200);
  WriteKeys(absl::StrFormat("first %s tokens=10\n", kOneHash));
  ASSERT_TRUE(server_->Reload());
  EXPECT_EQ(client.Call("POST", "/charge?15", "", kOne).status, 200);
  EXPECT_EQ(client.Call("POST", "/echo", "", kOne).status, 429);
}

TEST_F(HttpReloadTest, AFileThatIsWrongChangesNothingAndIsNamedWithItsLine) {
  StartWithKeys(absl::StrFormat("first %s\n", kOneHash));
  HttpTestClient client = Connect();
  for (const auto& [text, reason] : std::vector<std::pair<std::string, std::string>>{
           {absl::StrFormat("second %s\n\nthird sha256:12\n", kTwoHash), "line 3: 64 hexadecimal"},
           {absl::StrFormat("second %s requests=-1\n", kTwoHash), "line 1: 'requests=-1'"},
           {absl::StrFormat("a %s\nb %s\n", kTwoHash, kTwoHash), "line 2: the name or the key of"},
           {"# nobody\n", "there is none"}}) {
    WriteKeys(text);
    EXPECT_FALSE(server_->Reload());
    const auto change = keys_->Reload();
    EXPECT_THAT(std::string(change.status().message()), HasSubstr(KeyFile()));
    EXPECT_THAT(std::string(change.status().message()), HasSubstr(reason));
    EXPECT_EQ(client.Call("POST", "/echo", "", kOne).status, 200);
    EXPECT_EQ(client.Call("POST", "/echo", "", kTwo).status, 401);
  }
  std::filesystem::remove(KeyFile());
  EXPECT_FALSE(server_->Reload());
  EXPECT_EQ(keys_->Reload().status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(client.Call("POST", "/echo", "", kOne).status, 200);
}

// A connection that was encrypted when it was made, and the certificate it was shown.
class TlsConnection {
 public:
  TlsConnection(uint16_t port, const std::string& authority) : socket_(port) {
    SSL_CTX* context = SSL_CTX_new(TLS_client_method());
    EXPECT_EQ(SSL_CTX_load_verify_locations(context, authority.c_str(), nullptr), 1);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
    tls_.reset(SSL_new(context));
    SSL_CTX_free(context);
    SSL_set_fd(tls_.get(), socket_.fd());
    EXPECT_EQ(SSL_connect(tls_.get()), 1);
  }
  std::string Certificate() const {
    X509* certificate = SSL_get1_peer_certificate(tls_.get());
    BIO* out = BIO_new(BIO_s_mem());
    PEM_write_bio_X509(out, certificate);
    char* bytes = nullptr;
    std::string pem(static_cast<size_t>(BIO_get_mem_data(out, &bytes)), '\0');
    pem.assign(bytes, pem.size());
    BIO_free(out);
    X509_free(certificate);
    return pem;
  }
  // Whether a request on it is answered.
  bool Answers() {
    const std::string request = "GET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n";
    if (SSL_write(tls_.get(), request.data(), static_cast<int>(request.size())) <= 0) return false;
    std::string answer;
    char bytes[4096];
    while (!answer.ends_with("GET /echo  ")) {
      const int got = SSL_read(tls_.get(), bytes, sizeof(bytes));
      if (got <= 0) return false;
      answer.append(bytes, static_cast<size_t>(got));
    }
    return answer.starts_with("HTTP/1.1 200 OK");
  }

 private:
  HttpTestClient socket_;
  std::unique_ptr<SSL, void (*)(SSL*)> tls_{nullptr, &SSL_free};
};

std::string Contents(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST_F(HttpReloadTest, ARenewedCertificateIsShownToNewConnectionsAndOldOnesGoOn) {
  const CertificateAuthority authority(temporary_.path(), "authority");
  const tandem::TlsFiles files = authority.Issue("server", "DNS:localhost,IP:127.0.0.1");
  const std::string first = Contents(files.certificate);
  StartServer({.tls_certificate = files.certificate, .tls_key = files.key});
  TlsConnection before(server_->port(), files.ca);
  EXPECT_EQ(before.Certificate(), first);
  authority.Issue("server", "DNS:localhost,IP:127.0.0.1");
  const std::string second = Contents(files.certificate);
  ASSERT_NE(first, second);
  ASSERT_TRUE(server_->Reload());
  EXPECT_TRUE(before.Answers());
  TlsConnection after(server_->port(), files.ca);
  EXPECT_EQ(after.Certificate(), second);
  // A certificate without its key, or no certificate at all: what there was goes on.
  std::ofstream(files.certificate) << first;
  EXPECT_FALSE(server_->Reload());
  std::ofstream(files.certificate) << "-----BEGIN CERTIFICATE-----\n";
  EXPECT_FALSE(server_->Reload());
  TlsConnection last(server_->port(), files.ca);
  EXPECT_EQ(last.Certificate(), second);
  EXPECT_TRUE(before.Answers());
  EXPECT_TRUE(last.Answers());
}

}  // namespace
}  // namespace tandem::gateway
