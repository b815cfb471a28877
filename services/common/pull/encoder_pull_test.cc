// Models that have a vision encoder in their repository.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "services/common/pull/pull.h"
#include "services/common/pull/testing/pull_fixture.h"

namespace tandem::pull {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::FakeHub;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using testing::TestReply;
using testing::TestRequest;

constexpr char kF16[] = "mmproj-model-f16.gguf";
constexpr char kQ8[] = "mmproj-model-Q8_0.gguf";
constexpr char kModel[] = "model-Q4_0.gguf";
constexpr size_t kEncoderBytes = (300 << 10) + 3;

class EncoderPullTest : public testing::PullTest {
 protected:
  EncoderPullTest() { fake_.SetFile(kF16, encoder_); }
  std::string PathOf(const std::string& file) const {
    return folder_.path() + "/owner/repo/" + file;
  }
  void Put(const std::string& file, const std::string& content) const {
    fs::create_directories(fs::path(PathOf(file)).parent_path());
    std::ofstream(PathOf(file), std::ios::binary) << content;
  }
  // Both files are whole, and the model's encoder is `file`.
  void ExpectBoth(const absl::StatusOr<PullResult>& result, const std::string& file,
                  const std::string& content) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(Read(result->model.path), fake_.content());
    ASSERT_TRUE(result->model.encoder.has_value());
    EXPECT_EQ(result->model.encoder->path, PathOf(file));
    EXPECT_EQ(result->model.encoder->bytes, content.size());
    EXPECT_EQ(result->model.encoder->sha256, FakeHub::Sha256(content));
    EXPECT_EQ(Read(PathOf(file)), content);
    EXPECT_EQ(result->no_encoder_reason, "");
  }
  PulledModel Found() const {
    const auto model = FindPulled(FakeHub::kName, table_, {folder_.path()});
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? *model : PulledModel();
  }

  const std::string encoder_ = FakeHub::MakeContent(kEncoderBytes, 3);
};

TEST_F(EncoderPullTest, TheEncoderComesWithTheModel) {
  const auto result = Pull();
  ExpectBoth(result, kF16, encoder_);
  EXPECT_FALSE(result->was_there);
  EXPECT_EQ(result->received_bytes, kBytes + kEncoderBytes);
  EXPECT_EQ(result->model.total_bytes(), kBytes + kEncoderBytes);
  EXPECT_THAT(Files(),
              ElementsAre(".mmproj-model-f16.gguf.json", ".model-Q4_0.gguf.json", kF16, kModel));
  EXPECT_EQ(last_.file, std::string("owner/repo/") + kF16);
  EXPECT_EQ(last_.total_bytes, kEncoderBytes);
}

TEST_F(EncoderPullTest, ASecondPullBringsNothing) {
  ASSERT_TRUE(Pull().ok());
  const uint64_t before = fake_.cdn().body_bytes();
  const auto again = Pull();
  ExpectBoth(again, kF16, encoder_);
  EXPECT_TRUE(again->was_there);
  EXPECT_EQ(fake_.cdn().body_bytes(), before);
}

TEST_F(EncoderPullTest, OnlyWhatIsMissingOrNewerIsBrought) {
  ASSERT_TRUE(Pull().ok());
  fs::remove(PathOf(kF16));
  auto result = Pull();
  ExpectBoth(result, kF16, encoder_);
  EXPECT_EQ(result->received_bytes, kEncoderBytes);
  const std::string newer = FakeHub::MakeContent(kEncoderBytes, 4);
  fake_.SetFile(kF16, newer);
  result = Pull();
  ExpectBoth(result, kF16, newer);
  EXPECT_EQ(result->received_bytes, kEncoderBytes);
}

TEST_F(EncoderPullTest, OneThatWasStoppedGoesOnLater) {
  options_.transfer.connections = 1;
  std::set<std::string> seen;
  const auto name = ParseModelName(FakeHub::kName);
  const auto stopped = pull::Pull(*name, table_, options_, [&](const PullProgress& progress) {
    if (progress.total_bytes > 0) seen.insert(progress.file);
    return progress.file != std::string("owner/repo/") + kF16 ||
           progress.done_bytes < kEncoderBytes / 2;
  });
  EXPECT_TRUE(absl::IsCancelled(stopped.status())) << stopped.status();
  EXPECT_THAT(seen, ElementsAre("owner/repo/mmproj-model-f16.gguf", "owner/repo/model-Q4_0.gguf"));
  EXPECT_TRUE(fs::exists(PathOf(kModel)));
  EXPECT_FALSE(fs::exists(PathOf(kF16)));
  const auto result = Pull();
  ExpectBoth(result, kF16, encoder_);
  EXPECT_LT(result->received_bytes, kEncoderBytes / 2 + 1);
}

