// Whole releases: folders, shards, side files, and files that change under the reader.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "services/common/testing/status_matchers.h"
#include "services/loader/formats/open_model.h"
#include "services/loader/formats/testing/release_builder.h"

namespace tandem::loader {
namespace {

using ::tandem::testing::HasCode;
using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using namespace testing;  // the builders

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

std::string ReadWhole(const ModelSource& source, const SourceTensor& tensor) {
  std::string data(tensor.num_bytes, '\0');
  EXPECT_OK(source.Read(tensor, 0, std::as_writable_bytes(std::span(data))));
  return data;
}

void ExpectSmall(const ModelSource& source, const Release& release) {
  EXPECT_EQ(source.tensors().size(), 15u);
  Release copy = release;
  for (const SourceTensor& tensor : source.tensors()) {
    EXPECT_EQ(ReadWhole(source, tensor), copy.FindTensor(tensor.name).data) << tensor.name;
    EXPECT_EQ(tensor.norm_offset, tensor.shape.rows == 1 ? 1.0f : 0.0f);
  }
  EXPECT_EQ(source.config().stop_token_ids, (std::vector<int32_t>{1, 5}));
  EXPECT_EQ(source.sampling_defaults().temperature, 0.7f);
  EXPECT_EQ(source.chat_template(), "{{ bos_token }}");
}

// Opening the release is refused for this reason.
void ExpectRefused(const Release& release, const std::string& reason) {
  const TemporaryFolder folder;
  release.Write(folder);
  EXPECT_THAT(OpenModelSource(folder.path()), StatusIs(kInvalid, HasSubstr(reason)));
}

TEST(SafetensorsModelTest, SamplingDefaultsThatNoRequestCouldAskForAreLeftOut) {
  struct Case {
    const char* values;
    std::optional<float> top_p, temperature;
    size_t num_warnings;
  };
  const Case cases[] = {
      {R"("top_p": 0, "temperature": -1)", std::nullopt, std::nullopt, 2},
      {R"("top_p": -1, "temperature": 101)", std::nullopt, std::nullopt, 2},
      {R"("top_p": 3e38, "temperature": 0)", std::nullopt, 0.0f, 1},
      {R"("top_p": 1.0, "temperature": 100)", 1.0f, 100.0f, 0},
      {R"("top_k": 64)", std::nullopt, std::nullopt, 0},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.values);
    Release release = SmallRelease();
    release.files["generation_config.json"] =
        std::string(R"({"eos_token_id": [1, 5], )") + c.values + "}";
    const TemporaryFolder folder;
    release.Write(folder);
    ASSERT_OK_AND_ASSIGN(const auto source, OpenModelSource(folder.path()));
    EXPECT_EQ(source->sampling_defaults().top_p, c.top_p);
    EXPECT_EQ(source->sampling_defaults().temperature, c.temperature);
    EXPECT_EQ(source->warnings().size(), c.num_warnings);
    for (const std::string& warning : source->warnings()) {
      EXPECT_THAT(DescribeModelSource(*source), HasSubstr(warning));
    }
  }
}

TEST(SafetensorsModelTest, OpensEveryPrefixSeenInReleases) {
  for (const char* prefix : {"model.", "language_model.model.", "model.language_model.", ""}) {
    Release release = SmallRelease();
    release.Rename(prefix);
    const TemporaryFolder folder;
    release.Write(folder);
    ASSERT_OK_AND_ASSIGN(const auto source, OpenModelSource(folder.path()));
    ExpectSmall(*source, release);
  }
}

TEST(SafetensorsModelTest, OpensTheTextPartOfAnImageModelAndListsTheRest) {
  Release release = SmallRelease();
  release.Rename("language_model.model.");
  release.files["config.json"] = R"({"model_type": "gemma3", "eos_token_id": [1, 5],
    "text_config": )" + release.files["config.json"] +
                                 "}";
  StoredTensor vision = release.tensors[1];
  vision.name = "vision_tower.vision_model.encoder.layers.0.layer_norm1.weight";
  release.tensors.push_back(vision);
  vision.name = "multi_modal_projector.mm_input_projection_weight";
  vision.dtype = "I16";
  release.tensors.push_back(vision);
  const TemporaryFolder folder;
  release.Write(folder);
  ASSERT_OK_AND_ASSIGN(const auto source, OpenModelSource(folder.path()));
  ExpectSmall(*source, release);
  ASSERT_EQ(source->skipped().size(), 2u);
  EXPECT_EQ(source->skipped()[0].name, release.tensors[15].name);
  EXPECT_THAT(DescribeModelSource(*source), HasSubstr("Not used by the text decoder"));
}

