#include "services/common/pull/model_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "services/common/testing/temporary_directory.h"

namespace tandem::pull {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ModelStoreTest : public ::testing::Test {
 protected:
  PulledModel Put(const std::string& file, const std::string& name = "") {
    PulledModel model{.name = name, .folder = folder_.path()};
    model.hub = {.owner = "owner", .repo = "repo", .file = file};
    model.path = PathInStore(folder_.path(), model.hub);
    fs::create_directories(fs::path(model.path).parent_path());
    std::ofstream(model.path) << "GGUF";
    if (!name.empty()) {
      EXPECT_TRUE(RecordPulled(model).ok());
    }
    return model;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const PulledModel& model : ListPulled({folder_.path()})) names.push_back(model.name);
    return names;
  }
  absl::StatusOr<PulledModel> Find(const std::string& name) const {
    return FindPulled(name, table_, {folder_.path(), "/nonexistent"});
  }
  const TemporaryDirectory folder_;
  const ModelTable table_ = ModelTable::BuiltIn();
};

TEST_F(ModelStoreTest, ListsModelsAndNothingElse) {
  Put("a-Q4_0.gguf", "gemma3:27b");
  Put("sub/b-Q8_0.gguf");
  Put("mmproj-c.gguf");
  Put(".d.gguf");
  Put("e.gguf.part");
  EXPECT_THAT(Names(), ElementsAre("gemma3:27b", "hf:owner/repo:sub/b-Q8_0.gguf"));
  EXPECT_THAT(ListPulled({folder_.path() + "/none"}), IsEmpty());
}

TEST_F(ModelStoreTest, FindsByNameFileAndQuantisation) {
  const PulledModel a = Put("a-Q4_0.gguf", "gemma3:27b");
  const PulledModel b = Put("b-Q8_0.gguf");
  EXPECT_EQ(Find("gemma3:27b")->path, a.path);
  EXPECT_EQ(Find("hf:owner/repo:b-Q8_0.gguf")->path, b.path);
  EXPECT_EQ(Find("hf:owner/repo:q8_0")->path, b.path);
  EXPECT_EQ(Find("hf:owner/repo")->path, b.path) << "no name says QAT";
}

TEST_F(ModelStoreTest, SaysHowToGetWhatIsNotThere) {
  const absl::Status status = Find("gemma3:27b").status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("`tandem pull gemma3:27b`"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder_.path()));
  EXPECT_TRUE(absl::IsNotFound(Find("gemma3:9b").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Find("../x").status()));
}

TEST_F(ModelStoreTest, RemovesAModelAndItsEmptyFolders) {
  const PulledModel a = Put("a-Q4_0.gguf", "gemma3:27b");
  const PulledModel b = Put("sub/b-Q8_0.gguf");
  ASSERT_TRUE(RemovePulled(a).ok());
  EXPECT_THAT(Names(), ElementsAre("hf:owner/repo:sub/b-Q8_0.gguf"));
  ASSERT_TRUE(RemovePulled(b).ok());
  EXPECT_TRUE(fs::exists(folder_.path()));
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(ModelStoreTest, TheFolderIsTheUsersUnlessTheEnvironmentSaysElse) {
  ::unsetenv("TANDEM_MODELS");
  ::setenv("XDG_DATA_HOME", "/data", 1);
  EXPECT_EQ(DefaultModelsFolder(), "/data/tandem/models");
  EXPECT_THAT(ModelsFolders(), ElementsAre("/data/tandem/models", kSystemModelsFolder));
  ::setenv("TANDEM_MODELS", "/models", 1);
  EXPECT_EQ(DefaultModelsFolder(), "/models");
  EXPECT_THAT(ModelsFolders("/flag"), ElementsAre("/flag", kSystemModelsFolder));
  ::unsetenv("TANDEM_MODELS");
  ::unsetenv("XDG_DATA_HOME");
}

}  // namespace
}  // namespace tandem::pull
