#include "services/loader/service/loader_service.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "services/common/rpc/loader_client.h"
#include "services/common/rpc/server.h"
#include "services/common/testing/eventually.h"
#include "services/common/testing/paths.h"
#include "services/common/testing/temporary_directory.h"
#include "services/common/weights/dequantize.h"
#include "services/loader/formats/open_model.h"
#include "services/loader/packing/packing_check.h"

namespace tandem::loader {
namespace {

using tandem::testing::Eventually;

constexpr char kDemo[] = "demo.Q8_0.gguf";
const std::string kDemoFolder = SourcePath("models/demo");

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

class LoaderServiceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    target_ = "unix:" + directory_ + "/l.sock";
    StartLoader();
    client_ = LoaderClient::Create(target_).value();
  }
  void TearDown() override {
    client_.reset();
    StopLoader();
  }

  void StartLoader() {
    ModelStore::Options options;
    options.roots = {kDemoFolder, TestDataPath("")};
    options.packing.max_region_bytes = 2 << 20;
    store_ = ModelStore::Create(options).value();
    RegionServer::Options regions;
    regions.socket_path = directory_ + "/l.sock.fds";
    regions_ = RegionServer::Start(regions, [this](const RegionRequest& request) {
                 return store_->leases().GetRegion(request);
               }).value();
    service_ = std::make_unique<LoaderService>(store_.get());
    server_ =
        Server::Start({.listen = {target_}}, {{v1::Loader::service_full_name(), service_.get()}})
            .value();
  }
  void StopLoader() {
    if (server_ == nullptr) return;
    service_->Drain();
    server_->Shutdown(absl::Seconds(5));
    server_.reset();
    service_.reset();
    regions_.reset();
    store_.reset();
  }

  v1::Model LoadDemo() { return client_->LoadModel(kDemo).value(); }
  std::unique_ptr<tandem::Lease> LeaseDemo() {
    return client_->AcquireLease(LoadDemo().model_id(), "test").value();
  }

  const TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path();
  std::string target_;
  std::unique_ptr<ModelStore> store_;
  std::unique_ptr<RegionServer> regions_;
  std::unique_ptr<LoaderService> service_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<LoaderClient> client_;
};

TEST_F(LoaderServiceTest, AClientGetsTheVeryNumbersOfTheFile) {
  std::vector<std::string> phases;
  const auto model = client_->LoadModel(kDemo, [&](const v1::LoadProgress& progress) {
    phases.push_back(progress.phase());
    EXPECT_LE(progress.done_bytes(), progress.total_bytes());
    return true;
  });
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_FALSE(phases.empty());
  EXPECT_EQ(model->name(), kDemo);
  EXPECT_GT(model->source_bytes(), 1u << 20);
  EXPECT_FALSE(model->chat_template().empty());
  const auto lease = client_->AcquireLease(model->model_id(), "test");
  ASSERT_TRUE(lease.ok()) << lease.status();
  const auto weights = client_->FetchWeights(**lease);
  ASSERT_TRUE(weights.ok()) << weights.status();
  EXPECT_GT((*weights)->regions().size(), 1u);
  const auto source = OpenModelSource(kDemoFolder + "/" + kDemo);
  ASSERT_TRUE(source.ok()) << source.status();
  ExpectPackedEqualsSource(**weights, **source);
  const auto vocabulary = client_->ReadVocabulary(*model);
  ASSERT_TRUE(vocabulary.ok()) << vocabulary.status();
  EXPECT_EQ(vocabulary->pieces, (*source)->vocabulary().pieces);
  EXPECT_EQ(vocabulary->scores, (*source)->vocabulary().scores);
  EXPECT_EQ(vocabulary->types, (*source)->vocabulary().types);
  EXPECT_EQ(vocabulary->add_bos, (*source)->vocabulary().add_bos);
}