TEST(SafetensorsModelTest, OpensShardsByTheirIndex) {
  for (const size_t num_shards : {1u, 2u, 7u, 15u}) {
    const Release release = SmallRelease();
    const TemporaryFolder folder;
    release.WriteSharded(folder, num_shards);
    ASSERT_OK_AND_ASSIGN(const auto source, OpenModelSource(folder.path()));
    ExpectSmall(*source, release);
  }
}

TEST(SafetensorsModelTest, AnUntiedHeadIsRequiredAndATiedOneIsSkipped) {
  for (const char* name : {"lm_head.weight", "language_model.lm_head.weight"}) {
    Release release = SmallRelease();
    StoredTensor head = release.FindTensor("model.embed_tokens.weight");
    head.name = name;
    release.tensors.push_back(head);
    {
      const TemporaryFolder folder;
      release.Write(folder);
      ASSERT_OK_AND_ASSIGN(const auto tied, OpenModelSource(folder.path()));
      EXPECT_EQ(tied->tensors().size(), 15u);
      EXPECT_EQ(tied->skipped().size(), 1u);
    }
    release.files["config.json"].insert(1, "\"tie_word_embeddings\": false,");
    const TemporaryFolder folder;
    release.Write(folder);
    ASSERT_OK_AND_ASSIGN(const auto untied, OpenModelSource(folder.path()));
    EXPECT_EQ(untied->tensors()[1].role, WeightRole::kHead);
    release.tensors.pop_back();
    ExpectRefused(release, "tensor lm_head.weight is missing");
  }
}

TEST(SafetensorsModelTest, TensorsTwiceUnderTwoPrefixesAreRefused) {
  Release release = SmallRelease();
  StoredTensor again = release.FindTensor("model.norm.weight");
  again.name = "language_model.model.norm.weight";
  release.tensors.push_back(again);
  ExpectRefused(release, "are the same part of the model");
}

TEST(SafetensorsModelTest, TypesAndShapesThatTheDecoderCannotUseAreRefused) {
  Release release = SmallRelease();
  release.FindTensor("model.layers.0.mlp.up_proj.weight").dtype = "I16";
  ExpectRefused(release, "tensor model.layers.0.mlp.up_proj.weight has type I16");
  release = SmallRelease();
  release.FindTensor("model.layers.0.mlp.up_proj.weight").shape = {4, 16};
  ExpectRefused(release, "expected [8, 8], file has [4, 16]");
  release = SmallRelease();
  release.FindTensor("model.norm.weight").name = "model.layers.0.self_attn.q_proj.bias";
  ExpectRefused(release, "is no part of a Gemma 3 decoder layer");
}

TEST(SafetensorsModelTest, TheChatTemplateHasThreeHomes) {
  const auto template_of = [](const Release& release) {
    const TemporaryFolder folder;
    release.Write(folder);
    const auto source = OpenModelSource(folder.path());
    return source.ok() ? (*source)->chat_template() : source.status().ToString();
  };
  Release release = SmallRelease();
  release.files["tokenizer_config.json"] =
      R"({"chat_template": [{"name": "rag", "template": "R"}, {"name": "default", "template": "D"}]})";
  EXPECT_EQ(template_of(release), "D");
  release.files["chat_template.json"] = R"({"chat_template": "J"})";
  EXPECT_EQ(template_of(release), "J");
  release.files["chat_template.jinja"] = "jinja";
  EXPECT_EQ(template_of(release), "jinja");
  release.files["chat_template.jinja"] = "\xff";
  EXPECT_THAT(template_of(release), HasSubstr("chat_template.jinja: at byte 0: not UTF-8"));
  release.files.erase("chat_template.jinja");
  release.files.erase("chat_template.json");
  release.files.erase("tokenizer_config.json");
  EXPECT_EQ(template_of(release), "");
}

TEST(SafetensorsModelTest, MissingFilesAreNamed) {
  for (const char* name : {"config.json", "tokenizer.model"}) {
    Release release = SmallRelease();
    release.files.erase(name);
    const TemporaryFolder folder;
    release.Write(folder);
    EXPECT_THAT(
        OpenModelSource(folder.path()),
        StatusIs(absl::StatusCode::kNotFound, HasSubstr(std::string(name) + " is missing")));
  }
  Release release = SmallRelease();
  const TemporaryFolder folder;
  release.Write(folder);
  std::filesystem::remove(folder.path() + "/model.safetensors");
  EXPECT_THAT(OpenModelSource(folder.path()),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("neither model.safetensors nor")));
}

