#include "services/common/rpc/worker_target.h"

#include <gtest/gtest.h>

#include "services/common/testing/status_matchers.h"

namespace tandem {
namespace {

TEST(WorkerTargetTest, SchemesSayWhereAWorkerIs) {
  for (const char* text : {"unix:/run/tandem/gpu.sock", "unix:///run/gpu.sock", "127.0.0.1:7001"}) {
    ASSERT_OK_AND_ASSIGN(const WorkerTarget target, ParseWorkerTarget(text));
    EXPECT_EQ(target.address, text);
    EXPECT_FALSE(target.remote || target.tls);
  }
  ASSERT_OK_AND_ASSIGN(const WorkerTarget tls, ParseWorkerTarget("tls://b.example:7001"));
  EXPECT_EQ(tls.text, "tls://b.example:7001");
  EXPECT_EQ(tls.address, "b.example:7001");
  EXPECT_TRUE(tls.remote && tls.tls);
  ASSERT_OK_AND_ASSIGN(const WorkerTarget tcp, ParseWorkerTarget("tcp://[fd00::2]:7001"));
  EXPECT_EQ(tcp.address, "[fd00::2]:7001");
  EXPECT_TRUE(tcp.remote && !tcp.tls);
}

TEST(WorkerTargetTest, OthersAreRefused) {
  for (const char* text : {"http://b:7001", "tls://b", "tls://:7001", "tls://b:", "tls://b:70a",
                           "tls://", "tcp://b:7001/path"}) {
    EXPECT_THAT(ParseWorkerTarget(text),
                testing::StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr(text)));
  }
}

}  // namespace
}  // namespace tandem
