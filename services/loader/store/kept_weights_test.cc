// Loaders one after the other, with the service manager's store between them.
#include "services/loader/store/kept_weights.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <functional>

#include "services/common/base/shared_memory.h"
#include "services/common/systemd/testing/fake_service_manager.h"
#include "services/common/testing/paths.h"
#include "services/common/testing/temporary_directory.h"
#include "services/loader/store/model_store.h"

namespace tandem::loader {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<ino_t> Inodes(const ResidentModel& model) {
  std::vector<ino_t> inodes;
  for (const SealedRegion& region : model.regions) {
    struct stat info {};
    EXPECT_EQ(::fstat(region.fd.get(), &info), 0);
    inodes.push_back(info.st_ino);
  }
  return inodes;
}

class KeptWeightsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"demo.Q4_0.gguf", "other.gguf"}) {
      std::filesystem::copy_file(TestDataPath("demo.Q4_0.gguf"), root_ + "/" + name);
    }
    ::setenv("NOTIFY_SOCKET", fake_.socket().c_str(), 1);
    manager_ = std::make_unique<ServiceManager>(ServiceManager::FromEnvironment());
    ::unsetenv("NOTIFY_SOCKET");
    StartLoader();
  }
  void TearDown() override { store_.reset(); }

  // The store as the next loader finds it; `edit` may spoil it first.
  void StartLoader(const std::function<void(std::vector<InheritedDescriptor>&)>& edit = nullptr,
                   uint64_t max_region_bytes = 1 << 20) {
    store_.reset();
    std::vector<InheritedDescriptor> inherited = Inherited();
    if (edit) edit(inherited);
    auto store =
        ModelStore::Create({.roots = {root_}, .packing = {.max_region_bytes = max_region_bytes}},
                           std::make_shared<KeptWeights>(*manager_, std::move(inherited)));
    ASSERT_TRUE(store.ok()) << store.status();
    store_ = *std::move(store);
  }
  std::vector<InheritedDescriptor> Inherited() {
    Settle();
    const std::vector<std::string> names = fake_.StoredNames();
    const std::vector<int> fds = fake_.StoredDescriptors();
    std::vector<InheritedDescriptor> inherited;
    for (size_t i = 0; i < names.size(); ++i) {
      inherited.push_back({names[i], UniqueFd(::fcntl(fds[i], F_DUPFD_CLOEXEC, 0))});
    }
    return inherited;
  }
  void Settle() { ASSERT_TRUE(manager_->Barrier(absl::Seconds(60)).ok()); }

  // `packed`: whether it had to be.
  std::shared_ptr<const ResidentModel> Load(const std::string& name, bool* packed = nullptr) {
    bool any = false;
    const auto model = store_->Load(name, [&any](const PackProgress& progress) {
      any |= progress.phase == "packed";
      return true;
    });
    EXPECT_TRUE(model.ok()) << model.status();
    if (packed != nullptr) *packed = any;
    return *model;
  }
  // A loader that finds nothing usable packs again, and leaves none of the old at the manager.
  void ExpectForgotten() {
    EXPECT_THAT(store_->GetStatus().models, IsEmpty());
    Settle();
    EXPECT_THAT(fake_.StoredNames(), IsEmpty());
    bool packed = false;
    Load("demo.Q4_0", &packed);
    EXPECT_TRUE(packed);
  }

  const TemporaryDirectory temporary_;
  const std::string root_ = temporary_.path();
  testing::FakeServiceManager fake_;
  std::unique_ptr<ServiceManager> manager_;
  std::unique_ptr<ModelStore> store_;
};

TEST_F(KeptWeightsTest, TheNextLoaderHasTheSameMemoryAtOnce) {
  const std::vector<ino_t> before = Inodes(*Load("demo.Q4_0"));
  ASSERT_GT(before.size(), 2u) << "several regions, to tell apart";
  const std::string id = store_->GetStatus().models.at(0).model_id;
  StartLoader();
  ASSERT_THAT(store_->GetStatus().models, SizeIs(1)) << "before anybody asks for it";
  EXPECT_TRUE(store_->Acquire(id, "a worker that comes back").ok());
  bool packed = true;
  const auto model = Load("demo.Q4_0", &packed);
  EXPECT_FALSE(packed);
  EXPECT_EQ(Inodes(*model), before);
  EXPECT_EQ(model->model_id, id);
}

TEST_F(KeptWeightsTest, ManyLoadersInTurnKeepIt) {
  const std::vector<ino_t> before = Inodes(*Load("demo.Q4_0"));
  Settle();
  const size_t stored = fake_.StoredNames().size();
  for (int i = 0; i < 3; ++i) StartLoader();
  EXPECT_EQ(Inodes(*Load("demo.Q4_0")), before);
  Settle();
  EXPECT_THAT(fake_.StoredNames(), SizeIs(stored));
}

TEST_F(KeptWeightsTest, AnotherModelTakesThePlaceOfAnIdleOne) {
  Load("demo.Q4_0");
  StartLoader();
  const std::string other = Load("other")->model_id;
  Settle();
  EXPECT_THAT(fake_.StoredNames(), Each(AnyOf("weights." + other, "manifest." + other)));
  EXPECT_THAT(store_->GetStatus().models, SizeIs(1));
}