TEST(SafetensorsModelTest, BadSideFilesAreRefusedByName) {
  struct Case {
    const char* file;
    std::string content;
    const char* reason;
  };
  const Case cases[] = {
      {"config.json", "{", "config.json: at byte"},
      {"config.json", std::string(100000, '['), "nested deeper than 64 levels"},
      {"config.json", "[]", "config.json: the configuration is no object"},
      {"generation_config.json", "[]", "generation configuration is no object"},
      {"generation_config.json", R"({"eos_token_id": [10]})", "eos_token_id is 10"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"x": {"content": "y"}}})",
       "\"x\" is no id"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"-3": {"content": "y"}}})",
       "has id -3"},
      {"tokenizer_config.json", R"({"added_tokens_decoder": {"10": {"content": "y"}}})",
       "id 10, out of range"},
      {"tokenizer_config.json", R"({"add_bos_token": 3})", "add_bos_token is 3"},
      {"tokenizer_config.json", R"({"chat_template": 3})", "chat_template is 3"},
      {"added_tokens.json", R"({"<far>": 4000000000})", "<far> is 4000000000"},
      {"added_tokens.json", R"({"<neg>": -1})", "<neg> is -1"},
      {"tokenizer.model", "junk", "tokenizer.model: at byte 0"},
      {"tokenizer.model", TokenizerModelFile([] {
         std::vector<SmallPiece> pieces = SmallPieces();
         pieces.push_back({"extra", 0, 1});
         return pieces;
       }()),
       "ids from 10 on are out of range"},
  };
  for (const Case& bad : cases) {
    Release release = SmallRelease();
    release.files[bad.file] = bad.content;
    ExpectRefused(release, bad.reason);
  }
}

TEST(SafetensorsModelTest, ShardNamesThatEscapeAreRefused) {
  const TemporaryFolder outside;
  const std::string secret = outside.Write("secret.safetensors", SafetensorsFile({}));
  const std::string names[] = {"../secret.safetensors",
                               secret,
                               "sub/file.safetensors",
                               "..",
                               ".",
                               "",
                               "a\\u0000b.safetensors",
                               std::string(300, 'n')};
  for (const std::string& name : names) {
    const Release release = SmallRelease();
    const TemporaryFolder folder;
    for (const auto& [file, content] : release.files) folder.Write(file, content);
    folder.Write("model.safetensors.index.json",
                 R"({"weight_map": {"model.norm.weight": ")" + name + "\"}}");
    EXPECT_THAT(OpenModelSource(folder.path()),
                StatusIs(kInvalid, AllOf(HasSubstr("index.json"), HasSubstr("no plain file name"))))
        << name;
  }
}

TEST(SafetensorsModelTest, LinksFoldersAndPipesAreRefused) {
  const TemporaryFolder outside;
  const std::string target =
      outside.Write("model.safetensors", SafetensorsFile(SmallRelease().tensors));
  const auto with = [&](auto make) {
    const Release release = SmallRelease();
    const TemporaryFolder folder;
    for (const auto& [file, content] : release.files) folder.Write(file, content);
    make(folder.path() + "/model.safetensors");
    return OpenModelSource(folder.path()).status();
  };
  EXPECT_THAT(with([&](const std::string& path) { std::filesystem::create_symlink(target, path); }),
              StatusIs(kInvalid, HasSubstr("is a link; copy the file")));
  EXPECT_THAT(with([&](const std::string& path) {
                std::filesystem::create_symlink("../../blobs/../secret", path);
              }),
              StatusIs(kInvalid, HasSubstr("is a link")));
  EXPECT_THAT(with([&](const std::string& path) { std::filesystem::create_directory(path); }),
              StatusIs(kInvalid, HasSubstr("not a regular file")));
  EXPECT_THAT(with([&](const std::string& path) { ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0); }),
              StatusIs(kInvalid, HasSubstr("not a regular file")));
}

TEST(SafetensorsModelTest, LinksOfADownloadCacheAreFollowed) {
  const Release release = SmallRelease();
  const TemporaryFolder cache;
  cache.Write("blobs/0123abcd", SafetensorsFile(release.tensors));
  for (const auto& [file, content] : release.files) cache.Write("snapshots/rev/" + file, content);
  std::filesystem::create_symlink("../../blobs/0123abcd",
                                  cache.path() + "/snapshots/rev/model.safetensors");
  ASSERT_OK_AND_ASSIGN(const auto source, OpenModelSource(cache.path() + "/snapshots/rev"));
  ExpectSmall(*source, release);
  // A blob that is itself a link leads nowhere.
  std::filesystem::rename(cache.path() + "/blobs/0123abcd", cache.path() + "/elsewhere");
  std::filesystem::create_symlink(cache.path() + "/elsewhere", cache.path() + "/blobs/0123abcd");
  EXPECT_FALSE(OpenModelSource(cache.path() + "/snapshots/rev").ok());
}

