#include "services/common/rpc/worker_absence.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "services/common/base/unique_fd.h"
#include "services/common/rpc/unix_socket.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/temporary_directory.h"

namespace tandem {
namespace {

class WorkerAbsenceTest : public ::testing::Test {
 protected:
  std::string Socket() const { return directory_.path() + "/npu.sock"; }
  std::string Target() const { return "unix:" + Socket(); }

  const TemporaryDirectory directory_;
};

TEST_F(WorkerAbsenceTest, ANoteIsReadAsItWasWritten) {
  EXPECT_FALSE(ReadAbsence(Target()).has_value());
  const WorkerAbsence none{.kind = "npu", .name = "npu0", .reason = "this machine has no NPU"};
  ASSERT_OK(WriteAbsence(Target(), none));
  EXPECT_EQ(ReadAbsence(Target()), none);
  const WorkerAbsence unusable{
      .kind = "npu", .name = "npu0", .device_present = true, .reason = "no permission"};
  ASSERT_OK(WriteAbsence(Target(), unusable));
  EXPECT_EQ(ReadAbsence(Target()), unusable);
  RemoveAbsence(Target());
  EXPECT_FALSE(ReadAbsence(Target()).has_value());
  RemoveAbsence(Target());
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
}

TEST_F(WorkerAbsenceTest, AReasonOfManyLinesCannotAddFields) {
  ASSERT_OK(WriteAbsence(Target(), {.kind = "npu", .name = "npu0", .reason = "a\ndevice=present"}));
  const auto read = ReadAbsence(Target());
  ASSERT_TRUE(read.has_value());
  EXPECT_FALSE(read->device_present);
  EXPECT_EQ(read->reason, "a device=present");
}

TEST_F(WorkerAbsenceTest, WhatIsNoNoteIsTakenForNone) {
  for (const char* text : {"", "nothing", "kind=npu\nname=npu0\n", "device=none\n"}) {
    std::ofstream(Socket() + ".absent") << text;
    EXPECT_FALSE(ReadAbsence(Target()).has_value()) << text;
  }
}

TEST_F(WorkerAbsenceTest, TargetsWithoutASocketFileHaveNoNote) {
  for (const char* target : {"127.0.0.1:50061", "tls://npu.example:50061"}) {
    EXPECT_FALSE(AbsenceNotePath(target).has_value());
    EXPECT_OK(WriteAbsence(target, {.kind = "npu", .name = "npu0"}));
    EXPECT_FALSE(ReadAbsence(target).has_value());
  }
}

TEST_F(WorkerAbsenceTest, AFolderThatIsNotThereIsNamed) {
  EXPECT_THAT(WriteAbsence("unix:" + directory_.path() + "/none/npu.sock", {}),
              testing::StatusIs(absl::StatusCode::kFailedPrecondition,
                                ::testing::HasSubstr("/none/npu.sock.absent")));
}

TEST_F(WorkerAbsenceTest, ASocketIsAnsweredWhileSomebodyListens) {
  EXPECT_FALSE(SocketAnswers(Socket()));
  {
    const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_OK_AND_ASSIGN(const sockaddr_un address, UnixSocketAddress(Socket()));
    ASSERT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              0);
    EXPECT_FALSE(SocketAnswers(Socket())) << "bound, and nobody listens yet";
    ASSERT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_TRUE(SocketAnswers(Socket()));
  }
  EXPECT_FALSE(SocketAnswers(Socket())) << "the file of a server that is gone";
}

}  // namespace
}  // namespace tandem