TEST_F(KeptWeightsTest, AModelWhoseFileHasChangedIsDropped) {
  Load("demo.Q4_0");
  std::filesystem::last_write_time(root_ + "/demo.Q4_0.gguf",
                                   std::filesystem::file_time_type::clock::now());
  StartLoader();
  ExpectForgotten();
}

TEST_F(KeptWeightsTest, AModelWhoseFileIsGoneIsDropped) {
  Load("other");
  std::filesystem::remove(root_ + "/other.gguf");
  StartLoader();
  ExpectForgotten();
}

TEST_F(KeptWeightsTest, AModelThatWouldBePackedDifferentlyIsDropped) {
  Load("demo.Q4_0");
  StartLoader(nullptr, 2 << 20);
  ExpectForgotten();
}

TEST_F(KeptWeightsTest, AStoreThatIsNotWholeIsDropped) {
  Load("demo.Q4_0");
  // Newest first: the manifest, then the regions from the last to the first.
  for (const size_t missing : {0, 1, 2}) {
    SCOPED_TRACE(missing);
    StartLoader([missing](auto& inherited) { inherited.erase(inherited.begin() + missing); });
    ExpectForgotten();
  }
}

// What one who could write to the store would have to get past.
class KeptManifestTest : public KeptWeightsTest {
 protected:
  static UniqueFd SealedText(const std::string& text) {
    const UniqueFd fd = CreateSharedMemory("manifest", std::max<size_t>(text.size(), 1)).value();
    EXPECT_EQ(::pwrite(fd.get(), text.data(), text.size(), 0), static_cast<ssize_t>(text.size()));
    EXPECT_EQ(
        ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL | F_SEAL_WRITE),
        0);
    return ReopenReadOnly(fd.get()).value();
  }
  // Whether a model of one region, `fd`, that its manifest describes as it is (but for `bytes`
  // more) is believed.
  bool Believes(const UniqueFd& fd, uint64_t more_bytes = 0) {
    struct stat info {};
    EXPECT_EQ(::fstat(fd.get(), &info), 0);
    return Believes(
        SealedText("tandem weights 1\nname demo\nkey 1 2\nregion " +
                   std::to_string(info.st_size + more_bytes) + " " + std::to_string(info.st_ino) +
                   " " + std::to_string(::fcntl(fd.get(), F_GET_SEALS)) + " 0\n"),
        fd);
  }
  bool Believes(UniqueFd manifest, const UniqueFd& fd) {
    std::vector<InheritedDescriptor> inherited;
    inherited.push_back({"manifest.1", std::move(manifest)});
    inherited.push_back({"weights.1", UniqueFd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0))});
    return !KeptWeights(*manager_, std::move(inherited)).TakeInherited().empty();
  }
};

TEST_F(KeptManifestTest, RegionsThatCouldHaveChangedAreNotBelieved) {
  const UniqueFd unsealed = CreateSharedMemory("unsealed", 4096).value();
  EXPECT_FALSE(Believes(ReopenReadOnly(unsealed.get()).value()));
  const UniqueFd writable = CreateSharedMemory("writable", 4096).value();
  ASSERT_TRUE(SealSize(writable.get()).ok());
  EXPECT_FALSE(Believes(writable));
  const UniqueFd sealed = ReopenReadOnly(writable.get()).value();
  EXPECT_TRUE(Believes(sealed));
  EXPECT_FALSE(Believes(sealed, 1)) << "of another size";
  EXPECT_FALSE(Believes(UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC))));
}

TEST_F(KeptManifestTest, ManifestsOfAnotherFormatAreNotBelieved) {
  const UniqueFd region = CreateSharedMemory("region", 4096).value();
  for (const char* text :
       {"tandem weights 2\nname demo\n", "tandem weights 1\n", "tandem weights 1\nname a\n",
        "tandem weights 1\nname a\nkey 1 2\nregion x\n", "tandem weights 1\nelse\n", ""}) {
    EXPECT_FALSE(Believes(SealedText(text), region)) << text;
  }
  EXPECT_FALSE(Believes(UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC)), region));
}

TEST_F(KeptWeightsTest, WhatIsNotOursIsRemoved) {
  const UniqueFd memory = CreateSharedMemory("else", 4096).value();
  ASSERT_TRUE(manager_->StoreDescriptors("something-else", {{memory.get()}}).ok());
  StartLoader();
  ExpectForgotten();
}

TEST_F(KeptWeightsTest, WithoutAManagerWeightsAreServedAsEver) {
  const ServiceManager nobody;
  auto store =
      ModelStore::Create({.roots = {root_}},
                         std::make_shared<KeptWeights>(nobody, std::vector<InheritedDescriptor>()));
  ASSERT_TRUE(store.ok()) << store.status();
  const auto model = (*store)->Load("demo.Q4_0", nullptr);
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ((*model)->hold, nullptr);
}

}  // namespace
}  // namespace tandem::loader
