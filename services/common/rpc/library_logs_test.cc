#include "services/common/rpc/library_logs.h"

#include <gmock/gmock.h>
#include <google/protobuf/wrappers.pb.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "services/common/base/logging.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

// What `act` writes to standard error, as lines.
std::vector<std::string> LinesOf(const std::function<void()>& act) {
  ::testing::internal::CaptureStderr();
  InitLogging("test");
  act();
  return absl::StrSplit(::testing::internal::GetCapturedStderr(), '\n', absl::SkipEmpty());
}

class LibraryLogsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    grpc_init();  // reads which levels are logged
    RouteLibraryLogs();
  }
  void TearDown() override { SetLogFormat(LogFormat::kText); }
};

TEST_F(LibraryLogsTest, WhatStrangersMakeTheLibrariesPrintIsALineOfTheLogInItsFormat) {
  SetLogFormat(LogFormat::kJson);
  const std::vector<std::string> lines = LinesOf([] {
    google::protobuf::StringValue message;
    EXPECT_FALSE(message.ParseFromString("\x0a\x02\xff\xfe")) << "no UTF-8: protobuf prints that";
    gpr_log(GPR_ERROR, "a line\nof \"two\" \x1b[31m");
  });
  ASSERT_THAT(lines, SizeIs(2));
  const auto protobuf = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(protobuf["event"], "protobuf");
  EXPECT_THAT(protobuf["message"].get<std::string>(), HasSubstr("UTF-8"));
  const auto grpc = nlohmann::json::parse(lines[1]);
  EXPECT_EQ(grpc["event"], "grpc");
  EXPECT_EQ(grpc["level"], "warning");
  EXPECT_EQ(grpc["message"], "a line\nof \"two\" \x1b[31m");
  EXPECT_THAT(grpc["at"].get<std::string>(), StartsWith("library_logs_test.cc:"));
}

TEST_F(LibraryLogsTest, AFloodIsCutAndCounted) {
  const std::vector<std::string> lines = LinesOf([] {
    for (int i = 0; i < 1000; ++i) gpr_log(GPR_ERROR, "again");
  });
  EXPECT_LE(lines.size(), kLibraryLines);
}

TEST(LineLimitTest, TellsHowManyLinesWereLeftOut) {
  LineLimit limit;
  const absl::Time begin = absl::Now();
  for (uint32_t i = 0; i < kLibraryLines; ++i) EXPECT_EQ(limit.Admit(begin), 0u);
  for (int i = 0; i < 7; ++i) EXPECT_EQ(limit.Admit(begin + absl::Seconds(1)), std::nullopt);
  EXPECT_EQ(limit.Admit(begin + kLibraryLinesPeriod), 7u);
  EXPECT_EQ(limit.Admit(begin + kLibraryLinesPeriod), 0u);
}

TEST(SilencedLibraryLogsTest, NothingIsPrinted) {
  SilenceLibraryLogs();
  EXPECT_THAT(LinesOf([] { gpr_log(GPR_ERROR, "again"); }), SizeIs(0));
}

}  // namespace
}  // namespace tandem
