#include "services/common/pull/hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "absl/time/clock.h"
#include "services/common/pull/model_table.h"
#include "services/common/pull/testing/fake_hub.h"
#include "services/common/pull/token.h"
#include "services/common/testing/temporary_directory.h"

namespace tandem::pull {
namespace {

using ::testing::AllOf;
using testing::FakeHub;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TestReply;
using testing::TestRequest;

TEST(ModelNameTest, NamesOfTheTableAndOfTheHub) {
  EXPECT_EQ(ParseModelName("Gemma3:27B")->text, "gemma3:27b");
  EXPECT_EQ(ParseModelName("gemma3:latest")->text, "gemma3");
  const auto hub = ParseModelName("hf.co/owner/repo@abc:sub/file-Q4_0.gguf");
  ASSERT_TRUE(hub.ok()) << hub.status();
  EXPECT_TRUE(hub->from_hub);
  EXPECT_EQ(hub->hub.repository(), "owner/repo");
  EXPECT_EQ(hub->hub.revision, "abc");
  EXPECT_EQ(hub->hub.file, "sub/file-Q4_0.gguf");
  EXPECT_EQ(hub->text, "hf:owner/repo@abc:sub/file-Q4_0.gguf");
}

TEST(ModelNameTest, NoNameLeadsOutOfTheStore) {
  const std::string nul("gem\0ma", 6);
  for (const std::string name : {"",
                                 ":",
                                 "gemma3:",
                                 "../x",
                                 "gemma3:../x",
                                 "/etc/passwd",
                                 "hf:",
                                 "hf:a",
                                 "hf:a/",
                                 "hf:/b",
                                 "hf:../b:c.gguf",
                                 "hf:a/..:c.gguf",
                                 "hf:a/b:../c.gguf",
                                 "hf:a/b:/c.gguf",
                                 "hf:a/b:c/../d.gguf",
                                 "hf:a/b:c/d/e.gguf",
                                 "hf:a/b:.hidden.gguf",
                                 "hf:a/b:%2e%2e.gguf",
                                 "hf:a/b:c%2fd.gguf",
                                 "hf:a/b:c\\d.gguf",
                                 "hf:a/b@../x:c.gguf",
                                 "hf:a/b:c.gguf?x=1",
                                 "hf:a/b:c#d.gguf",
                                 "hf:-a/b:c.gguf",
                                 "hf:a/b:c\nd.gguf",
                                 "hf:a/b:c d.gguf",
                                 "hf:a/b:c\x7f.gguf"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseModelName(name).status())) << name;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(ParseModelName(nul).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ParseModelName(std::string(5000, 'a')).status()));
}

TEST(ModelNameTest, PathsAreNoNames) {
  EXPECT_TRUE(LooksLikeModelName("gemma3:27b"));
  EXPECT_TRUE(LooksLikeModelName("hf:a/b:c.gguf"));
  for (const char* path :
       {"models/a.gguf", "a.gguf", "/x/gemma3:27b.gguf", "synthetic:gemma3-1b?type=q4_0"}) {
    EXPECT_FALSE(LooksLikeModelName(path)) << path;
  }
}

TEST(ModelNameTest, PartsOfModelsAreNoModels) {
  EXPECT_TRUE(IsModelFile("BF16/gemma-3-27b-it-BF16.gguf"));
  for (const char* file :
       {"mmproj-model-f16.gguf", "a-00001-of-00002.gguf", "config.json", "a.gguf.part"}) {
    EXPECT_FALSE(IsModelFile(file)) << file;
  }
}

TEST(ModelTableTest, KnowsEverySizeOfGemma3) {
  const ModelTable table = ModelTable::BuiltIn();
  for (const char* size : {"270m", "1b", "4b", "12b", "27b"}) {
    const auto entry = table.Find(std::string("gemma3:") + size);
    ASSERT_TRUE(entry.ok()) << entry.status();
    EXPECT_TRUE(IsModelFile(entry->hub.file));
    EXPECT_FALSE(entry->gated) << "a size's default needs no licence to be accepted";
  }
  EXPECT_EQ(table.Find("gemma3:27b")->hub.file, table.Find("gemma3:27b-q4_0")->hub.file);
  EXPECT_TRUE(table.Knows("Gemma3"));
  EXPECT_FALSE(table.Knows("demo.Q8_0.gguf"));
  const absl::Status unknown = table.Find("gemma3:9b").status();
  EXPECT_TRUE(absl::IsNotFound(unknown));
  EXPECT_THAT(std::string(unknown.message()),
              AllOf(HasSubstr("gemma3:9b"), HasSubstr("gemma3:27b")));
}

TEST(ModelTableTest, AFileTakesItsPlaceAndItsFaultsAreNamed) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/table.json";
  const auto with = [&path](const std::string& text) {
    std::ofstream(path) << text;
    return ModelTable::FromFile(path);
  };
  EXPECT_TRUE(with(R"({"models": [{"names": ["a:b"], "repo": "o/r", "file": "f.gguf"}]})").ok());
  for (const char* wrong :
       {"", "[]", R"({"models": [{"names": ["a"], "repo": "o/../r", "file": "f.gguf"}]})",
        R"({"models": [{"names": ["a"], "repo": "o/r", "file": "../f.gguf"}]})",
        R"({"models": [{"names": ["a"], "repo": "o/r", "file": "f.gguf", "sha256": "abc"}]})",
        R"({"models": [{"names": ["a", "A"], "repo": "o/r", "file": "f.gguf"}]})",
        R"({"models": [{"names": [], "repo": "o/r", "file": "f.gguf"}]})"}) {
    const absl::Status status = with(wrong).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << wrong << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  }
  EXPECT_TRUE(absl::IsNotFound(ModelTable::FromFile(folder.path() + "/none").status()));
}

