#include "services/loader/store/model_store.h"
#include "services/common/testing/paths.h"
#include "services/common/testing/temporary_directory.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tandem::loader {
namespace {

size_t OpenDescriptors() {
  const std::filesystem::directory_iterator entries("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

class ModelStoreTest : public testing::Test {
 protected:
  void SetUp() override { Create({}); }
  void Create(ModelStore::Options options) {
    options.roots = {TestDataPath("")};
    auto store = ModelStore::Create(options);
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  std::shared_ptr<const ResidentModel> Load(const std::string& name) {
    auto model = store_->Load(name, nullptr);
    EXPECT_TRUE(model.ok()) << model.status();
    return *model;
  }

  std::unique_ptr<ModelStore> store_;
};

TEST_F(ModelStoreTest, LoadingTheSameContentAgainPacksNothing) {
  const auto first = Load("demo.Q4_0.gguf");
  EXPECT_EQ(Load("demo.Q4_0"), first);
  EXPECT_TRUE(store_->IsResident(first->path));
}

TEST_F(ModelStoreTest, WeightRegionsAreSealedForGood) {
  for (const SealedRegion& region : Load("demo.Q4_0")->regions) {
    const int seals = ::fcntl(region.fd.get(), F_GET_SEALS);
    EXPECT_EQ(seals & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL),
              F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    EXPECT_EQ(::fcntl(region.fd.get(), F_GETFL) & O_ACCMODE, O_RDONLY);
  }
}

TEST_F(ModelStoreTest, FiftyRoundsOfLoadLeaseAndReleaseLeaveNoDescriptors) {
  const auto round = [this](const char* name) {
    const auto grant = store_->Acquire(Load(name)->model_id, "test").value();
    const uint32_t id = store_->leases().CreateRegion(grant.token, 4096, "exchange").value();
    EXPECT_TRUE(store_->leases().GetRegion({grant.token, RegionKind::kLeaseRegion, id}).ok());
    EXPECT_TRUE(store_->leases().GetRegion({grant.token, RegionKind::kWeights, 0}).ok());
    store_->leases().Release(grant.token);
    store_->leases().Release(grant.token);
  };
  round("demo.Q4_0");
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 50; ++i) round(i % 2 == 0 ? "random-1b-shape" : "demo.Q4_0");
  EXPECT_EQ(OpenDescriptors(), before);
  EXPECT_EQ(store_->GetStatus().models.size(), 1u);
  EXPECT_EQ(store_->GetStatus().exchange_bytes, 0u);
}

class CachedModelStoreTest : public ModelStoreTest {
 protected:
  void SetUp() override { Start(directory_ + "/packed"); }

  void Start(const std::string& folder) {
    Create({.packed_cache = {.folder = folder, .min_free_bytes = 0}, .min_cached_bytes = 0});
  }
  // What a load reports at its end: "packed" or "read".
  std::string LastPhase(const std::string& name) {
    std::string last;
    const auto model = store_->Load(name, [&](const PackProgress& progress) {
      last = progress.phase;
      return true;
    });
    EXPECT_TRUE(model.ok()) << model.status();
    store_->WaitForCache();
    return last;
  }
  std::string File() const {
    const std::filesystem::directory_iterator files(directory_ + "/packed");
    return begin(files) == end(files) ? "" : begin(files)->path().string();
  }

  const TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path();
};

TEST_F(CachedModelStoreTest, TheNextLoaderReadsWhatThisOnePacked) {
  EXPECT_EQ(LastPhase("demo.Q4_0"), "packed");
  Start(directory_ + "/packed");
  EXPECT_EQ(LastPhase("demo.Q4_0"), "read");
  EXPECT_EQ(LastPhase("demo"), "packed") << "another file";
}

TEST_F(CachedModelStoreTest, DamagedWeightsArePackedAgain) {
  LastPhase("demo.Q4_0");
  const std::string file = File();
  ASSERT_NE(file, "");
  std::filesystem::resize_file(file, 10'000);
  Start(directory_ + "/packed");
  EXPECT_EQ(LastPhase("demo.Q4_0"), "packed");
  EXPECT_GT(std::filesystem::file_size(file), 10'000u) << "and kept again";
}

TEST_F(CachedModelStoreTest, SyntheticModelsAreNotKept) {
  EXPECT_EQ(LastPhase("synthetic:gemma3-270m?layers=1&vocab=500"), "packed");
  EXPECT_EQ(File(), "");
}

TEST_F(CachedModelStoreTest, WithoutAUsableFolderModelsArePackedAsEver) {
  std::ofstream(directory_ + "/file") << "no folder";
  for (const char* folder : {"/file", "/file/below"}) {
    Start(directory_ + folder);
    EXPECT_EQ(LastPhase("demo.Q4_0"), "packed");
  }
}

TEST_F(ModelStoreTest, StatusCountsWhatIsHeld) {
  const auto model = Load("demo.Q4_0");
  const auto grant = store_->Acquire(model->model_id, std::string(1000, 'h')).value();
  ASSERT_TRUE(store_->leases().CreateRegion(grant.token, 4096, "exchange").ok());
  const StoreStatus status = store_->GetStatus();
  ASSERT_EQ(status.models.size(), 1u);
  EXPECT_EQ(status.models[0].num_leases, 1u);
  EXPECT_EQ(status.weight_bytes, model->weight_bytes);
  ASSERT_EQ(status.leases.size(), 1u);
  EXPECT_EQ(status.leases[0].holder.size(), 128u);
  EXPECT_EQ(status.exchange_bytes, 4096u);
  EXPECT_EQ(status.num_regions, model->regions.size() + 1);
}

}  // namespace
}  // namespace tandem::loader
