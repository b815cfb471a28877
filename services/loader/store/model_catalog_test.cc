#include "services/loader/store/model_catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

namespace tandem::loader {
namespace {

namespace fs = std::filesystem;

class ModelCatalogTest : public testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/tandem-catalog-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern), nullptr);
    directory_ = fs::canonical(pattern);
    Write("first/model.gguf", "one");
    Write("first/deep/er/still.gguf", "22");
    Write("first/folder/config.json", "{}");
    Write("first/folder/model.safetensors", "333");
    Write("first/notes.txt", "no model");
    Write("first/empty-folder/config.json", "{}");
    Write("second/model.gguf", "hidden by the first root's");
    Write("second/only-here.gguf", "4444");
    Write("outside/secret.gguf", "secret");
    catalog_ =
        ModelCatalog::Create({(directory_ / "first").string(), (directory_ / "second").string()});
    ASSERT_TRUE(catalog_.ok()) << catalog_.status();
  }
  void TearDown() override { fs::remove_all(directory_); }

  void Write(const std::string& path, const std::string& content) {
    fs::create_directories((directory_ / path).parent_path());
    std::ofstream(directory_ / path) << content;
  }
  absl::StatusCode CodeOf(const std::string& name) const {
    return catalog_->Resolve(name).status().code();
  }

  fs::path directory_;
  absl::StatusOr<ModelCatalog> catalog_ = absl::UnknownError("not made");
};

TEST_F(ModelCatalogTest, FindsFilesAndFoldersByNameWithOrWithoutSuffix) {
  EXPECT_EQ(catalog_->Resolve("model.gguf")->path, (directory_ / "first/model.gguf").string());
  EXPECT_EQ(catalog_->Resolve("model")->name, "model.gguf");
  EXPECT_EQ(catalog_->Resolve("deep/er/still")->file_bytes, 2u);
  EXPECT_EQ(catalog_->Resolve("folder")->format, "safetensors");
  EXPECT_EQ(catalog_->Resolve("only-here")->file_bytes, 4u);
  for (const std::string name : {"notes.txt", "empty-folder", "deep", "nothing"}) {
    EXPECT_EQ(CodeOf(name), absl::StatusCode::kNotFound) << name;
  }
}

TEST_F(ModelCatalogTest, NamesThatLeaveTheRootAreRefusedAsNames) {
  for (const std::string& name :
       {std::string("../outside/secret.gguf"), std::string("deep/../model.gguf"), std::string("."),
        std::string(".."), (directory_ / "outside/secret.gguf").string(), std::string("deep/"),
        std::string("model.gguf\0x", 12), std::string("a/b/c/d/e"), std::string("deep\\er")}) {
    EXPECT_EQ(CodeOf(name), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST_F(ModelCatalogTest, SyntheticModelsAreUnderNoRoot) {
  const auto file = catalog_->Resolve("synthetic:gemma3-1b?type=q4_0");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->path, "synthetic:gemma3-1b?type=q4_0");
  EXPECT_EQ(file->format, "synthetic");
}

TEST_F(ModelCatalogTest, LinksAreFollowedIntoRootsAlone) {
  fs::create_symlink("model.gguf", directory_ / "first/alias.gguf");
  fs::create_symlink(directory_ / "outside/secret.gguf", directory_ / "first/escape.gguf");
  fs::create_symlink(directory_ / "outside", directory_ / "first/way-out");
  fs::create_symlink("loop.gguf", directory_ / "first/loop.gguf");
  EXPECT_EQ(catalog_->Resolve("alias")->path, (directory_ / "first/model.gguf").string());
  EXPECT_EQ(CodeOf("escape.gguf"), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(CodeOf("way-out/secret.gguf"), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(CodeOf("loop.gguf"), absl::StatusCode::kNotFound);
  for (const ModelFile& file : catalog_->List()) {
    EXPECT_EQ(file.path.find("secret"), std::string::npos) << file.name;
  }
}

// As `hf download` leaves a model: snapshots/REV/FILE.gguf -> ../../blobs/HASH.
TEST_F(ModelCatalogTest, AFileOfTheHubsCacheIsKnownByItsLink) {
  Write("hub/repo/blobs/0123abcd", "55555");
  Write("hub/repo/blobs/4567cdef", "x");
  fs::create_directories(directory_ / "hub/repo/snapshots/rev");
  const fs::path link = directory_ / "hub/repo/snapshots/rev/model-Q8_0.gguf";
  fs::create_symlink("../../blobs/0123abcd", link);
  fs::create_symlink("../../blobs/4567cdef", link.parent_path() / "mmproj-F16.gguf");
  // As `tandem serve` gives the roots: the link's folder and its target's.
  const auto served =
      ModelCatalog::Create({link.parent_path().string(), (directory_ / "hub/repo/blobs").string()});
  ASSERT_TRUE(served.ok()) << served.status();
  auto file = served->Resolve("model-Q8_0");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->name, "model-Q8_0.gguf");
  EXPECT_EQ(file->path, link.string());
  EXPECT_EQ(file->format, "gguf");
  EXPECT_EQ(file->file_bytes, 5u);
  EXPECT_EQ(served->Resolve("0123abcd").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(ModelCatalog::FileStamp(*file).value(), ::testing::HasSubstr("mmproj-F16.gguf 1 "));
  // The whole cache as the root.
  const auto whole = ModelCatalog::Create({(directory_ / "hub").string()});
  ASSERT_TRUE(whole.ok()) << whole.status();
  file = whole->Resolve("repo/snapshots/rev/model-Q8_0.gguf");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->path, link.string());
  ASSERT_EQ(whole->List().size(), 2u);
  EXPECT_EQ(whole->List()[1].path, link.parent_path() / "model-Q8_0.gguf");
  // Without a root for the target the link leads out.
  const auto snapshot = ModelCatalog::Create({link.parent_path().string()});
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  EXPECT_EQ(snapshot->Resolve("model-Q8_0").status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(snapshot->List().empty());
}

TEST_F(ModelCatalogTest, ARootWhoseNameBeginsLikeAnothersIsNotInsideIt) {
  Write("first-and-more/secret.gguf", "x");
  fs::create_symlink(directory_ / "first-and-more/secret.gguf", directory_ / "first/near.gguf");
  EXPECT_EQ(CodeOf("near.gguf"), absl::StatusCode::kPermissionDenied);
}

TEST_F(ModelCatalogTest, ListsEveryModelOnceSortedByName) {
  std::vector<std::string> names;
  for (const ModelFile& file : catalog_->List()) names.push_back(file.name);
  EXPECT_EQ(names, (std::vector<std::string>{"deep/er/still.gguf", "folder", "model.gguf",
                                             "only-here.gguf"}));
}

TEST_F(ModelCatalogTest, RootsMustBeDirectories) {
  EXPECT_EQ(ModelCatalog::Create({(directory_ / "none").string()}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(ModelCatalog::Create({(directory_ / "first/model.gguf").string()}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ModelCatalog::Create({}).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::loader
