#include "tools/tandem/supervisor/log_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/strings/str_format.h"
#include "services/common/testing/temporary_directory.h"
#include "tools/tandem/supervisor/log_line.h"

namespace tandem {
namespace {

using ::testing::Each;
using ::testing::Le;

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(RotatingFileTest, KeepsSoManyOldFilesAndCutsNoLine) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/gpu.log";
  {
    auto file = RotatingFile::Open(path, {.max_bytes = 10, .num_old = 2});
    ASSERT_TRUE(file.ok()) << file.status();
    file->Append("one\ntwo\n");
    file->Append("three\n");
    file->Append("a line beyond the size\nfour\n");
  }
  EXPECT_EQ(Read(path), "four\n");
  EXPECT_EQ(Read(path + ".1"), "a line beyond the size\n");
  EXPECT_EQ(Read(path + ".2"), "three\n");
  EXPECT_FALSE(std::filesystem::exists(path + ".3"));
  auto again = RotatingFile::Open(path, {.max_bytes = 10, .num_old = 2});
  ASSERT_TRUE(again.ok());
  again->Append("a fifth");
  again->Append("!\n");
  EXPECT_EQ(Read(path), "a fifth!\n");
  EXPECT_EQ(Read(path + ".1"), "four\n");
}

TEST(RotatingFileTest, NoOldFilesAreKeptWhereNoneAreWanted) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/gpu.log";
  auto file = RotatingFile::Open(path, {.max_bytes = 5, .num_old = 0});
  ASSERT_TRUE(file.ok());
  file->Append("one\ntwo\nthree\n");
  EXPECT_EQ(Read(path), "three\n");
  EXPECT_FALSE(std::filesystem::exists(path + ".1"));
}

TEST(RotatingFileTest, AFileThatCannotBeWrittenIsNamed) {
  const auto file = RotatingFile::Open("/nonexistent/gpu.log", {});
  EXPECT_THAT(std::string(file.status().message()), ::testing::HasSubstr("/nonexistent/gpu.log"));
}

// What a driver or the C library writes goes past every logger: straight to the descriptor.
TEST(LogCollectorTest, RotatesWhatIsWrittenStraightToTheDescriptor) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/gpu.log";
  constexpr int kLines = 5000;
  {
    auto logs = LogCollector::Create({.max_bytes = 16 << 10, .num_old = 30});
    ASSERT_TRUE(logs.ok()) << logs.status();
    const auto fd = (*logs)->Add(path);
    ASSERT_TRUE(fd.ok()) << fd.status();
    for (int i = 0; i < kLines; ++i) {
      const std::string line = absl::StrFormat("line %06d\n", i);
      ASSERT_EQ(write(*fd, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    }
    EXPECT_EQ((*logs)->LastLine(path), "line 004999");
  }
  std::string all;
  std::vector<uintmax_t> sizes;
  for (int age = 30; age >= 0; --age) {
    const std::string file = RotatedPath(path, age);
    if (!std::filesystem::exists(file)) continue;
    sizes.push_back(std::filesystem::file_size(file));
    all += Read(file);
  }
  EXPECT_GT(sizes.size(), 3u);
  EXPECT_THAT(sizes, Each(Le(16u << 10)));
  std::string expected;
  for (int i = 0; i < kLines; ++i) expected += absl::StrFormat("line %06d\n", i);
  EXPECT_EQ(all, expected) << "every line once, in order";
}

TEST(LogCollectorTest, TheLastLineNeedsNoLineEnd) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/a.log";
  auto logs = LogCollector::Create({});
  ASSERT_TRUE(logs.ok());
  const auto fd = (*logs)->Add(path);
  ASSERT_TRUE(fd.ok());
  EXPECT_EQ((*logs)->LastLine(path), "");
  ASSERT_EQ(write(*fd, "first\n\n", 7), 7);
  EXPECT_EQ((*logs)->LastLine(path), "first");
  ASSERT_EQ(write(*fd, "second", 6), 6);
  EXPECT_EQ((*logs)->LastLine(path), "second");
}

TEST(LogLineTest, FindsTimesAndReasons) {
  const std::string text =
      "2026-01-31T12:00:00.000 level=error service=gateway event=\"cannot serve\" "
      "reason=\"no \\\"x\\\" here\"";
  EXPECT_EQ(LogTime(text), "2026-01-31T12:00:00.000");
  EXPECT_EQ(LogReason(text), "no \"x\" here");
  const std::string json =
      R"({"time":"2026-01-31T12:00:00.000+01:00","level":"error","event":"a","reason":"no device"})";
  EXPECT_EQ(LogTime(json), "2026-01-31T12:00:00.000");
  EXPECT_EQ(LogReason(json), "no device");
  EXPECT_EQ(LogTime("free(): invalid pointer"), "");
  EXPECT_EQ(LogReason("free(): invalid pointer reason=x"), "free(): invalid pointer reason=x");
  EXPECT_EQ(LogReason("2026-01-31T12:00:00.000 level=error event=a reason=plain more=1"), "plain");
}

}  // namespace
}  // namespace tandem