TEST(TokenTest, IsTakenFromTheFlagThenTheEnvironmentThenItsFile) {
  const TemporaryDirectory folder;
  std::ofstream(folder.path() + "/flag") << "hf_flag\n";
  std::ofstream(folder.path() + "/path") << "hf_path\n";
  std::ofstream(folder.path() + "/bad") << "hf_two\r\nX-Evil: words\n";
  ::unsetenv("HF_TOKEN");
  ::setenv("HF_TOKEN_PATH", (folder.path() + "/path").c_str(), 1);
  EXPECT_EQ(FindToken("")->value, "hf_path");
  ::setenv("HF_TOKEN", "hf_environment", 1);
  EXPECT_EQ(FindToken("")->value, "hf_environment");
  EXPECT_EQ(FindToken(folder.path() + "/flag")->value, "hf_flag");
  const absl::Status bad = FindToken(folder.path() + "/bad").status();
  EXPECT_TRUE(absl::IsInvalidArgument(bad));
  EXPECT_THAT(std::string(bad.message()), Not(HasSubstr("hf_two")));
  EXPECT_TRUE(absl::IsNotFound(FindToken(folder.path() + "/none").status()));
  ::unsetenv("HF_TOKEN");
  ::unsetenv("HF_TOKEN_PATH");
}

TEST(RedirectTest, NothingLeadsOutOfHttpsOrToAnotherScheme) {
  EXPECT_EQ(*FollowRedirect("https://a/b/c", "/d?e=f"), "https://a/d?e=f");
  EXPECT_EQ(*FollowRedirect("https://a/b", "https://c:444/d"), "https://c:444/d");
  EXPECT_EQ(*FollowRedirect("http://a/b", "https://c/d"), "https://c/d");
  for (const char* target :
       {"http://a/b", "file:///etc/passwd", "ftp://a/b", "//[", "gopher://a", ""}) {
    EXPECT_TRUE(absl::IsPermissionDenied(FollowRedirect("https://a/b", target).status())) << target;
  }
  EXPECT_TRUE(
      absl::IsPermissionDenied(FollowRedirect("http://a/b", "file:///etc/passwd").status()));
  EXPECT_EQ(PrintableUrl("https://user:word@a/b?signature=secret#x"), "https://a/b");
  EXPECT_EQ(*OriginOf("HTTPS://Hub.Example/x"), "https://hub.example:443");
}

TEST(ChooseFileTest, ByQuantisationAndByDefault) {
  const std::vector<std::string> files = {"m-Q8_0.gguf", "m-Q4_K_M.gguf", "m-Q4_0.gguf",
                                          "m-f16.gguf"};
  EXPECT_EQ(*ChooseFile(files, "", "o/r"), "m-Q4_K_M.gguf");
  EXPECT_EQ(*ChooseFile(files, "", "o/r-QAT-GGUF"), "m-Q4_0.gguf");
  EXPECT_EQ(*ChooseFile({"m-Q4_0.gguf", "m-qat-Q4_0.gguf", "m-Q4_K_M.gguf"}, "", "o/r"),
            "m-qat-Q4_0.gguf");
  EXPECT_EQ(*ChooseFile({"m-Q4_0.gguf", "m-Q8_0.gguf"}, "", "o/r"), "m-Q8_0.gguf");
  EXPECT_EQ(*ChooseFile({"m-Q4_0.gguf", "m-f16.gguf"}, "", "o/r"), "m-Q4_0.gguf");
  EXPECT_EQ(*ChooseFile(files, "q8_0", "o/r"), "m-Q8_0.gguf");
  EXPECT_EQ(*ChooseFile({"only.gguf"}, "", "o/r"), "only.gguf");
  EXPECT_TRUE(absl::IsNotFound(ChooseFile(files, "Q5_0", "o/r").status()));
  EXPECT_TRUE(absl::IsNotFound(ChooseFile({}, "", "o/r").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ChooseFile({"a.gguf", "b.gguf"}, "", "o/r").status()));
}

