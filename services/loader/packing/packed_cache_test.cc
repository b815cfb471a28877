#include "services/loader/packing/packed_cache.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_format.h"
#include "services/common/rpc/loader_protocol.h"
#include "services/common/testing/status_matchers.h"
#include "services/common/testing/temporary_directory.h"
#include "services/loader/packing/packing_check.h"
#include "services/loader/packing/region_memory.h"
#include "services/loader/synthetic/synthetic_model.h"

namespace tandem::loader {
namespace {

namespace fs = std::filesystem;
using testing::HasCode;
using enum absl::StatusCode;

class PackedCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Open({});
    Model("synthetic:gemma3-270m?type=q4_0&layers=3&hidden=512&vocab=5001&ffn=1056");
  }

  void Open(PackedCacheOptions options) {
    options.folder = directory_ + "/packed";
    options.min_free_bytes = std::min<uint64_t>(options.min_free_bytes, 1 << 20);
    auto cache = PackedCache::Create(options);
    ASSERT_OK(cache.status());
    cache_ = *std::move(cache);
  }
  void Model(const std::string& name) {
    source_ = *OpenSynthetic(name);
    plan_ = *PlanPacking(source_->tensors(), source_->config(), 3 << 20);
    name_ = NameOf(source_->content_id(), plan_);
  }

  std::vector<Mapping> PackedRegions() {
    auto packed = PackModel(*source_, plan_, {}, nullptr);
    EXPECT_OK(packed.status());
    std::vector<Mapping> regions;
    for (const PackedRegion& region : packed->regions) {
      regions.push_back(*Mapping::Map(region.fd.get(), region.bytes, Mapping::Access::kReadOnly));
    }
    return regions;
  }
  absl::Status Write() {
    return cache_->Write(name_, PackedRegions(), [] { return true; });
  }
  absl::StatusOr<PackedModel> Read() { return cache_->Read(name_, plan_, 3, nullptr); }

  std::vector<fs::path> Files() const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(directory_ + "/packed")) {
      files.push_back(entry.path());
    }
    return files;
  }
  // Changes a byte of the one file there is.
  void Damage(uint64_t offset) {
    std::fstream file(Files().at(0), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const auto byte = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(byte ^ 0x10));
    ASSERT_TRUE(file.flush());
  }

  const TemporaryDirectory temporary_;
  const std::string directory_ = temporary_.path();
  std::unique_ptr<PackedCache> cache_;
  std::unique_ptr<ModelSource> source_;
  PackingPlan plan_;
  PackedName name_;
};

TEST_F(PackedCacheTest, GivesBackEveryNumberInEveryRegion) {
  EXPECT_THAT(Read().status(), HasCode(kNotFound));
  ASSERT_GT(plan_.region_bytes.size(), 1u);
  ASSERT_OK(Write());
  uint64_t done = 0;
  auto packed = cache_->Read(name_, plan_, 0, [&](const PackProgress& progress) {
    EXPECT_GE(progress.done_bytes, done);
    done = progress.done_bytes;
    return true;
  });
  ASSERT_OK(packed.status());
  EXPECT_EQ(done, plan_.source_bytes);
  const auto weights = MapPacked(*std::move(packed), *source_);
  ASSERT_NE(weights, nullptr);
  ExpectPackedEqualsSource(*weights, *source_);
  EXPECT_EQ(Files().size(), 1u) << "no part is left";
  EXPECT_EQ(cache_->contents().num_files, 1u);
  EXPECT_GE(cache_->contents().bytes, plan_.packed_bytes);
  EXPECT_THAT(Write(), HasCode(kAlreadyExists));
}

TEST_F(PackedCacheTest, OtherContentPlansAndSeedsHaveOtherNames) {
  const PackedName name = name_;
  EXPECT_EQ(NameOf(source_->content_id(), plan_).key, name.key);
  EXPECT_NE(NameOf("0123", plan_).key, name.key);
  PackingPlan other = *PlanPacking(source_->tensors(), source_->config(), 4 << 20);
  EXPECT_NE(NameOf(source_->content_id(), other).key, name.key);
  PackingPlan retyped = plan_;
  retyped.tensors.back().tensor.shards.back().dtype = DType::kBf16;
  EXPECT_NE(NameOf(source_->content_id(), retyped).key, name.key);
}

