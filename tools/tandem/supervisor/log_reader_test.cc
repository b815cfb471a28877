#include "tools/tandem/supervisor/log_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_format.h"
#include "services/common/testing/temporary_directory.h"
#include "tools/tandem/supervisor/rotating_file.h"

namespace tandem {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A line of the log, so many seconds after noon.
std::string Line(int second, const std::string& event) {
  return absl::StrFormat("2026-01-31T12:00:%02d.000 level=info event=%s", second, event);
}

class LogReaderTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& service) const {
    return folder_.path() + "/" + service + ".log";
  }
  void Write(const std::string& service, const std::vector<std::string>& lines) const {
    std::ofstream file(Path(service), std::ios::app);
    for (const std::string& line : lines) file << line << "\n";
  }
  static std::vector<std::string> Texts(const std::vector<LogEntry>& entries) {
    std::vector<std::string> texts;
    for (const LogEntry& entry : entries) texts.push_back(entry.service + " " + entry.text);
    return texts;
  }

  const TemporaryDirectory folder_;
};

TEST_F(LogReaderTest, MergesServicesByTimeAndKeepsALinesCompanions) {
  Write("gateway", {Line(1, "a"), Line(4, "d")});
  Write("gpu_worker", {Line(2, "b"), "a driver's words", Line(3, "c")});
  auto reader = LogReader::Open(folder_.path(), {});
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_THAT(Texts(reader->Last(100)),
              ElementsAre("gateway " + Line(1, "a"), "gpu_worker " + Line(2, "b"),
                          "gpu_worker a driver's words", "gpu_worker " + Line(3, "c"),
                          "gateway " + Line(4, "d")));
  auto again = LogReader::Open(folder_.path(), {});
  EXPECT_THAT(Texts(again->Last(2)),
              ElementsAre("gpu_worker " + Line(3, "c"), "gateway " + Line(4, "d")));
}

TEST_F(LogReaderTest, ReadsOneServiceAndItsOldFiles) {
  Write("gateway", {Line(9, "x")});
  auto file = RotatingFile::Open(Path("loader"), {.max_bytes = 60, .num_old = 4});
  ASSERT_TRUE(file.ok());
  for (int i = 0; i < 4; ++i) file->Append(Line(i, "event") + "\n");
  auto reader = LogReader::Open(folder_.path(), {"loader"});
  ASSERT_TRUE(reader.ok());
  EXPECT_THAT(Texts(reader->Last(3)),
              ElementsAre("loader " + Line(1, "event"), "loader " + Line(2, "event"),
                          "loader " + Line(3, "event")));
}

TEST_F(LogReaderTest, FollowsThroughARotationAndFindsNewServices) {
  auto file = RotatingFile::Open(Path("loader"), {.max_bytes = 60, .num_old = 4});
  ASSERT_TRUE(file.ok());
  file->Append(Line(1, "old") + "\n");
  auto reader = LogReader::Open(folder_.path(), {});
  ASSERT_TRUE(reader.ok());
  EXPECT_THAT(reader->Last(0), IsEmpty());
  EXPECT_THAT(reader->More(), IsEmpty());
  file->Append("tail\n");
  file->Append(Line(2, "new") + "\n");  // in another file
  Write("gateway", {Line(3, "up")});
  EXPECT_THAT(Texts(reader->More()),
              ElementsAre("loader tail", "loader " + Line(2, "new"), "gateway " + Line(3, "up")));
  file->Append("half");
  EXPECT_THAT(reader->More(), IsEmpty());
  file->Append(" a line\n");
  EXPECT_THAT(Texts(reader->More()), ElementsAre("loader half a line"));
}

TEST_F(LogReaderTest, NamesTheLogsThatThereAre) {
  EXPECT_THAT(std::string(LogReader::Open(folder_.path(), {}).status().message()),
              HasSubstr("no logs in " + folder_.path()));
  Write("gateway", {Line(1, "a")});
  EXPECT_THAT(std::string(LogReader::Open(folder_.path(), {"gatewya"}).status().message()),
              HasSubstr("there are gateway"));
}

}  // namespace
}  // namespace tandem
