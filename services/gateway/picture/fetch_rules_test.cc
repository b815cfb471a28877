#include "services/gateway/picture/fetch_rules.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "services/common/testing/status_matchers.h"

namespace tandem::gateway {
namespace {

using tandem::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::Not;

FetchRules Rules(const std::vector<std::string>& hosts) {
  auto rules = FetchRules::Create(hosts);
  EXPECT_OK(rules.status());
  return *std::move(rules);
}

SocketAddress To(const std::string& address, uint16_t port) {
  return {.address = ParseIpAddress(address).value(), .port = port};
}

TEST(PublicAddressTest, SpecialAddressesAreNotPublic) {
  for (const char* special : {"0.0.0.0",
                              "0.1.2.3",
                              "10.0.0.1",
                              "10.255.255.255",
                              "100.64.0.1",
                              "100.127.255.255",
                              "127.0.0.1",
                              "127.255.0.1",
                              "169.254.169.254",
                              "172.16.0.1",
                              "172.31.255.255",
                              "192.0.0.8",
                              "192.0.2.1",
                              "192.88.99.1",
                              "192.168.0.1",
                              "198.18.0.1",
                              "198.19.255.255",
                              "198.51.100.1",
                              "203.0.113.1",
                              "224.0.0.1",
                              "239.255.255.255",
                              "240.0.0.1",
                              "255.255.255.255",
                              "::",
                              "::1",
                              "::ffff:8.8.8.8",
                              "::ffff:127.0.0.1",
                              "::8.8.8.8",
                              "64:ff9b::808:808",
                              "64:ff9b:1::1",
                              "100::1",
                              "2001::1",
                              "2001:10::1",
                              "2001:20::1",
                              "2001:db8::1",
                              "2002:808:808::1",
                              "3fff:1::1",
                              "5f00::1",
                              "fc00::1",
                              "fd12:3456::1",
                              "fe80::1",
                              "fec0::1",
                              "ff02::1"}) {
    EXPECT_FALSE(IsPublicAddress(ParseIpAddress(special).value())) << special;
  }
}

TEST(PublicAddressTest, AddressesBesideSpecialOnesArePublic) {
  for (const char* open :
       {"1.1.1.1",         "8.8.8.8",        "9.255.255.255",        "11.0.0.0",
        "100.63.255.255",  "100.128.0.0",    "126.255.255.255",      "128.0.0.1",
        "169.253.1.1",     "172.15.255.255", "172.32.0.1",           "192.0.1.1",
        "192.167.1.1",     "192.169.1.1",    "198.17.1.1",           "198.20.1.1",
        "223.255.255.255", "2001:200::1",    "2001:4860:4860::8888", "2003::1",
        "2606:4700::1111", "3ffe::1"}) {
    EXPECT_TRUE(IsPublicAddress(ParseIpAddress(open).value())) << open;
  }
}

TEST(PublicAddressTest, SocketAddressesAreReadWhole) {
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(443);
  v6.sin6_addr = in6addr_loopback;
  const auto* address = reinterpret_cast<const sockaddr*>(&v6);
  ASSERT_TRUE(ReadSocketAddress(address, sizeof(v6)).has_value());
  EXPECT_EQ(ReadSocketAddress(address, sizeof(v6))->address, ParseIpAddress("::1"));
  EXPECT_EQ(ReadSocketAddress(address, sizeof(v6))->port, 443);
  EXPECT_FALSE(ReadSocketAddress(address, sizeof(v6) - 1).has_value());
  v6.sin6_family = AF_UNIX;
  EXPECT_FALSE(ReadSocketAddress(address, sizeof(v6)).has_value());
}

TEST(FetchRulesTest, HostsOfTheFlagAreNamesAndAddresses) {
  for (const char* host : {"example.org", "EXAMPLE.org", "*.example.org", "example.org:8443",
                           "a_b-c.example", "localhost", "127.0.0.1", "127.0.0.1:9000", "[::1]",
                           "[2606:4700::1111]:8080", "*.example.org:8080", "1.example"}) {
    EXPECT_OK(ParseFetchHost(host).status()) << host;
  }
  for (const char* host : {"",
                           "*",
                           "*.",
                           "**.example.org",
                           "a.*.org",
                           "*example.org",
                           ".example.org",
                           "example.org.",
                           "a..b",
                           "https://example.org",
                           "example.org/a",
                           "user@example.org",
                           "example.org:",
                           "example.org:0",
                           "example.org:65536",
                           "example.org:80a",
                           "::1",
                           "[::1",
                           "[127.0.0.1]",
                           "[example.org]",
                           "127.1",
                           "2130706433",
                           "10.0.0.0/8",
                           "*.1",
                           "ex ample.org",
                           "m\xC3\xBCll.de"}) {
    EXPECT_THAT(ParseFetchHost(host).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("HOST:PORT is expected")))
        << host;
  }
}

TEST(FetchRulesTest, UrlsOfNamedHostsAreTakenInTheirNormalForm) {
  const FetchRules rules =
      Rules({"example.org", "*.pictures.example", "ports.example:8080", "127.0.0.1:9000", "[::1]"});
  const std::pair<const char*, const char*> urls[] = {
      {"https://example.org/a.png", "https://example.org/a.png"},
      {"HTTPS://Example.ORG/A.png?b=C#d", "https://Example.ORG/A.png?b=C"},
      {"http://example.org", "http://example.org/"},
      {"http://example.org:80/a", "http://example.org:80/a"},
      {"https://example.org:443/a", "https://example.org:443/a"},
      {"https://a.b.pictures.example/", "https://a.b.pictures.example/"},
      {"http://ports.example:8080/", "http://ports.example:8080/"},
      {"https://ports.example:8080/", "https://ports.example:8080/"},
      {"http://127.0.0.1:9000/a", "http://127.0.0.1:9000/a"},
      {"http://0x7f.1:9000/a", "http://127.0.0.1:9000/a"},
      {"http://[::1]/a", "http://[::1]/a"},
      {"http://[0:0:0:0:0:0:0:1]/a", "http://[::1]/a"}};
  for (const auto& [url, normal] : urls) {
    const auto checked = rules.Check(url);
    ASSERT_OK(checked.status()) << url;
    EXPECT_EQ(checked->url, normal);
  }
}

TEST(FetchRulesTest, OtherUrlsAreRefusedWithTheReason) {
  const FetchRules rules = Rules({"example.org", "*.pictures.example", "127.0.0.1:9000"});
  const std::pair<std::string, const char*> urls[] = {
      {"https://evil.example/a.png?secret", "no pictures from evil.example: --fetch-images"},
      {"https://evil.example:444/", "from evil.example:444: "},
      {"https://example.org.evil.example/", "--fetch-images"},
      {"https://evilexample.org/", "--fetch-images"},
      {"https://www.example.org/", "--fetch-images"},
      {"https://pictures.example/", "--fetch-images"},
      {"https://evilpictures.example/", "--fetch-images"},
      {"https://example.org./", "neither a name nor an address"},
      {"https://example.org:8443/", "--fetch-images"},
      {"http://example.org:443/", "--fetch-images"},
      {"http://127.0.0.1/", "--fetch-images"},
      {"http://127.0.0.2:9000/", "--fetch-images"},
      {"http://[::1]:9000/", "--fetch-images"},
      {"http://[::ffff:127.0.0.1]:9000/", "--fetch-images"},
      {"http://[fe80::1%25eth0]/", "neither a name nor an address"},
      {"https://user@example.org/", "user or a password"},
      {"https://user:word@example.org/", "user or a password"},
      {"https://evil.example@example.org/", "user or a password"},
      {"https://example.org@evil.example/", "user or a password"},
      {"https://example.org\\@evil.example/", "%NN"},
      {"https://example.org/\r\nHost: evil.example", "%NN"},
      {"https://example.org/\xC3\xA4", "%NN"},
      {"ftp://example.org/a", "neither http nor https"},
      {"file:///etc/passwd", "neither http nor https"},
      {"gopher://example.org/", "neither http nor https"},
      {"dict://example.org:80/", "neither http nor https"},
      {"example.org/a.png", "malformed"},
      {"https://", "malformed"},
      {"", "malformed"},
      {"https://example.org:0/", "--fetch-images"},
      {"https://example.org:99999/", "malformed"},
      {"https://example.org/" + std::string(9000, 'a'), "9020 bytes"}};
  for (const auto& [url, why] : urls) {
    EXPECT_THAT(rules.Check(url).status(),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)))
        << url;
  }
  EXPECT_THAT(std::string(rules.Check(urls[0].first).status().message()), Not(HasSubstr("secret")));
}