TEST_F(PackedCacheTest, DamageAnywhereIsFoundAndTheFileRemoved) {
  ASSERT_OK(Write());
  const uint64_t size = fs::file_size(Files().at(0));
  fs::copy(Files().at(0), directory_ + "/whole");
  const fs::path path = Files().at(0);
  // The magic, the key, the header's hash, the table, the first and the last byte of the data.
  for (const uint64_t offset : {0ul, 17ul, 70ul, 80ul, 4096ul, size - 1}) {
    SCOPED_TRACE(offset);
    Damage(offset);
    EXPECT_THAT(Read().status(), HasCode(kDataLoss));
    EXPECT_FALSE(fs::exists(path));
    EXPECT_THAT(Read().status(), HasCode(kNotFound));
    fs::copy(directory_ + "/whole", path);
    EXPECT_OK(Read().status()) << "whole again";
  }
  for (const uint64_t cut : {size_t{0}, size_t{50}, size_t{4096}, size - 1, size + 1}) {
    SCOPED_TRACE(cut);
    fs::resize_file(path, cut);
    EXPECT_THAT(Read().status(), HasCode(kDataLoss));
    EXPECT_FALSE(fs::exists(path));
    fs::copy(directory_ + "/whole", path);
  }
}

TEST_F(PackedCacheTest, AFileThatIsCutWhileItIsReadIsAnErrorAndNoSignal) {
  ASSERT_OK(Write());
  ASSERT_OK_AND_ASSIGN(const PackedFile file,
                       PackedFile::Open(Files().at(0), name_.key, plan_.region_bytes));
  fs::resize_file(Files().at(0), 3 << 20);
  ASSERT_OK_AND_ASSIGN(const RegionMemory first, MakeRegionMemory(plan_.region_bytes.front()));
  ASSERT_OK_AND_ASSIGN(const RegionMemory last, MakeRegionMemory(plan_.region_bytes.back()));
  for (const bool past_cache : {false, true}) {
    EXPECT_OK(file.ReadChunk(0, first.mapping.bytes(), past_cache));
    EXPECT_THAT(file.ReadChunk(file.num_chunks() - 1, last.mapping.bytes(), past_cache),
                HasCode(kDataLoss));
  }
}

TEST_F(PackedCacheTest, WhatOthersCouldHaveWrittenIsNotRead) {
  ASSERT_OK(Write());
  fs::permissions(Files().at(0), fs::perms::group_write, fs::perm_options::add);
  EXPECT_THAT(Read().status(), HasCode(kPermissionDenied));
  fs::permissions(directory_ + "/packed", fs::perms::others_write, fs::perm_options::add);
  EXPECT_THAT(PackedCache::Create({.folder = directory_ + "/packed"}).status(),
              HasCode(kInvalidArgument));
  EXPECT_THAT(PackedCache::Create({.folder = ""}).status(), HasCode(kInvalidArgument));
  EXPECT_THAT(PackedCache::Create({.folder = "/proc/none/packed"}).status(),
              HasCode(kInvalidArgument));
}

// The limit on a file's size stands for a disk that is full.
TEST_F(PackedCacheTest, AFullDiskLeavesNothingBehind) {
  const std::vector<Mapping> regions = PackedRegions();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, SIG_IGN);
  const rlimit low{.rlim_cur = 1 << 20, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  const absl::Status written = cache_->Write(name_, regions, [] { return true; });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_THAT(written, HasCode(kResourceExhausted));
  EXPECT_TRUE(Files().empty());
  ASSERT_OK(Write());
}

TEST_F(PackedCacheTest, StopsWhenToldAndLeavesNothingBehind) {
  int asked = 0;
  EXPECT_THAT(cache_->Write(name_, PackedRegions(), [&] { return ++asked < 3; }),
              HasCode(kCancelled));
  EXPECT_TRUE(Files().empty());
}