HubOptions OptionsFor(FakeHub& fake, const std::string& token = "") {
  HubOptions options;
  options.endpoint = fake.hub().url();
  options.http.token = token;
  options.first_backoff = absl::Milliseconds(1);
  return options;
}

TEST(HubTest, SaysWhereTheBytesAreAndTheirChecksum) {
  FakeHub fake(1000);
  const auto hub = Hub::Create(OptionsFor(fake, "hf_secret"));
  ASSERT_TRUE(hub.ok()) << hub.status();
  const auto remote = hub->Resolve({.owner = "owner", .repo = "repo", .file = "model-Q4_0.gguf"});
  ASSERT_TRUE(remote.ok()) << remote.status();
  EXPECT_EQ(remote->size, 1000u);
  EXPECT_EQ(remote->sha256, FakeHub::Sha256(fake.content()));
  EXPECT_EQ(remote->url, fake.cdn().url() + "/blob?signature=secret");
  EXPECT_EQ(fake.hub().requests().at(0).Field("authorization"), "Bearer hf_secret");
  EXPECT_EQ(hub->Choose({.owner = "owner", .repo = "repo"})->file, "model-Q4_0.gguf");
}

TEST(HubTest, ALicenceToAcceptIsExplainedAndTheTokenIsNotTold) {
  FakeHub fake(1000);
  int status = 401;
  std::string code = "GatedRepo";
  const auto hook = fake.HookHub([&](const TestRequest&) {
    return TestReply{.status = status, .fields = {{"X-Error-Code", code}}};
  });
  const HubFile file{.owner = "owner", .repo = "repo", .file = "model-Q4_0.gguf"};
  absl::Status refused = Hub::Create(OptionsFor(fake))->Resolve(file).status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused));
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("accept it at " + fake.hub().url() + "/owner/repo"),
                    HasSubstr("HF_TOKEN"), HasSubstr("--token-file")));
  status = 403;
  refused = Hub::Create(OptionsFor(fake, "hf_secret"))->Resolve(file).status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused));
  EXPECT_THAT(
      std::string(refused.message()),
      AllOf(HasSubstr("the account that the token belongs to"), Not(HasSubstr("hf_secret"))));
  status = 401;
  code = "RepoNotFound";
  refused = Hub::Create(OptionsFor(fake))->Resolve(file).status();
  EXPECT_TRUE(absl::IsUnauthenticated(refused)) << refused;
  EXPECT_TRUE(absl::IsNotFound([&] {
    status = 404;
    code = "EntryNotFound";
    return Hub::Create(OptionsFor(fake))->Resolve(file).status();
  }()));
}

TEST(HubTest, ATokenIsNotSentInTheClear) {
  HubOptions options;
  options.endpoint = "http://hub.example";
  options.http.token = "hf_secret";
  EXPECT_TRUE(absl::IsFailedPrecondition(Hub::Create(options).status()));
  options.endpoint = "file:///etc/passwd";
  EXPECT_TRUE(absl::IsInvalidArgument(Hub::Create(options).status()));
}

TEST(HubTest, WaitsAsLongAsItIsAskedToAndNoLonger) {
  FakeHub fake(1000);
  int asked = 0;
  std::string seconds = "1";
  const auto hook = fake.HookHub([&](const TestRequest&) {
    if (++asked > 1 && seconds == "1") return TestReply{.status = 0};
    return TestReply{.status = 429, .fields = {{"Retry-After", seconds}}};
  });
  const HubFile file{.owner = "owner", .repo = "repo", .file = "model-Q4_0.gguf"};
  const auto hub = Hub::Create(OptionsFor(fake));
  const absl::Time begin = absl::Now();
  EXPECT_TRUE(hub->Resolve(file).ok());
  EXPECT_GE(absl::Now() - begin, absl::Seconds(1));
  seconds = "86400";
  const absl::Status status = hub->Resolve(file).status();
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("wait 24h"));
}

}  // namespace
}  // namespace tandem::pull