TEST(SafetensorsModelTest, TheIndexAndTheShardsMustAgree) {
  const Release release = SmallRelease();
  {
    const TemporaryFolder folder;
    release.WriteSharded(folder, 2);
    std::vector<StoredTensor> both = {release.tensors[1], release.tensors[0]};
    for (size_t i = 3; i < release.tensors.size(); i += 2) both.push_back(release.tensors[i]);
    folder.Write("model-00002-of-00002.safetensors", SafetensorsFile(both));
    EXPECT_THAT(OpenModelSource(folder.path()),
                StatusIs(kInvalid, HasSubstr("model.embed_tokens.weight is in another file")));
  }
  {
    const TemporaryFolder folder;
    release.WriteSharded(folder, 2);
    std::vector<StoredTensor> fewer;
    for (size_t i = 3; i < release.tensors.size(); i += 2) fewer.push_back(release.tensors[i]);
    folder.Write("model-00002-of-00002.safetensors", SafetensorsFile(fewer));
    EXPECT_THAT(OpenModelSource(folder.path()),
                StatusIs(kInvalid, HasSubstr("tensor model.norm.weight, which")));
  }
  {
    const TemporaryFolder folder;
    release.WriteSharded(folder, 2);
    std::filesystem::remove(folder.path() + "/model-00002-of-00002.safetensors");
    EXPECT_THAT(OpenModelSource(folder.path()),
                StatusIs(absl::StatusCode::kNotFound, HasSubstr("model-00002-of-00002")));
  }
  for (const char* index : {"{}", "{\"weight_map\": {}}", "{\"weight_map\": {\"a\": 5}}",
                            "{\"weight_map\": []}", "{\"weight_map\""}) {
    const TemporaryFolder folder;
    release.WriteSharded(folder, 2);
    folder.Write("model.safetensors.index.json", index);
    EXPECT_THAT(OpenModelSource(folder.path()), HasCode(kInvalid)) << index;
  }
}

TEST(ModelSourceTest, AFileCutShortWhileOpenIsDataLossAndNoSignal) {
  const TemporaryFolder folder;
  const std::string gguf = folder.Write("model.gguf", SmallGguf().Build());
  const TemporaryFolder release_folder;
  SmallRelease().Write(release_folder);
  for (const auto& [path, file] :
       {std::pair(gguf, gguf),
        std::pair(release_folder.path(), release_folder.path() + "/model.safetensors")}) {
    ASSERT_OK_AND_ASSIGN(const auto source, OpenModelSource(path));
    ASSERT_EQ(::truncate(file.c_str(), 100), 0);
    for (const SourceTensor& tensor : source->tensors()) {
      std::vector<std::byte> data(tensor.num_bytes);
      EXPECT_THAT(source->Read(tensor, 0, data),
                  StatusIs(absl::StatusCode::kDataLoss,
                           AllOf(HasSubstr(file), HasSubstr(tensor.name), HasSubstr("at byte"))));
    }
  }
}

TEST(ModelSourceTest, TheContentIdFollowsTheContent) {
  const TemporaryFolder folder;
  const std::string path = folder.Write("model.gguf", SmallGguf().Build());
  const auto id = [&] { return (*OpenModelSource(path))->content_id(); };
  const std::string first = id();
  EXPECT_EQ(id(), first);
  struct timespec times[2] = {{1000, 0}, {1000, 7}};
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  const std::string touched = id();
  EXPECT_NE(touched, first);
  GgufBuilder builder = SmallGguf();
  builder.SetString("general.name", "other");  // as long as "small"
  folder.Write("model.gguf", builder.Build());
  ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  EXPECT_NE(id(), touched);
}

TEST(ModelSourceTest, GgufPathsThatAreNoFilesAreRefused) {
  const TemporaryFolder folder;
  const std::string pipe = folder.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(OpenModelSource(pipe), StatusIs(kInvalid, HasSubstr("not a regular file")));
  const std::string text = folder.Write("notes.txt", "just text");
  EXPECT_THAT(OpenModelSource(text),
              StatusIs(kInvalid, HasSubstr("notes.txt: at byte 0: no GGUF file")));
}

}  // namespace
}  // namespace tandem::loader