TEST_F(EncoderPullTest, OfSeveralItTakesTheLoadersChoice) {
  fake_.SetFile("mmproj-model-bf16.gguf", "GGUF bf16");
  fake_.SetFile("mmproj-model-f32.gguf", "GGUF f32");
  fake_.SetFile("mmproj-other-f16.gguf", "GGUF of another model");
  fake_.SetFile("old/mmproj-model-Q4_0-f16.gguf", "GGUF in another folder");
  ExpectBoth(Pull(), kF16, encoder_);
  EXPECT_THAT(Files(), Not(Contains(HasSubstr("bf16"))));
}

TEST_F(EncoderPullTest, AModelInAFolderHasTheEncoderBesideIt) {
  fake_.SetFile("q6/model-Q6_K.gguf", "GGUF six bits");
  auto result = Pull("hf:owner/repo:q6/model-Q6_K.gguf");
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(result->model.encoder.has_value()) << "the repository's root has it";
  EXPECT_EQ(result->model.encoder->path, PathOf(std::string("q6/") + kF16));
  EXPECT_EQ(Read(result->model.encoder->path), encoder_);
  EXPECT_TRUE(Pull("hf:owner/repo:q6/model-Q6_K.gguf")->was_there);
  fake_.SetFile("q5/model-Q5_K.gguf", "GGUF five bits");
  fake_.SetFile("q5/mmproj-BF16.gguf", "GGUF of the folder");
  result = Pull("hf:owner/repo:q5/model-Q5_K.gguf");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->model.encoder->path, PathOf("q5/mmproj-BF16.gguf"));
}

TEST_F(EncoderPullTest, NoneLeavesItOut) {
  options_.mmproj = kNoEncoder;
  const auto result = Pull();
  ExpectWhole(result);
  EXPECT_EQ(result->model.encoder, std::nullopt);
  EXPECT_EQ(result->no_encoder_reason, "");
}

TEST_F(EncoderPullTest, ANamedOneIsBrought) {
  fake_.SetFile(kQ8, "GGUF eight bits");
  options_.mmproj = kQ8;
  ExpectBoth(Pull(), kQ8, "GGUF eight bits");
  EXPECT_THAT(Files(), Not(Contains(kF16)));
  // It stays the model's: a pull that names none brings no second one.
  options_.mmproj.clear();
  const auto again = Pull();
  ExpectBoth(again, kQ8, "GGUF eight bits");
  EXPECT_TRUE(again->was_there);
  EXPECT_THAT(Files(), Not(Contains(kF16)));
}

TEST_F(EncoderPullTest, ANamedOneThatTheLoaderWouldNotTakeIsRefusedBeforeTheModelComes) {
  fake_.SetFile(kQ8, "GGUF eight bits");
  fake_.SetFile("mmproj-other-f16.gguf", "GGUF of another model");
  const auto refused = [&](const std::string& mmproj) {
    options_.mmproj = mmproj;
    return Pull().status();
  };
  absl::Status status = refused("mmproj-none.gguf");
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(kF16));
  status = refused(kModel);
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  status = refused("mmproj-other-f16.gguf");
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("serve it with --mmproj"));
  EXPECT_THAT(Files(), IsEmpty());
  Put(kF16, "put there by hand");
  status = refused(kQ8);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(PathOf(kF16)), HasSubstr("remove it first")));
}

TEST_F(EncoderPullTest, AnotherEncoderBesideTheModelIsKept) {
  Put("mmproj.gguf", "put there by hand");
  const auto result = Pull();
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->model.encoder->path, PathOf("mmproj.gguf"));
  EXPECT_EQ(result->model.encoder->sha256, "");
  EXPECT_EQ(Read(PathOf("mmproj.gguf")), "put there by hand");
  EXPECT_THAT(Files(), Not(Contains(kF16)));
}