TEST_F(PackedCacheTest, KeepsWithinItsSizeByForgettingWhatWasUnusedLongest) {
  const uint64_t one = plan_.packed_bytes + (1 << 20);
  Open({.max_bytes = 2 * one});
  const auto use = [&](const std::string& seed) {
    Model("synthetic:gemma3-270m?type=q4_0&layers=3&hidden=512&vocab=5001&ffn=1056&seed=" + seed);
  };
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  for (const char* seed : {"1", "2"}) {
    use(seed);
    ASSERT_OK(Write());
    pause();
  }
  use("1");
  ASSERT_OK(Read().status());
  use("3");
  pause();
  ASSERT_OK(Write());
  EXPECT_EQ(Files().size(), 2u);
  EXPECT_OK(Read().status());
  use("1");
  EXPECT_OK(Read().status());
  use("2");
  EXPECT_THAT(Read().status(), HasCode(kNotFound));
  // What can never fit pushes nothing out.
  Open({.max_bytes = plan_.packed_bytes / 2});
  EXPECT_THAT(Write(), HasCode(kResourceExhausted));
  EXPECT_EQ(Files().size(), 2u);
}

TEST_F(PackedCacheTest, TheSameContentInAnotherLayoutReplacesTheOldOne) {
  ASSERT_OK(Write());
  name_.key.low ^= 1;
  EXPECT_THAT(Read().status(), HasCode(kNotFound));
  ASSERT_OK(Write());
  EXPECT_EQ(Files().size(), 1u);
  EXPECT_OK(Read().status());
  // A file of the right name with another key inside is not believed.
  fs::path renamed = Files().at(0);
  name_.key.low ^= 1;
  fs::rename(renamed, directory_ + "/packed/" + name_.content_id +
                          absl::StrFormat("-%016x%016x.packed", name_.key.high, name_.key.low));
  EXPECT_THAT(Read().status(), HasCode(kDataLoss));
}

TEST_F(PackedCacheTest, APartThatIsBeingWrittenIsLeftAloneAndAnAbandonedOneRemoved) {
  ASSERT_OK(Write());
  const std::string part = Files().at(0).string() + ".part";
  fs::remove(Files().at(0));
  std::ofstream(part) << "half";
  {
    const UniqueFd other(::open(part.c_str(), O_RDWR));
    ASSERT_EQ(::flock(other.get(), LOCK_EX | LOCK_NB), 0);
    EXPECT_THAT(Write(), HasCode(kAlreadyExists));
    Open({});
    EXPECT_TRUE(fs::exists(part));
  }
  ASSERT_OK(Write());  // takes the abandoned part over
  EXPECT_EQ(Files().size(), 1u);
  std::ofstream(part) << "half";
  Open({});
  EXPECT_FALSE(fs::exists(part));
}

TEST_F(PackedCacheTest, ManyLoadersShareOneFolder) {
  constexpr int kLoaders = 6;
  const std::vector<Mapping> regions = PackedRegions();
  ASSERT_OK(Write());
  const fs::path file = Files().at(0);
  fs::remove(file);
  std::atomic<int> written = 0, read = 0;
  std::vector<std::thread> loaders;
  for (int i = 0; i < kLoaders; ++i) {
    loaders.emplace_back([&] {
      auto cache = PackedCache::Create({.folder = directory_ + "/packed", .min_free_bytes = 0});
      ASSERT_OK(cache.status());
      for (int round = 0; round < 8; ++round) {
        const auto packed = (*cache)->Read(name_, plan_, 2, nullptr);
        if (packed.ok()) {
          ++read;
          if (round % 3 == 2) fs::remove(file);
          continue;
        }
        EXPECT_THAT(packed.status(), HasCode(kNotFound)) << "never half a file";
        const absl::Status status = (*cache)->Write(name_, regions, [] { return true; });
        if (status.ok()) ++written;
        EXPECT_TRUE(status.ok() || absl::IsAlreadyExists(status)) << status;
      }
    });
  }
  for (std::thread& loader : loaders) loader.join();
  EXPECT_GT(written, 0);
  EXPECT_GT(read, 0);
}

TEST(LayoutFingerprintTest, IsTheSameEveryTime) {
  EXPECT_EQ(LayoutFingerprint(), LayoutFingerprint());
  EXPECT_NE(LayoutFingerprint(), 0u);
}

// Weights packed by another release are read by this one if their layouts have the same name.
TEST(LayoutFingerprintTest, ALayoutHasOneName) {
  EXPECT_EQ(kTileLayout, std::string("rows32-b"));
  EXPECT_EQ(LayoutFingerprint(), 0xc5289018c209477cu)
      << "the layout is another: give kTileLayout a new name, and both here";
}

}  // namespace
}  // namespace tandem::loader
