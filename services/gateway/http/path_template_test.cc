// Path templates against google/api/http.proto, case by case.
#include "services/gateway/http/path_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tandem::gateway {
namespace {

using Bindings = PathTemplate::Bindings;

TEST(PathTemplateTest, RefusesWhatTheGrammarDoesNotHave) {
  for (const char* bad :
       {"",         "v1",           "v1/a",     "//",        "/v1/",     "/v1//a",      "/v1/{",
        "/v1/{}",   "/v1/{a",       "/v1/{a=}", "/v1/{=*}",  "/v1/{a=*", "/v1/{a={b}}", "/v1/{a.}",
        "/v1/{.a}", "/v1/{a..b}",   "/v1/{1a}", "/v1/{a-b}", "/v1/***",  "/v1/*a",      "/v1/a*",
        "/v1/**/a", "/v1/{a=**}/b", "/**/**",   "/v1/{a}b",  "/v1/a{b}", "/v1/{a}/{a}", "/v1:",
        "/v1:a:b",  "/v1:a/b",      "/v1/a?b",  "/v1/a b",   "/v1/%41",  "/v1/{a=/b}"}) {
    const auto parsed = PathTemplate::Parse(bad);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_NE(parsed.status().message().find("at "), std::string::npos) << parsed.status();
  }
}

struct MatchCase {
  const char* path_template;
  const char* path;
  std::optional<Bindings> expected;  // nullopt: no match
};

const MatchCase kMatches[] = {
    // Literals.
    {"/", "/", Bindings{}},
    {"/", "/a", std::nullopt},
    {"/v1/models", "/v1/models", Bindings{}},
    {"/v1/models", "/v1/models/", std::nullopt},
    {"/v1/models", "/v1", std::nullopt},
    {"/v1/models", "/v1/Models", std::nullopt},
    {"/v1/models", "/v1/mod%65ls", Bindings{}},
    {"/v1/models", "//v1/models", std::nullopt},
    {"/.well-known/x_y~z", "/.well-known/x_y~z", Bindings{}},
    // One segment.
    {"/v1/*", "/v1/a", Bindings{}},
    {"/v1/*", "/v1/", std::nullopt},
    {"/v1/*", "/v1/a/b", std::nullopt},
    {"/*/b", "/a/b", Bindings{}},
    {"/*/b", "/a/c", std::nullopt},
    {"/v1/{name}", "/v1/a", Bindings{{"name", "a"}}},
    {"/v1/{name=*}", "/v1/a", Bindings{{"name", "a"}}},
    {"/v1/{name}", "/v1/", std::nullopt},
    {"/v1/{name}", "/v1/a/b", std::nullopt},
    {"/v1/{name}", "/v1/a%2Fb", Bindings{{"name", "a/b"}}},
    {"/v1/{name}", "/v1/a%20b+c", Bindings{{"name", "a b+c"}}},
    {"/v1/{name}", "/v1/%E2%82%AC", Bindings{{"name", "\xE2\x82\xAC"}}},
    {"/v1/{name}", "/v1/..", Bindings{{"name", ".."}}},
    {"/v1/{name}", "/v1/a:b", Bindings{{"name", "a:b"}}},
    {"/v1/{a}/x/{b}", "/v1/1/x/2", Bindings{{"a", "1"}, {"b", "2"}}},
    {"/v1/{a}/{b}", "/v1/1/2", Bindings{{"a", "1"}, {"b", "2"}}},
    {"/v1/{a.b.c}", "/v1/1", Bindings{{"a.b.c", "1"}}},
    // The rest.
    {"/v1/**", "/v1", Bindings{}},
    {"/v1/**", "/v1/", Bindings{}},
    {"/v1/**", "/v1/a/b/c", Bindings{}},
    {"/v1/**", "/v2/a", std::nullopt},
    {"/**", "/", Bindings{}},
    {"/**", "/a/b", Bindings{}},
    {"/v1/{name=**}", "/v1", Bindings{{"name", ""}}},
    {"/v1/{name=**}", "/v1/", Bindings{{"name", ""}}},
    {"/v1/{name=**}", "/v1/a", Bindings{{"name", "a"}}},
    {"/v1/{name=**}", "/v1/a/b", Bindings{{"name", "a/b"}}},
    {"/v1/{name=**}", "/v1/a/b/", Bindings{{"name", "a/b/"}}},
    {"/v1/{name=**}", "/v1/a%2Fb/c", Bindings{{"name", "a%2Fb/c"}}},
    {"/v1/{name=**}", "/v1/a%2fb%20c", Bindings{{"name", "a%2fb c"}}},
    // Several segments in a variable.
    {"/v1/{name=shelves/*}", "/v1/shelves/1", Bindings{{"name", "shelves/1"}}},
    {"/v1/{name=shelves/*}", "/v1/shelves", std::nullopt},
    {"/v1/{name=shelves/*}", "/v1/books/1", std::nullopt},
    {"/v1/{name=shelves/*/books/*}", "/v1/shelves/1/books/2",
     Bindings{{"name", "shelves/1/books/2"}}},
    {"/v1/{name=shelves/*}/books/{id}", "/v1/shelves/1/books/2",
     Bindings{{"name", "shelves/1"}, {"id", "2"}}},
    {"/v1/{name=shelves/**}", "/v1/shelves/1/2", Bindings{{"name", "shelves/1/2"}}},
    {"/v1/{name=shelves/**}", "/v1/shelves", Bindings{{"name", "shelves"}}},
    {"/v1/{name=shelves/*}", "/v1/shelves/a%2Fb", Bindings{{"name", "shelves/a%2Fb"}}},
    {"/v1/{name=models}", "/v1/models", Bindings{{"name", "models"}}},
    {"/v1/{name=mod}", "/v1/m%6Fd", Bindings{{"name", "mod"}}},
    // Verbs.
    {"/v1/models:list", "/v1/models:list", Bindings{}},
    {"/v1/models:list", "/v1/models", std::nullopt},
    {"/v1/models:list", "/v1/models:other", std::nullopt},
    {"/v1/models", "/v1/models:list", std::nullopt},
    {"/v1/*:go", "/v1/a:go", Bindings{}},
    {"/v1/*:go", "/v1/:go", std::nullopt},
    {"/v1/{name}:go", "/v1/a:go", Bindings{{"name", "a"}}},
    {"/v1/{name}:go", "/v1/a:b:go", Bindings{{"name", "a:b"}}},
    {"/v1/{name}:go", "/v1/a:g%6F", Bindings{{"name", "a"}}},
    {"/v1/{name}:go", "/v1/a%3Ago", std::nullopt},
    {"/v1/{name=**}:go", "/v1/a/b:go", Bindings{{"name", "a/b"}}},
    {"/v1/{name=**}:go", "/v1/a:go/b", std::nullopt},
    {"/v1/{name=**}:go", "/v1/:go", Bindings{{"name", ""}}},
    {"/v1/{name=**}:go", "/v1:go", Bindings{{"name", ""}}},
    {"/v1/{name=a/*}:go", "/v1/a/x:go", Bindings{{"name", "a/x"}}},
};

TEST(PathTemplateTest, MatchesAsTheSpecificationSays) {
  for (const MatchCase& c : kMatches) {
    const auto parsed = PathTemplate::Parse(c.path_template);
    ASSERT_TRUE(parsed.ok()) << c.path_template << ": " << parsed.status();
    ASSERT_TRUE(IsValidPath(c.path));
    EXPECT_EQ(parsed->Match(c.path), c.expected) << c.path_template << " with " << c.path;
  }
}

TEST(PathTemplateTest, PathsAreValidWhenEveryEscapeIs) {
  for (const char* good : {"/", "/a", "/%41%2f", "/a%20"}) EXPECT_TRUE(IsValidPath(good)) << good;
  for (const char* bad : {"", "a", "*", "/%", "/%4", "/%4g", "/a%%41"}) {
    EXPECT_FALSE(IsValidPath(bad)) << bad;
  }
  EXPECT_EQ(PercentDecode("%41%zz%2F%"), "A%zz/%");
  EXPECT_EQ(PercentDecode("%41%2F%2f", /*keep_slash=*/true), "A%2F%2f");
}

TEST(PathTemplateTest, TheMoreSpecificComesFirst) {
  const std::vector<const char*> order = {"/a/b:go",  "/a/b",  "/a/c", "/a/*:go", "/a/*",
                                          "/a/**:go", "/a/**", "/*/b", "/*/*",    "/**"};
  std::vector<PathTemplate> sorted;
  for (const char* text : order) sorted.push_back(*PathTemplate::Parse(text));
  std::mt19937 random(1);
  for (int round = 0; round < 20; ++round) {
    std::shuffle(sorted.begin(), sorted.end(), random);
    std::sort(sorted.begin(), sorted.end());
    for (size_t i = 0; i < order.size(); ++i) EXPECT_EQ(sorted[i].Shape(), order[i]);
  }
  EXPECT_EQ(*PathTemplate::Parse("/a/{x}"), *PathTemplate::Parse("/a/{y=*}"));
  EXPECT_EQ(PathTemplate::Parse("/v1/{m=models/*}/x/{r=**}:go")->Shape(), "/v1/models/*/x/**:go");
}

}  // namespace
}  // namespace tandem::gateway
