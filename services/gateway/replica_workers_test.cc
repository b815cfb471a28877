#include "services/gateway/replica_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tandem::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ReplicaWorkersTest, ALineIsAReplica) {
  const auto replicas =
      ParseReplicas("# comment\n\nunix:/a.sock  npu=unix:/n.sock\r\n\ttls://h:1 tls://h:2\n");
  ASSERT_TRUE(replicas.ok()) << replicas.status();
  ASSERT_EQ(replicas->size(), 2u);
  EXPECT_THAT((*replicas)[0].workers, ElementsAre("unix:/a.sock"));
  EXPECT_THAT((*replicas)[0].npu_workers, ElementsAre("unix:/n.sock"));
  EXPECT_THAT((*replicas)[1].workers, ElementsAre("tls://h:1", "tls://h:2"));
  EXPECT_EQ((*replicas)[0].key(), "unix:/a.sock npu=unix:/n.sock");
}

TEST(ReplicaWorkersTest, ALineSaysWhatAReplicaIsFor) {
  const auto replicas =
      ParseReplicas("unix:/a role=prompts kv=f16\nunix:/b kv=q8_0 role=decode\nunix:/c\n");
  ASSERT_TRUE(replicas.ok()) << replicas.status();
  EXPECT_EQ((*replicas)[0].role, ReplicaRole::kPrompts);
  EXPECT_EQ((*replicas)[0].kv_dtype, DType::kF16);
  EXPECT_EQ((*replicas)[1].key(), "unix:/b role=decode kv=q8_0");
  EXPECT_EQ((*replicas)[2].role, ReplicaRole::kBoth);
  EXPECT_EQ((*replicas)[2].key(), "unix:/c");
}

TEST(ReplicaWorkersTest, AnNpuForPromptsSharesAWorkerOfAnotherLine) {
  const auto replicas =
      ParseReplicas("unix:/a role=decode kv=q8_0\nunix:/a npu=unix:/n layers=npu role=prompts\n");
  ASSERT_TRUE(replicas.ok()) << replicas.status();
  EXPECT_FALSE((*replicas)[0].layers_on_npu);
  EXPECT_TRUE((*replicas)[1].layers_on_npu);
  EXPECT_EQ((*replicas)[1].key(), "unix:/a npu=unix:/n role=prompts layers=npu");
  const auto divided = DivideBesideNpu({"tls://h:1", "unix:/b"}, {"m", "n"}, 2);
  ASSERT_TRUE(divided.ok()) << divided.status();
  ASSERT_EQ(divided->size(), 3u);
  EXPECT_EQ((*divided)[0].key(), "tls://h:1 role=decode");
  EXPECT_EQ((*divided)[1].key(), "unix:/b role=decode");
  EXPECT_EQ((*divided)[2].key(), "unix:/b npu=m npu=n role=prompts layers=npu");
  EXPECT_FALSE(DivideBesideNpu({"unix:/a"}, {}, 1).ok());
  EXPECT_FALSE(DivideBesideNpu({"tls://h:1"}, {"n"}, 1).ok());
}

TEST(ReplicaWorkersTest, WrongLinesAreRefusedByNumber) {
  const auto refusal = [](const char* text) {
    return std::string(ParseReplicas(text).status().message());
  };
  EXPECT_THAT(refusal("unix:/a\nftp://b:1\n"), HasSubstr("line 2: "));
  EXPECT_THAT(refusal("unix:/a\n\nunix:/a\n"), HasSubstr("line 3: unix:/a is named twice"));
  EXPECT_THAT(refusal("npu=unix:/n\n"), HasSubstr("line 1: a replica needs a worker"));
  EXPECT_THAT(refusal("# none\n"), HasSubstr("no line names"));
  EXPECT_THAT(refusal("unix:/a unix:/a\n"), HasSubstr("line 1: unix:/a is named twice"));
  EXPECT_THAT(refusal("unix:/a layers=npu\n"), HasSubstr("line 1: layers=npu needs"));
  EXPECT_THAT(refusal("unix:/a npu=unix:/n layers=npu\n"), HasSubstr("line 1: layers=npu needs"));
  const std::string on_npu = "unix:/a npu=unix:/n layers=npu role=prompts\n";
  EXPECT_THAT(refusal((on_npu + "unix:/b npu=unix:/n\n").c_str()),
              HasSubstr("line 2: unix:/n is named twice"));
  EXPECT_THAT(refusal((on_npu + "unix:/n\n").c_str()), HasSubstr("unix:/n is named twice"));
  EXPECT_THAT(refusal("unix:/a role=both\n"), HasSubstr("line 1: role 'both'"));
  EXPECT_THAT(refusal("unix:/a role=prompts role=decode\n"), HasSubstr("line 1: role=decode: "));
  EXPECT_THAT(refusal("unix:/a kv=q4_0\n"), HasSubstr("line 1: KV cache of 'q4_0'"));
  EXPECT_THAT(refusal("unix:/a role=prompts\n"), HasSubstr("at least one must decode"));
  EXPECT_THAT(std::string(ReadReplicaFile("/nonexistent").status().message()),
              HasSubstr("/nonexistent"));
}

TEST(ReplicaWorkersTest, WorkersAreDividedInOrder) {
  const auto replicas = DivideWorkers({"a", "b", "c", "d"}, {"n"}, 2);
  ASSERT_TRUE(replicas.ok());
  EXPECT_EQ((*replicas)[0].key(), "a b npu=n");
  EXPECT_EQ((*replicas)[1].key(), "c d");
  EXPECT_FALSE(DivideWorkers({"a", "b", "c"}, {}, 2).ok());
  const auto phases = DivideWorkers({"a", "b", "c"}, {}, 3, 1);
  ASSERT_TRUE(phases.ok());
  EXPECT_EQ((*phases)[0].key(), "a role=prompts");
  EXPECT_EQ((*phases)[2].key(), "c role=decode");
  EXPECT_FALSE(DivideWorkers({"a", "b"}, {}, 2, 2).ok());
  EXPECT_FALSE(DivideWorkers({"a", "b"}, {"m", "n", "o"}, 2).ok());
  EXPECT_EQ(DivideWorkers({"a", "b"}, {"m", "n"}, 1)->front().key(), "a b npu=m npu=n");
}

}  // namespace
}  // namespace tandem::gateway
