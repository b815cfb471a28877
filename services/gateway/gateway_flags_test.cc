#include "services/gateway/gateway_flags.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "services/common/testing/temporary_directory.h"

namespace tandem::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class GatewayFlagsTest : public ::testing::Test {
 protected:
  GatewayFlagsTest() { AddGatewayFlags(app_, flags_); }

  // With the flags that are required, and a worker.
  absl::Status Parse(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--worker", "unix:/gpu0.sock"});
    return ParseAlone(std::move(arguments));
  }
  absl::Status ParseAlone(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--loader", "unix:/loader.sock", "--model", "m"});
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the end
    try {
      app_.parse(arguments);
    } catch (const CLI::ParseError& error) {
      return absl::InvalidArgumentError(error.what());
    }
    return FinishGatewayFlags(flags_);
  }

  CLI::App app_;
  GatewayFlags flags_;
};

TEST_F(GatewayFlagsTest, PlacementsAreWeighedByLatencyUnlessSaidOtherwise) {
  ASSERT_TRUE(Parse({"--port", "1"}).ok());
  EXPECT_EQ(flags_.executor.favour, Favour::kLatency);
}

TEST_F(GatewayFlagsTest, PlacementsAreWeighedByWhatIsFavoured) {
  ASSERT_TRUE(Parse({"--port", "1", "--favour", "energy"}).ok());
  EXPECT_EQ(flags_.executor.favour, Favour::kEnergy);
}

TEST_F(GatewayFlagsTest, WhatCannotBeFavouredIsRefused) {
  EXPECT_FALSE(Parse({"--port", "1", "--favour", "speed"}).ok());
}

TEST_F(GatewayFlagsTest, APortIsServedBesideTheAddresses) {
  ASSERT_TRUE(Parse({"--listen", "unix:/gateway.sock", "--port", "50051"}).ok());
  EXPECT_THAT(flags_.server.listen, ElementsAre("unix:/gateway.sock", "127.0.0.1:50051"));
}

TEST_F(GatewayFlagsTest, WorkersAreDividedAmongReplicas) {
  ASSERT_TRUE(
      ParseAlone({"--port", "1", "--replicas", "2", "--worker", "unix:/a", "--worker", "unix:/b",
                  "--worker", "unix:/c", "--worker", "unix:/d", "--npu-worker", "unix:/n"})
          .ok());
  ASSERT_EQ(flags_.replicas.size(), 2u);
  EXPECT_EQ(flags_.replicas[0].key(), "unix:/a unix:/b npu=unix:/n");
  EXPECT_EQ(flags_.replicas[1].key(), "unix:/c unix:/d");
  EXPECT_EQ(flags_.executor.policy.num_gpus, 0u) << "all of a replica's share its layers";
}

TEST_F(GatewayFlagsTest, AnNpuForPromptsIsAReplicaMore) {
  ASSERT_TRUE(Parse({"--port", "1", "--npu-worker", "unix:/n", "--npu-prompts"}).ok());
  ASSERT_EQ(flags_.replicas.size(), 2u);
  EXPECT_EQ(flags_.replicas[0].key(), "unix:/gpu0.sock role=decode");
  EXPECT_TRUE(flags_.replicas[1].layers_on_npu);
  EXPECT_EQ(flags_.executor.policy.npu, NpuPolicy::kRequire);
  EXPECT_GT(flags_.executor.kv_area_bytes, 0u);
  EXPECT_EQ(flags_.executor.policy.num_gpus, 1u);
}

TEST_F(GatewayFlagsTest, AnNpuForPromptsIsRefusedWhereItCannotBe) {
  const auto refusal = [](std::vector<std::string> arguments) {
    CLI::App app;
    GatewayFlags flags;
    AddGatewayFlags(app, flags);
    arguments.insert(arguments.end(), {"--npu-prompts", "--port", "1", "--worker", "unix:/g",
                                       "--loader", "unix:/l", "--model", "m"});
    std::reverse(arguments.begin(), arguments.end());
    app.parse(arguments);
    return std::string(FinishGatewayFlags(flags).message());
  };
  EXPECT_THAT(refusal({}), HasSubstr("needs --npu-worker"));
  EXPECT_THAT(refusal({"--npu-worker", "unix:/n", "--npu", "off"}), HasSubstr("--npu is off"));
  EXPECT_THAT(refusal({"--npu-worker", "unix:/n", "--prefix-cache", "off"}),
              HasSubstr("--prefix-cache off"));
  EXPECT_THAT(refusal({"--npu-worker", "unix:/n", "--prompt-replicas", "1"}),
              HasSubstr("--npu-prompts and --prompt-replicas"));
  EXPECT_THAT(refusal({"--npu-worker", "unix:/n", "--out-on-npu"}),
              HasSubstr("--npu-prompts and --out-on-npu"));
  EXPECT_THAT(refusal({"--npu-worker", "unix:/n", "--layers", "gpu0=0-1"}),
              HasSubstr("--npu-prompts and --layers"));
}