TEST_F(EncoderPullTest, AMissingOneIsSaidAndNoFailure) {
  fake_.RemoveFile(kF16);
  auto result = Pull();
  ExpectWhole(result);
  EXPECT_THAT(result->no_encoder_reason, HasSubstr("owner/repo has no vision encoder"));
  fake_.SetFile("mmproj-other-f16.gguf", "GGUF of another model");
  result = Pull();
  ExpectWhole(result);
  EXPECT_THAT(result->no_encoder_reason,
              AllOf(HasSubstr("belongs to model-Q4_0.gguf"), HasSubstr("mmproj-other-f16.gguf")));
  // A mirror that lists nothing, and a list that names a file that is not there.
  {
    const auto hook = fake_.HookHub([](const TestRequest& request) {
      const bool list = request.target.starts_with("/api/");
      return TestReply{.status = list ? 404 : 0};
    });
    result = Pull();
  }
  ExpectWhole(result);
  EXPECT_THAT(result->no_encoder_reason, HasSubstr("cannot be looked for"));
  fake_.SetFile(kF16, encoder_);
  const auto hook = fake_.HookHub([](const TestRequest& request) {
    const bool encoder = request.target.ends_with(kF16);
    return TestReply{.status = encoder ? 404 : 0};
  });
  result = Pull();
  ExpectWhole(result);
  EXPECT_THAT(result->no_encoder_reason, HasSubstr(kF16));
}

TEST_F(EncoderPullTest, ADamagedOneIsRefusedAndTheModelStays) {
  fake_.SetFile(kF16, "no such file, says a page");
  const absl::Status status = Pull().status();
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("the model is there, its vision encoder is not"), HasSubstr(kF16),
                    HasSubstr("--mmproj none")));
  EXPECT_THAT(Files(), ElementsAre(".model-Q4_0.gguf.json", kModel));
}

TEST_F(EncoderPullTest, NamesOfTextModelsAskForNone) {
  const auto table = [](const char* more) {
    return *ModelTable::Parse(
        R"({"models": [{"names": ["toy"], "repo": "owner/repo", "file": "model-Q4_0.gguf")" +
        std::string(more) + "}]}");
  };
  table_ = table(R"(, "pictures": false)");
  ExpectWhole(Pull("toy"));
  for (const TestRequest& request : fake_.hub().requests()) {
    EXPECT_THAT(request.target, Not(HasSubstr("/api/")));
  }
  table_ = table("");
  ExpectBoth(Pull("toy"), kF16, encoder_);
}

TEST_F(EncoderPullTest, TheTableKnowsWhichModelsSee) {
  for (const auto& [name, pictures] : {std::pair{"gemma3:270m", false},
                                       {"gemma3:1b-it-q4_k_m", false},
                                       {"gemma3:4b", true},
                                       {"gemma3:12b-it-q8_0", true},
                                       {"gemma3:27b", true},
                                       {"gemma3:4b-it-qat-google", true}}) {
    const auto entry = table_.Find(name);
    ASSERT_TRUE(entry.ok()) << name;
    EXPECT_EQ(entry->pictures, pictures) << name;
  }
}

TEST_F(EncoderPullTest, BothAreListedAndRemovedAsOne) {
  ASSERT_TRUE(Pull().ok());
  const auto listed = ListPulled({folder_.path()});
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].total_bytes(), kBytes + kEncoderBytes);
  ASSERT_TRUE(RemovePulled(Found()).ok());
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(EncoderPullTest, AnEncoderStaysWithTheLastModelThatUsesIt) {
  fake_.SetFile("model-Q5_0.gguf", "GGUF five bits");
  ASSERT_TRUE(Pull().ok());
  const auto other = Pull("hf:owner/repo:model-Q5_0.gguf");
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_EQ(other->received_bytes, 14u) << "the encoder was there";
  ASSERT_TRUE(RemovePulled(Found()).ok());
  EXPECT_TRUE(fs::exists(PathOf(kF16)));
  ASSERT_TRUE(RemovePulled(other->model).ok());
  EXPECT_TRUE(fs::is_empty(folder_.path()));
}

TEST_F(EncoderPullTest, RemovingAModelKeepsWhatWasPutThereByHandAndTakesWhatAPullLeft) {
  options_.mmproj = kNoEncoder;
  ASSERT_TRUE(Pull().ok());
  Put("mmproj.gguf", "put there by hand");
  Put(".mmproj-model-f16.gguf.part", "half");
  Put(".mmproj-model-f16.gguf.part.json", "{}");
  ASSERT_TRUE(RemovePulled(Found()).ok());
  EXPECT_THAT(Files(), ElementsAre("mmproj.gguf"));
}

}  // namespace
}  // namespace tandem::pull