TEST(FetchRulesTest, ConnectionsLeadToPublicAddressesAndToThoseThatAreNamed) {
  const FetchRules rules = Rules({"example.org", "127.0.0.1:9000", "10.0.0.5", "[fd00::1]:8080"});
  EXPECT_TRUE(rules.MayConnect(To("8.8.8.8", 443)));
  EXPECT_TRUE(rules.MayConnect(To("127.0.0.1", 9000)));
  EXPECT_TRUE(rules.MayConnect(To("10.0.0.5", 80)));
  EXPECT_TRUE(rules.MayConnect(To("10.0.0.5", 443)));
  EXPECT_TRUE(rules.MayConnect(To("fd00::1", 8080)));
  EXPECT_FALSE(rules.MayConnect(To("127.0.0.1", 9001)));
  EXPECT_FALSE(rules.MayConnect(To("127.0.0.1", 80)));
  EXPECT_FALSE(rules.MayConnect(To("127.0.0.2", 9000)));
  EXPECT_FALSE(rules.MayConnect(To("10.0.0.5", 8080)));
  EXPECT_FALSE(rules.MayConnect(To("::ffff:10.0.0.5", 80)));
  EXPECT_FALSE(rules.MayConnect(To("fd00::1", 443)));
  EXPECT_FALSE(rules.MayConnect(To("169.254.169.254", 80)));
}

}  // namespace
}  // namespace tandem::gateway
