#include "tools/tandem/serve/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>

#include "absl/strings/str_format.h"
#include "services/common/base/exit_codes.h"
#include "services/common/rpc/worker_absence.h"
#include "services/loader/formats/testing/vision_builder.h"

namespace tandem {
namespace {

class ClusterTest : public testing::Test {
 protected:
  ClusterTest() {
    dir_ = std::filesystem::temp_directory_path() / absl::StrFormat("cluster.%d", getpid());
    std::filesystem::create_directories(dir_);
    std::ofstream(dir_ / "m.gguf") << "x";
    options_.model = dir_ / "m.gguf";
    options_.bin_dir = dir_ / "bin";
    std::filesystem::create_directories(options_.bin_dir);
    std::ofstream(dir_ / "bin" / "tandem-npu-worker") << "";
    std::filesystem::permissions(dir_ / "bin" / "tandem-npu-worker",
                                 std::filesystem::perms::owner_all);
    options_.runtime_dir = dir_ / "run";
    options_.log_dir = dir_ / "run" / "logs";
  }
  ~ClusterTest() override { std::filesystem::remove_all(dir_); }

  std::filesystem::path dir_;
  ClusterOptions options_;
};

TEST_F(ClusterTest, DescribesFourServicesAndStopsTheGatewayFirst) {
  const auto services = PlanCluster(options_);
  ASSERT_TRUE(services.ok()) << services.status();
  ASSERT_EQ(services->size(), 4u);
  const ServiceSpec& gateway = services->back();
  EXPECT_EQ(gateway.process.argv[0], options_.bin_dir + "/tandem-gateway");
  EXPECT_THAT(gateway.process.argv, testing::IsSupersetOf({"--model", "m.gguf", "prefer"}));
  for (const ServiceSpec& service : *services) {
    if (service.process.name == "gateway") continue;
    EXPECT_LT(service.stop_rank, gateway.stop_rank);
  }
  struct stat info {};
  ASSERT_EQ(stat(options_.runtime_dir.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777u, 0700u);
}

TEST_F(ClusterTest, EachGpuHasAWorkerAndAReplica) {
  options_.gpu_devices = {"0", "2"};
  const auto services = PlanCluster(options_);
  ASSERT_TRUE(services.ok()) << services.status();
  ASSERT_EQ(services->size(), 5u);
  EXPECT_THAT((*services)[1].process.argv, testing::IsSupersetOf({"gpu0", "--device", "0"}));
  EXPECT_EQ((*services)[2].process.name, "gpu_worker1");
  EXPECT_THAT((*services)[2].process.argv, testing::IsSupersetOf({"gpu1", "--device", "2"}));
  EXPECT_THAT(services->back().process.argv,
              testing::IsSupersetOf({"unix:" + options_.runtime_dir + "/gpu.sock",
                                     "unix:" + options_.runtime_dir + "/gpu1.sock",
                                     std::string("--replicas"), std::string("2")}));
  options_.split = true;
  const auto split = PlanCluster(options_);
  ASSERT_TRUE(split.ok()) << split.status();
  EXPECT_THAT(split->back().process.argv, testing::IsSupersetOf({"--gpus", "0"}));
  EXPECT_THAT(split->back().process.argv, testing::Not(testing::Contains("--replicas")));
}

TEST_F(ClusterTest, TheListOfGpusIsReadByLine) {
  const auto devices = ListedGpus("0\tNVIDIA H200\n3\tAMD Radeon 8060S\n");
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_THAT(*devices, testing::ElementsAre("0", "3"));
  EXPECT_EQ(ListedGpus("").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ClusterTest, ADraftModelIsLoadedFromItsOwnFolder) {
  std::filesystem::create_directories(dir_ / "drafts");
  std::ofstream(dir_ / "drafts" / "small.gguf") << "x";
  options_.draft = dir_ / "drafts" / "small.gguf";
  options_.draft_device = "npu";
  options_.speculate = "lookup,draft";
  const auto services = PlanCluster(options_);
  ASSERT_TRUE(services.ok()) << services.status();
  EXPECT_THAT(services->front().process.argv,
              testing::IsSupersetOf({dir_.string(), (dir_ / "drafts").string()}));
  EXPECT_THAT(services->back().process.argv,
              testing::IsSupersetOf({"--draft", "small.gguf", "--draft-device", "npu",
                                     "--speculate", "lookup,draft"}));
}

// What `hf download REPO FILE.gguf` prints is a link in its cache.
TEST_F(ClusterTest, AFileOfTheHubsCacheKeepsTheNameOfItsLink) {
  const std::filesystem::path snapshot = dir_ / "hub/snapshots/rev";
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_directories(dir_ / "hub/blobs");
  std::ofstream(dir_ / "hub/blobs/0123abcd") << "x";
  std::filesystem::create_symlink("../../blobs/0123abcd", snapshot / "model-Q8_0.gguf");
  std::filesystem::create_symlink(snapshot / "model-Q8_0.gguf", dir_ / "mine.gguf");
  for (const std::filesystem::path& path : {snapshot / "model-Q8_0.gguf", dir_ / "mine.gguf"}) {
    options_.model = path;
    const auto services = PlanCluster(options_);
    ASSERT_TRUE(services.ok()) << services.status();
    EXPECT_THAT(services->back().process.argv,
                testing::IsSupersetOf({"--model", "model-Q8_0.gguf"}));
    const auto& loader = services->front().process.argv;
    const auto root = std::find(loader.begin(), loader.end(), "--root");
    ASSERT_GE(loader.end() - root, 4);
    EXPECT_EQ(root[1], snapshot.string()) << "where its mmproj file lies";
    EXPECT_EQ(root[2], "--root");
    EXPECT_EQ(root[3], (dir_ / "hub/blobs").string());
  }
  // A link to a file with a name of its own: as before, that name.
  std::filesystem::create_symlink("m.gguf", dir_ / "current.gguf");
  const auto place = FindModel(dir_ / "current.gguf");
  ASSERT_TRUE(place.ok()) << place.status();
  EXPECT_EQ(place->name, "m.gguf");
  EXPECT_EQ(place->target_root, "");
}

TEST_F(ClusterTest, TheLoaderIsToldOfAVisionEncoderElsewhere) {
  std::filesystem::create_directories(dir_ / "vision");
  const std::filesystem::path file = dir_ / "vision" / "eyes.gguf";
  std::ofstream(file, std::ios::binary) << loader::testing::SmallMmproj().Build();
  options_.mmproj = file;
  auto services = PlanCluster(options_);
  ASSERT_TRUE(services.ok()) << services.status();
  EXPECT_THAT(services->front().process.argv,
              testing::IsSupersetOf({std::string("--mmproj"), "m.gguf=" + file.string()}));
  options_.mmproj = "none";
  services = PlanCluster(options_);
  ASSERT_TRUE(services.ok()) << services.status();
  EXPECT_THAT(services->front().process.argv, testing::Contains("m.gguf=none"));
  options_.mmproj = options_.model;
  EXPECT_THAT(std::string(PlanCluster(options_).status().message()),
              testing::HasSubstr("is no mmproj file"));
  options_.mmproj = dir_ / "nothing.gguf";
  EXPECT_TRUE(absl::IsNotFound(PlanCluster(options_).status()));
}

TEST_F(ClusterTest, ADraftModelWithTheNameOfAnotherFileIsRefused) {
  std::filesystem::create_directories(dir_ / "drafts");
  std::ofstream(dir_ / "drafts" / "m.gguf") << "x";
  options_.draft = dir_ / "drafts" / "m.gguf";
  const absl::Status status = PlanCluster(options_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr((dir_ / "m.gguf").string()));
}

TEST_F(ClusterTest, APulledModelIsFoundByItsName) {
  const std::filesystem::path models = dir_ / "models";
  ::setenv("TANDEM_MODELS", models.c_str(), 1);
  options_.model = "hf:owner/repo:toy-Q8_0.gguf";
  const absl::Status missing = PlanCluster(options_).status();
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()),
              testing::HasSubstr("`tandem pull hf:owner/repo:toy-Q8_0.gguf`"));
  std::filesystem::create_directories(models / "owner" / "repo");
  std::ofstream(models / "owner" / "repo" / "toy-Q8_0.gguf") << "x";
  const auto services = PlanCluster(options_);
  ASSERT_TRUE(services.ok()) << services.status();
  EXPECT_THAT(services->front().process.argv,
              testing::IsSupersetOf({std::string("--root"), (models / "owner" / "repo").string()}));
  EXPECT_THAT(services->back().process.argv,
              testing::IsSupersetOf({std::string("--model"), std::string("toy-Q8_0.gguf"),
                                     std::string("--alias"), options_.model}));
  // A word that is no name of a model is a path.
  options_.model = "nothing";
  EXPECT_THAT(std::string(PlanCluster(options_).status().message()),
              testing::HasSubstr("No such file"));
  // The size is known, and how to get it.
  options_.model = "gemma3:27b";
  EXPECT_THAT(std::string(PlanCluster(options_).status().message()),
              testing::HasSubstr("`tandem pull gemma3:27b`"));
  ::unsetenv("TANDEM_MODELS");
}

TEST_F(ClusterTest, OnlyAnOptionalNpuMayBeMissing) {
  for (const NpuPolicy policy :
       {NpuPolicy::kAuto, NpuPolicy::kPrefer, NpuPolicy::kRequire, NpuPolicy::kEmulate}) {
    options_.npu = policy;
    const auto services = PlanCluster(options_);
    ASSERT_TRUE(services.ok());
    const bool optional = policy == NpuPolicy::kAuto || policy == NpuPolicy::kPrefer;
    for (const ExitCode code : {kExitNothingToDo, kExitWrongAnswers}) {
      EXPECT_EQ((*services)[2].final_exit_codes.contains(code), optional) << code;
    }
    EXPECT_TRUE((*services)[2].fatal_exit_codes.contains(kExitWrongAnswers)) << "never silent";
    EXPECT_EQ(static_cast<bool>((*services)[2].give_up), optional);
    for (const size_t other : {0, 1, 3}) EXPECT_FALSE((*services)[other].give_up);
    if (!optional) continue;
    (*services)[2].give_up("libxrt.so.2 is missing");
    const auto absence = ReadAbsence("unix:" + options_.runtime_dir + "/npu.sock");
    ASSERT_TRUE(absence.has_value());
    EXPECT_EQ(absence->kind, "npu");
    EXPECT_EQ(absence->reason, "libxrt.so.2 is missing");
  }
}

TEST_F(ClusterTest, ANpuWorkerThatIsNotInstalledIsAbsentWhereItIsOptional) {
  const std::string target = "unix:" + options_.runtime_dir + "/npu.sock";
  std::filesystem::remove(dir_ / "bin" / "tandem-npu-worker");
  const auto preferred = PlanCluster(options_);
  ASSERT_TRUE(preferred.ok()) << preferred.status();
  EXPECT_EQ(preferred->size(), 3u);
  EXPECT_THAT(preferred->back().process.argv, testing::Contains(target));
  const auto absence = ReadAbsence(target);
  ASSERT_TRUE(absence.has_value());
  EXPECT_THAT(absence->reason, testing::HasSubstr("tandem-npu-worker is not installed"));
  options_.npu = NpuPolicy::kRequire;
  const auto required = PlanCluster(options_);
  ASSERT_TRUE(required.ok()) << required.status();
  EXPECT_EQ(required->size(), 4u) << "its start fails and says so";
  EXPECT_FALSE(ReadAbsence(target).has_value()) << "the note of the run before is gone";
}

TEST_F(ClusterTest, ASyntheticModelNeedsNoFileButARightName) {
  options_.model = "synthetic:gemma3-1b?type=q8_0";
  const auto services = PlanCluster(options_);
  ASSERT_TRUE(services.ok()) << services.status();
  EXPECT_THAT(services->front().process.argv,
              testing::IsSupersetOf({std::string("--root"), options_.runtime_dir}));
  EXPECT_THAT(services->back().process.argv,
              testing::IsSupersetOf({std::string("--model"), options_.model}));
  options_.model = "synthetic:gemma3-2b";
  EXPECT_EQ(PlanCluster(options_).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ClusterTest, EveryServiceHasAPageForPrometheusWhereThatIsAskedFor) {
  const auto pages = [this] {
    std::set<std::string> addresses;
    const auto services = PlanCluster(options_).value();
    for (const ServiceSpec& service : services) {
      const auto& argv = service.process.argv;
      const auto flag = std::find(argv.begin(), argv.end(), "--metrics");
      if (flag != argv.end()) addresses.insert(*std::next(flag));
    }
    return addresses;
  };
  EXPECT_THAT(pages(), testing::IsEmpty());
  options_.metrics = true;
  EXPECT_THAT(pages(), testing::ElementsAre("127.0.0.1:9464", "127.0.0.1:9465", "127.0.0.1:9466",
                                            "127.0.0.1:9467"));
  options_.metrics_port = 20000;
  EXPECT_THAT(pages(), testing::ElementsAre("127.0.0.1:20000", "127.0.0.1:20001", "127.0.0.1:20002",
                                            "127.0.0.1:20003"));
}

TEST_F(ClusterTest, OffStartsNoNpuWorker) {
  options_.npu = NpuPolicy::kOff;
  const auto services = PlanCluster(options_);
  ASSERT_TRUE(services.ok());
  EXPECT_EQ(services->size(), 3u);
  const std::vector<std::string>& gateway = services->back().process.argv;
  const auto flag = std::find(gateway.begin(), gateway.end(), "--npu-worker");
  ASSERT_GE(gateway.end() - flag, 2) << "the gateway reports it as absent";
  EXPECT_EQ(flag[1], "unix:" + options_.runtime_dir + "/npu.sock");
}

TEST_F(ClusterTest, RefusesAMissingModelAndARuntimeDirectoryTooLongForSockets) {
  options_.runtime_dir = dir_ / std::string(100, 'r');
  EXPECT_EQ(PlanCluster(options_).status().code(), absl::StatusCode::kInvalidArgument);
  options_.model = dir_ / "absent.gguf";
  EXPECT_EQ(PlanCluster(options_).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace tandem
