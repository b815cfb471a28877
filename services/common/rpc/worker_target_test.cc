#include "services/common/rpc/worker_target.h"

#include <gtest/gtest.h>

#include "services/common/rpc/worker_convert.h"
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

// Names of workers are printed at terminals and are labels of metrics.
TEST(WorkerNameTest, WhatAnotherHostCallsItselfIsMadeVisible) {
  worker::v1::DescribeResponse proto;
  proto.set_protocol_version(kWorkerProtocolVersion);
  proto.set_kind(worker::v1::DEVICE_KIND_GPU);
  proto.set_name("gpu0\x1b[2J\n\xff" + std::string(5000, 'x'));
  proto.set_device("Radeon\x1b]0;owned\x07");
  ASSERT_OK_AND_ASSIGN(const WorkerDescription description, DescriptionFromProto(proto));
  EXPECT_TRUE(description.name.starts_with("gpu0\\x1b[2J\\x0a\\xff")) << description.name;
  EXPECT_LE(description.name.size(), 67u);
  EXPECT_EQ(description.device, "Radeon\\x1b]0;owned\\x07");
  proto.set_name("gpu0");
  ASSERT_OK_AND_ASSIGN(const WorkerDescription plain, DescriptionFromProto(proto));
  EXPECT_EQ(plain.name, "gpu0");
  proto.set_name("\x1b[2J");
  proto.set_protocol_version(kWorkerProtocolVersion + 1);
  const absl::Status other = DescriptionFromProto(proto).status();
  EXPECT_EQ(other.message().find('\x1b'), absl::string_view::npos) << other;
}

TEST(WorkerDescriptionTest, FormatsOfPortsKeepTheirOrderAndUnknownOnesAreLeftOut) {
  WorkerDescription description;
  description.name = "npu0";
  description.attend_port_dtypes = {DType::kBf16, DType::kF16};
  description.matrix_port_dtypes = {DType::kF16};
  worker::v1::DescribeResponse proto = ToProto(description);
  proto.add_matrix_port_dtypes(kNumDTypes);
  ASSERT_OK_AND_ASSIGN(const WorkerDescription back, DescriptionFromProto(proto));
  EXPECT_EQ(back.attend_port_dtypes, description.attend_port_dtypes);
  EXPECT_EQ(back.matrix_port_dtypes, description.matrix_port_dtypes);
}

}  // namespace
}  // namespace tandem
