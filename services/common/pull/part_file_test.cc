#include "services/common/pull/part_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "services/common/testing/temporary_directory.h"

namespace tandem::pull {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class PartFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<PartFile>> Open(uint64_t size = 10,
                                                 const std::string& content = "x") {
    return PartFile::Open(path_, {.size = size, .content = content});
  }
  TemporaryDirectory folder_;
  const std::string path_ = folder_.path() + "/owner/repo/model.gguf";
};

TEST_F(PartFileTest, WhatIsMissingIsWhatWasNotWritten) {
  const auto part = Open();
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_THAT((*part)->Missing(), ElementsAre(Pair(0, 10)));
  for (const auto& [at, text] : {std::pair(2, "ab"), std::pair(6, "c"), std::pair(4, "ef")}) {
    ASSERT_TRUE((*part)->Write(static_cast<uint64_t>(at), text).ok());
  }
  EXPECT_THAT((*part)->Missing(), ElementsAre(Pair(0, 2), Pair(7, 10)));
  ASSERT_TRUE((*part)->Write(1, "xyz").ok());  // over older bytes
  EXPECT_THAT((*part)->Missing(), ElementsAre(Pair(0, 1), Pair(7, 10)));
  EXPECT_EQ((*part)->done_bytes(), 6u);
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(PartFileTest, GoesOnWhereItWasLeftAndAppearsWhole) {
  {
    const auto part = Open();
    ASSERT_TRUE((*part)->Write(0, "01234").ok());
    (*part)->set_etag("\"tag\"");
  }
  const auto part = Open();
  EXPECT_THAT((*part)->Missing(), ElementsAre(Pair(5, 10)));
  EXPECT_EQ((*part)->etag(), "\"tag\"");
  ASSERT_TRUE((*part)->Write(5, "56789").ok());
  EXPECT_THAT((*part)->Missing(), IsEmpty());
  ASSERT_TRUE((*part)->Finish().ok());
  std::ostringstream text;
  text << std::ifstream(path_).rdbuf();
  EXPECT_EQ(text.str(), "0123456789");
}

TEST_F(PartFileTest, NothingElseIsLeft) {
  {
    const auto part = Open();
    ASSERT_TRUE((*part)->Write(0, "0123456789").ok());
    ASSERT_TRUE((*part)->Save().ok());
    ASSERT_TRUE((*part)->Finish().ok());
  }
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(fs::path(path_).parent_path())) {
    names.push_back(entry.path().filename().string());
  }
  EXPECT_THAT(names, ElementsAre("model.gguf"));
}

TEST_F(PartFileTest, BytesOfAnotherFileAreNotGoneOnWith) {
  const auto leave = [this] {
    const auto part = Open();
    ASSERT_TRUE((*part)->Write(0, "01234").ok());
  };
  leave();
  EXPECT_EQ((*Open(10, "y"))->done_bytes(), 0u);
  leave();
  EXPECT_EQ((*Open(11))->done_bytes(), 0u);
}

TEST_F(PartFileTest, AJournalIsNotBelieved) {
  const PartPaths paths(path_);
  for (const char* journal : {"", "{", "[]", R"({"size": 10, "content": "x"})",
                              R"({"size": "10", "content": 5, "done": []})",
                              R"({"size": 10, "content": "x", "done": [[0, 11]]})",
                              R"({"size": 10, "content": "x", "done": [[5, 5]]})",
                              R"({"size": 10, "content": "x", "done": [[-1, 5]]})",
                              R"({"size": 10, "content": "x", "done": [5]})"}) {
    {
      const auto part = Open();
      ASSERT_TRUE((*part)->Write(0, "01234").ok());
    }
    std::ofstream(paths.journal, std::ios::trunc) << journal;
    const auto part = Open();
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_EQ((*part)->done_bytes(), 0u) << journal;
  }
}

TEST_F(PartFileTest, TwoDoNotWriteOneFile) {
  const auto first = Open();
  const absl::Status second = Open().status();
  EXPECT_TRUE(absl::IsAlreadyExists(second)) << second;
  EXPECT_THAT(std::string(second.message()), HasSubstr(path_));
  EXPECT_TRUE(absl::IsAlreadyExists(RemovePart(path_).status()));
}

TEST_F(PartFileTest, ADiskThatIsTooSmallIsNamedBeforeAByteComes) {
  const absl::Status status = Open(uint64_t{1} << 60).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("free"));
  EXPECT_TRUE(absl::IsResourceExhausted(Open(UINT64_MAX).status()));
  EXPECT_FALSE(fs::exists(PartPaths(path_).part));
}

TEST_F(PartFileTest, ALinkIsNotFollowed) {
  const PartPaths paths(path_);
  fs::create_directories(fs::path(path_).parent_path());
  fs::create_symlink(folder_.path() + "/elsewhere", paths.part);
  EXPECT_FALSE(Open().ok());
  EXPECT_FALSE(fs::exists(folder_.path() + "/elsewhere"));
}

TEST_F(PartFileTest, AnInterruptedPullIsRemoved) {
  {
    const auto part = Open();
    ASSERT_TRUE((*part)->Write(0, "01234").ok());
  }
  EXPECT_TRUE(*RemovePart(path_));
  EXPECT_FALSE(*RemovePart(path_));
  EXPECT_THAT(fs::is_empty(fs::path(path_).parent_path()), true);
}

}  // namespace
}  // namespace tandem::pull