TEST_F(GatewayFlagsTest, OneReplicaHasOneGpuUnlessMoreAreAskedFor) {
  ASSERT_TRUE(Parse({"--port", "1", "--worker", "unix:/b"}).ok());
  ASSERT_EQ(flags_.replicas.size(), 1u);
  EXPECT_EQ(flags_.executor.policy.num_gpus, 1u);
}

TEST_F(GatewayFlagsTest, WorkersThatCannotBeDividedAreRefused) {
  EXPECT_THAT(std::string(Parse({"--port", "1", "--replicas", "2"}).message()),
              HasSubstr("--replicas 2: 1 workers cannot be divided"));
}

TEST_F(GatewayFlagsTest, WithoutWorkersOrAFileOfReplicasThereIsNoModel) {
  EXPECT_THAT(std::string(ParseAlone({"--port", "1"}).message()), HasSubstr("--replica-file"));
}

TEST_F(GatewayFlagsTest, AFileOfReplicasTakesThePlaceOfTheWorkers) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/replicas";
  std::ofstream(path) << "# two\nunix:/a npu=unix:/n\n\nunix:/b\n";
  EXPECT_THAT(std::string(Parse({"--port", "1", "--replica-file", path}).message()),
              HasSubstr("give --worker for each worker, or --replica-file"));
  flags_ = {};
  ASSERT_TRUE(ParseAlone({"--port", "1", "--replica-file", path}).ok());
  ASSERT_EQ(flags_.replicas.size(), 2u);
  EXPECT_EQ(flags_.replicas[0].key(), "unix:/a npu=unix:/n");
}

TEST_F(GatewayFlagsTest, NamesOfReplicasTakeThePlaceOfTheWorkers) {
  const TemporaryDirectory folder;
  const std::string names = "unix:" + folder.path() + "/gpu{}.sock";
  const auto refusal = [&](std::vector<std::string> more) {
    flags_ = {};
    more.insert(more.end(), {"--port", "1", "--replica-names", names});
    return std::string(ParseAlone(std::move(more)).message());
  };
  EXPECT_THAT(refusal({"--worker", "unix:/a"}), HasSubstr("or --replica-names"));
  EXPECT_THAT(refusal({"--replicas", "2"}), HasSubstr("--replicas: --replica-names has a worker"));
  EXPECT_THAT(refusal({"--npu-prompts"}), HasSubstr("--npu-prompts and --replica-names"));
  EXPECT_EQ(refusal({}), "");
  EXPECT_FALSE(flags_.found->found()) << "no socket is there";
  for (const char* number : {"1", "2"}) std::ofstream(folder.path() + "/gpu" + number + ".sock");
  EXPECT_EQ(refusal({}), "");
  ASSERT_EQ(flags_.replicas.size(), 2u);
  EXPECT_EQ(flags_.replicas[1].key(), "unix:" + folder.path() + "/gpu2.sock");
  EXPECT_THAT(
      std::string(
          ParseAlone({"--port", "1", "--replica-names", "tls://w-{}.invalid:7001"}).message()),
      HasSubstr("--replica-names"));
}

TEST_F(GatewayFlagsTest, HostsOfPicturesAreAListThatIsChecked) {
  ASSERT_TRUE(Parse({"--port", "1", "--fetch-images", "a.example,*.b.example:8443"}).ok());
  EXPECT_THAT(flags_.http.fetch_images, ElementsAre("a.example", "*.b.example:8443"));
  EXPECT_THAT(
      std::string(Parse({"--port", "1", "--fetch-images", "a.example,https://b"}).message()),
      HasSubstr("'https://b' is no host"));
}

// As with tandem serve.
TEST_F(GatewayFlagsTest, PortZeroLeavesTheAddressesAlone) {
  const absl::Status status = Parse({"--listen", "unix:/gateway.sock", "--port", "0"});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(flags_.server.listen, ElementsAre("unix:/gateway.sock"));
}

TEST_F(GatewayFlagsTest, AnyFreePortIsAnAddress) {
  ASSERT_TRUE(Parse({"--listen", "127.0.0.1:0"}).ok());
  EXPECT_THAT(flags_.server.listen, ElementsAre("127.0.0.1:0"));
}

TEST_F(GatewayFlagsTest, SomewhereMustBeServed) {
  const absl::Status status = Parse({"--port", "0"});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--listen unix:PATH"));
}

TEST_F(GatewayFlagsTest, PortsEndAt65535) {
  EXPECT_THAT(std::string(Parse({"--port", "65536"}).message()), HasSubstr("--port"));
}

}  // namespace
}  // namespace tandem::gateway