TEST_F(LoaderServiceTest, WeightsCannotBeWrittenByAClient) {
  const auto lease = LeaseDemo();
  const auto weights = client_->FetchWeights(*lease).value();
  for (const WeightRegion& region : weights->regions()) {
    EXPECT_FALSE(
        Mapping::Map(region.fd.get(), region.mapping.size(), Mapping::Access::kReadWrite).ok());
    EXPECT_NE(::mprotect(region.mapping.data(), region.mapping.size(), PROT_READ | PROT_WRITE), 0);
    EXPECT_NE(::ftruncate(region.fd.get(), 0), 0);
    EXPECT_LT(::write(region.fd.get(), "x", 1), 0);
    // Nor through a descriptor opened again for writing.
    const std::string path = "/proc/self/fd/" + std::to_string(region.fd.get());
    const UniqueFd again(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    if (again.valid()) {
      EXPECT_FALSE(
          Mapping::Map(again.get(), region.mapping.size(), Mapping::Access::kReadWrite).ok());
      EXPECT_LT(::pwrite(again.get(), "x", 1, 0), 0);
    }
  }
  EXPECT_DEATH(weights->regions()[0].mapping.data()[0] = std::byte{1}, "");
}

TEST_F(LoaderServiceTest, ExchangeRegionsAreSharedByTokenAndZeroed) {
  const auto lease = LeaseDemo();
  const auto id = client_->CreateRegion(*lease, 10'000, "exchange");
  ASSERT_TRUE(id.ok()) << id.status();
  const auto mine = client_->FetchRegion(lease->token(), *id);
  ASSERT_TRUE(mine.ok()) << mine.status();
  EXPECT_GE(mine->bytes, 10'000u);
  const auto other_client = LoaderClient::Create(target_).value();
  const auto theirs = other_client->FetchRegion(lease->token(), *id);
  ASSERT_TRUE(theirs.ok()) << theirs.status();
  auto writer = Mapping::Map(mine->fd.get(), mine->bytes, Mapping::Access::kReadWrite).value();
  auto reader = Mapping::Map(theirs->fd.get(), theirs->bytes, Mapping::Access::kReadWrite).value();
  EXPECT_EQ(reader.data()[9'999], std::byte{0});
  writer.data()[9'999] = std::byte{7};
  EXPECT_EQ(reader.data()[9'999], std::byte{7});
  EXPECT_EQ(client_->FetchRegion(lease->token(), *id + 1).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(client_->FetchRegion(std::string(kLeaseTokenBytes, 'x'), 0).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(LoaderServiceTest, RegionSizesAreBounded) {
  const auto lease = LeaseDemo();
  EXPECT_EQ(client_->CreateRegion(*lease, 0, "x").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(client_->CreateRegion(*lease, ~0ull, "x").status().code(),
            absl::StatusCode::kInvalidArgument);
  absl::Status last;
  for (int i = 0; i < 70; ++i) last = client_->CreateRegion(*lease, 1, "x").status();
  EXPECT_EQ(last.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_LE(store_->GetStatus().num_regions, 64 + lease->model().region_bytes_size());
}

TEST_F(LoaderServiceTest, AnEndedLeaseIsWorthless) {
  auto lease = LeaseDemo();
  const std::string token = lease->token();
  const uint32_t id = client_->CreateRegion(*lease, 4096, "exchange").value();
  lease.reset();
  ASSERT_TRUE(Eventually([&] { return store_->GetStatus().leases.empty(); }));
  EXPECT_EQ(client_->FetchRegion(token, id).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->GetStatus().exchange_bytes, 0u);
  EXPECT_EQ(store_->GetStatus().models.size(), 1u) << "the last model stays";
}

TEST_F(LoaderServiceTest, ConcurrentLoadsOfOneModelShareOnePacking) {
  std::vector<std::thread> threads;
  std::vector<absl::StatusOr<v1::Model>> models(6, absl::UnknownError("not run"));
  for (auto& model : models) {
    threads.emplace_back([&] { model = LoaderClient::Create(target_).value()->LoadModel(kDemo); });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& model : models) {
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_EQ(model->load_seconds(), models[0]->load_seconds()) << "packed once";
  }
  EXPECT_EQ(store_->GetStatus().models.size(), 1u);
}

TEST_F(LoaderServiceTest, OneWhoGivesUpDoesNotStopTheLoadForOthers) {
  std::thread impatient([&] {
    const auto given_up = LoaderClient::Create(target_).value()->LoadModel(
        kDemo, [](const v1::LoadProgress&) { return false; });
    EXPECT_TRUE(given_up.ok() || absl::IsCancelled(given_up.status())) << given_up.status();
  });
  const auto model = client_->LoadModel(kDemo);
  EXPECT_TRUE(model.ok()) << model.status();
  impatient.join();
}

TEST_F(LoaderServiceTest, AnotherModelReplacesTheIdleOneButNotALeasedOne) {
  const v1::Model demo = LoadDemo();
  auto lease = client_->AcquireLease(demo.model_id(), "test").value();
  ASSERT_TRUE(client_->LoadModel("random-1b-shape").ok());
  EXPECT_EQ(store_->GetStatus().models.size(), 2u);
  lease.reset();
  ASSERT_TRUE(Eventually([&] { return store_->GetStatus().models.size() == 1; }));
  EXPECT_EQ(store_->GetStatus().models[0].name, "random-1b-shape");
  EXPECT_EQ(client_->AcquireLease(demo.model_id(), "test").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(LoaderServiceTest, MappingsOutliveTheLoader) {
  const auto lease = LeaseDemo();
  const auto weights = client_->FetchWeights(*lease).value();
  const PackedTensor& embedding = *weights->Find(WeightRole::kEmbedding);
  std::vector<float> before(embedding.shape.cols), after(embedding.shape.cols);
  DequantizeRow(*weights, embedding, 1, before);
  EXPECT_TRUE(lease->alive());
  StopLoader();
  ASSERT_TRUE(Eventually([&] { return !lease->alive(); }));
  DequantizeRow(*weights, embedding, 1, after);
  EXPECT_EQ(before, after);
  EXPECT_EQ(client_->GetStatus().status().code(), absl::StatusCode::kUnavailable);
  StartLoader();  // and the same client finds the next one
  ASSERT_TRUE(Eventually([&] { return client_->GetStatus().ok(); }));
}

TEST_F(LoaderServiceTest, UnknownAndEvilNamesAreRefused) {
  for (const std::string& name : {std::string("nothing-here"), std::string("demo/nothing")}) {
    EXPECT_EQ(client_->LoadModel(name).status().code(), absl::StatusCode::kNotFound) << name;
  }
  for (const std::string& name :
       {std::string(), std::string("../demo"), std::string("/etc/passwd"), std::string("a/../b"),
        std::string("demo\0.gguf", 10), std::string(2000, 'a'), std::string("a//b"),
        std::string("a\\b")}) {
    EXPECT_EQ(client_->LoadModel(name).status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(client_->AcquireLease("no such id", "test").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(LoaderServiceTest, ListsWhatTheRootsHold) {
  LoadDemo();
  const auto models = client_->ListModels();
  ASSERT_TRUE(models.ok()) << models.status();
  std::map<std::string, v1::ModelListing> by_name;
  for (const auto& listing : models->models()) by_name[listing.name()] = listing;
  ASSERT_TRUE(by_name.contains(kDemo));
  EXPECT_TRUE(by_name[kDemo].resident());
  EXPECT_EQ(by_name[kDemo].format(), "gguf");
  ASSERT_TRUE(by_name.contains("random-27b-shape"));
  EXPECT_FALSE(by_name["random-27b-shape"].resident());
  EXPECT_EQ(by_name["random-27b-shape"].format(), "safetensors");
}

// A client process that takes a lease, makes a region, fetches everything and then hangs.
pid_t SpawnClient(const std::string& target, const std::string& model_id) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  ::execl("/proc/self/exe", "client", "--hang", target.c_str(), model_id.c_str(), nullptr);
  ::_exit(127);
}

TEST_F(LoaderServiceTest, FiftyKilledClientsLeaveNothingBehind) {
  const std::string model_id = LoadDemo().model_id();
  const auto settled = [&] {
    EXPECT_TRUE(Eventually([&] { return store_->GetStatus().leases.empty(); }));
    return OpenDescriptors();
  };
  size_t before = 0;
  const uint32_t regions = store_->GetStatus().num_regions;
  for (int round = 0; round < 50; ++round) {
    const pid_t pid = SpawnClient(target_, model_id);
    ASSERT_GT(pid, 0);
    ASSERT_TRUE(Eventually([&] { return store_->GetStatus().exchange_bytes > 0; }));
    ASSERT_EQ(::kill(pid, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    ASSERT_TRUE(WIFSIGNALED(status));
    if (round == 0) before = settled();  // whatever gRPC opens once is open by now
  }
  settled();
  ASSERT_TRUE(Eventually([&] { return OpenDescriptors() <= before; }));
  EXPECT_EQ(store_->GetStatus().num_regions, regions);
  EXPECT_EQ(store_->GetStatus().exchange_bytes, 0u);
}

}  // namespace

int HangAsClient(const std::string& target, const std::string& model_id) {
  const auto client = LoaderClient::Create(target).value();
  const auto lease = client->AcquireLease(model_id, "doomed").value();
  const auto weights = client->FetchWeights(*lease).value();
  const uint32_t id = client->CreateRegion(*lease, 1 << 20, "exchange").value();
  const auto region = client->FetchRegion(lease->token(), id).value();
  while (true) ::pause();
}

}  // namespace tandem::loader

int main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "--hang") {
    return tandem::loader::HangAsClient(argv[2], argv[3]);
  }
  testing::InitGoogleTest(&argc, argv);
  GTEST_FLAG_SET(death_test_style, "fast");
  return RUN_ALL_TESTS();
}
