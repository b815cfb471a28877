// A model with a vision encoder, from its files to the weights that a worker maps.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "services/common/testing/status_matchers.h"
#include "services/common/weights/vision_weights.h"
#include "services/common/weights/weight_set.h"
#include "services/loader/formats/testing/vision_builder.h"
#include "services/loader/store/model_store.h"
#include "services/loader/vision/vision_source.h"

namespace tandem::loader {
namespace {

using namespace testing;  // the builders

constexpr uint32_t kGgmlF16 = 1, kGgmlQ8_0 = 8;

class SeeingModelStoreTest : public ::testing::Test {
 protected:
  SeeingModelStoreTest() { folder_.Write("small.gguf", SmallGguf().Build()); }

  static std::unique_ptr<WeightSet> Map(const ResidentModel& model) {
    std::vector<WeightRegion> regions;
    for (const SealedRegion& region : model.regions) {
      WeightRegion mapped;
      auto mapping = Mapping::Map(region.fd.get(), region.bytes, Mapping::Access::kReadOnly);
      EXPECT_OK(mapping.status());
      mapped.mapping = *std::move(mapping);
      regions.push_back(std::move(mapped));
    }
    auto weights =
        WeightSet::Create(model.model_id, model.config, model.tensors, std::move(regions));
    EXPECT_OK(weights.status());
    return weights.ok() ? *std::move(weights) : nullptr;
  }

  TemporaryFolder folder_;
};

TEST_F(SeeingModelStoreTest, PackedWeightsAreTheFilesNumbers) {
  for (const uint32_t type : {0u, kGgmlF16, kGgmlQ8_0}) {
    const std::string path = folder_.Write("small.mmproj.gguf", SmallMmproj(type).Build());
    ASSERT_OK_AND_ASSIGN(const auto store, ModelStore::Create({.roots = {folder_.path()}}));
    ASSERT_OK_AND_ASSIGN(const auto model, store->Load("small", nullptr));
    const auto weights = Map(*model);
    ASSERT_NE(weights, nullptr);
    ASSERT_OK_AND_ASSIGN(const auto source, OpenVisionSource(path));
    ASSERT_OK_AND_ASSIGN(const VisionWeights expected, ReadVisionWeights(*source));
    const VisionWeights vision = DequantizeVision(*weights);
    EXPECT_EQ(vision.config, expected.config);
    EXPECT_EQ(vision.tensors, expected.tensors) << "type " << type;
  }
}

// So that a worker without Vision imports no region of the encoder's.
TEST_F(SeeingModelStoreTest, TheEncoderHasRegionsOfItsOwn) {
  folder_.Write("small.mmproj.gguf", SmallMmproj().Build());
  ASSERT_OK_AND_ASSIGN(const auto store, ModelStore::Create({.roots = {folder_.path()}}));
  ASSERT_OK_AND_ASSIGN(const auto model, store->Load("small", nullptr));
  ASSERT_EQ(model->regions.size(), 2u);
  for (const PackedTensor& tensor : model->tensors) {
    for (const Shard& shard : tensor.shards) {
      EXPECT_EQ(shard.region, IsVision(tensor.role) ? 1u : 0u) << tensor.Name();
    }
  }
}

TEST_F(SeeingModelStoreTest, TheStampTellsOfTheEncodersFile) {
  ASSERT_OK_AND_ASSIGN(const ModelCatalog catalog, ModelCatalog::Create({folder_.path()}));
  ASSERT_OK_AND_ASSIGN(const ModelFile file, catalog.Resolve("small"));
  ASSERT_OK_AND_ASSIGN(const std::string alone, ModelCatalog::FileStamp(file));
  const std::string path = folder_.Write("small.mmproj.gguf", SmallMmproj().Build());
  ASSERT_OK_AND_ASSIGN(const std::string with, ModelCatalog::FileStamp(file));
  EXPECT_NE(alone, with);
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  ASSERT_OK_AND_ASSIGN(const std::string changed, ModelCatalog::FileStamp(file));
  EXPECT_NE(with, changed);
}

TEST_F(SeeingModelStoreTest, AnEncoderElsewhereIsTheModelsByName) {
  folder_.Write("small.mmproj.gguf", SmallMmproj().Build());
  const TemporaryFolder elsewhere;
  const std::string eyes = elsewhere.Write("eyes.gguf", SmallMmproj(0).Build());
  ASSERT_OK_AND_ASSIGN(const auto found, ModelStore::Create({.roots = {folder_.path()}}));
  ASSERT_OK_AND_ASSIGN(const auto named, ModelStore::Create({.roots = {folder_.path()},
                                                             .vision = {{"small.gguf", eyes}}}));
  ASSERT_OK_AND_ASSIGN(const auto blind,
                       ModelStore::Create({.roots = {folder_.path()}, .vision = {{"small", ""}}}));
  ASSERT_OK_AND_ASSIGN(const auto of_found, found->Load("small", nullptr));
  ASSERT_OK_AND_ASSIGN(const auto of_named, named->Load("small", nullptr));
  ASSERT_OK_AND_ASSIGN(const auto of_blind, blind->Load("small.gguf", nullptr));
  EXPECT_NE(of_named->model_id, of_found->model_id);
  EXPECT_TRUE(of_named->config.vision.has_value());
  EXPECT_FALSE(of_blind->config.vision.has_value());
  EXPECT_NE(of_named->file_stamp.find("eyes.gguf"), std::string::npos);
  EXPECT_EQ(of_blind->file_stamp.find("mmproj"), std::string::npos);
}

}  // namespace
}  // namespace tandem::loader
