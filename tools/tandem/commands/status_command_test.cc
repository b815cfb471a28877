// Commands that show things: models, status, doctor, inspect, completion.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "services/common/testing/paths.h"
#include "tools/tandem/commands/testing/commands_fixture.h"
#include "tools/tandem/commands/testing/terminal.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(CommandsTest, ModelsAreATableOrJson) {
  EXPECT_EQ(Run({"models"}).output,
            "NAME  ARCHITECTURE  LAYERS  CONTEXT  VOCABULARY  WEIGHTS MiB  ID\n"
            "demo  gemma3            12     4096      262208         11.0  abc123\n");
  const auto json = nlohmann::json::parse(Run({"models", "--json"}).output);
  EXPECT_EQ(json.at("models")[0].at("vocab_size"), 262208);
}

TEST_F(CommandsTest, ModelsOfAFolderAreListedWithTheirShapes) {
  const std::string folder = testing::TempDir() + "/model-folder";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/broken.gguf") << "GGUF";
  std::filesystem::copy_file(SourcePath("models/demo/demo.Q8_0.gguf"), folder + "/demo.gguf",
                             std::filesystem::copy_options::overwrite_existing);
  Child child({"models", "--folder", folder, "--json"});
  EXPECT_EQ(child.Wait(), 0);
  const auto models = nlohmann::json::parse(child.output()).at("models");
  ASSERT_EQ(models.size(), 2u);
  EXPECT_THAT(models[0].at("error").get<std::string>(), HasSubstr("broken.gguf"));
  EXPECT_EQ(models[1].at("type"), "q8_0");
  EXPECT_EQ(models[1].at("num_layers"), 12);
  Child table({"models", "--folder", folder});
  EXPECT_EQ(table.Wait(), 0);
  EXPECT_THAT(table.output(), HasSubstr("q8_0"));
  Child missing({"models", "--folder", "/nowhere"});
  EXPECT_EQ(missing.Wait(), 1);
}

TEST_F(CommandsTest, ShellsAndManReadWhatItSaysOfItself) {
  const auto output = [](const std::vector<std::string>& arguments) {
    Child child(arguments);
    EXPECT_EQ(child.Wait(), 0);
    return child.output();
  };
  const std::string bash = output({"completion", "bash"});
  EXPECT_THAT(bash, HasSubstr("generate) flags='"));
  EXPECT_THAT(bash, HasSubstr(" --repetition-penalty "));
  EXPECT_THAT(output({"completion", "zsh"}), HasSubstr("'--folder[List the files"));
  const std::string manual = output({"manual"});
  EXPECT_THAT(manual, HasSubstr(".SS tandem convert\n"));
  EXPECT_THAT(manual, HasSubstr("\\fB\\-\\-top\\-k\\fR"));
  EXPECT_THAT(manual, testing::Not(HasSubstr("tandem manual")));
  EXPECT_THAT(manual, testing::Not(HasSubstr("tandem help COMMAND"))) << "for readers of --help";
  EXPECT_THAT(manual, HasSubstr("Requests running at a time.\nDefault: 16.\n"));
  EXPECT_THAT(manual, HasSubstr("\\fB\\-\\-max\\-rows\\fR \\fIUINT in [1 \\- 65535]\\fR\n"));
  for (const char* section : {"EXAMPLES", "EXIT STATUS", "ENVIRONMENT", "SEE ALSO"}) {
    EXPECT_THAT(manual, HasSubstr(std::string(".SH ") + section + "\n"));
  }
  EXPECT_THAT(output({"completion", "fish"}),
              HasSubstr("complete -c tandem -n '__fish_seen_subcommand_from serve' -l npu -x -a "
                        "'auto require prefer emulate off'"));
}

TEST_F(CommandsTest, BashCompletesValuesAndFiles) {
  Child child({"completion", "bash"});
  ASSERT_EQ(child.Wait(), 0);
  const std::string script = testing::TempDir() + "/tandem.bash";
  std::ofstream(script) << child.output();
  // The completions of the last of `words`.
  const auto offered = [&](const std::string& words) {
    const std::string command = "bash --norc -c '. " + script + "; cd " +
                                SourcePath("models/demo") + "; COMP_WORDS=(" + words +
                                "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tandem; echo "
                                "${COMPREPLY[*]}'";
    FILE* pipe = ::popen(command.c_str(), "r");
    std::string text;
    for (int c; (c = std::fgetc(pipe)) != EOF;) text += static_cast<char>(c);
    ::pclose(pipe);
    return text;
  };
  EXPECT_THAT(offered("tandem stat"), HasSubstr("status"));
  EXPECT_EQ(offered("tandem serve --npu \"\""), "auto require prefer emulate off\n");
  EXPECT_EQ(offered("tandem serve --npu = p"), "prefer\n");
  EXPECT_EQ(offered("tandem serve --model de"), "demo.Q8_0.gguf\n");
  EXPECT_EQ(offered("tandem serve --max-rows \"\""), "\n");
  EXPECT_EQ(offered("tandem inspect de"), "demo.Q8_0.gguf\n");
  EXPECT_EQ(offered("tandem completion \"\""), "bash zsh fish\n");
  EXPECT_EQ(offered("tandem help gen"), "generate\n");
  EXPECT_EQ(offered("tandem status --wa"), "--wait --watch\n");
}

TEST_F(CommandsTest, StatusIsTables) {
  const Result result = Run({"status"});
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.output, StartsWith("state                     ready\n"));
  EXPECT_THAT(result.output, HasSubstr("Attend on npu0 (emulated), the rest on gpu0\n"));
  EXPECT_THAT(result.output, HasSubstr("there is no NPU\n"));
  EXPECT_THAT(result.output, HasSubstr("2 running, 0 waiting, 16 at most\n"));
  EXPECT_THAT(result.output, HasSubstr("7 of 100, 31 more cached\n"));
  EXPECT_THAT(result.output, HasSubstr("20 of 50 tokens of prompts found\n"));
  EXPECT_THAT(result.output, HasSubstr("npu0    ready   emulated NPU (emulated)         dmabuf"));
  EXPECT_THAT(result.output,
              testing::ContainsRegex("npu1 +absent +this machine has no second NPU +- +- +-"));
  EXPECT_THAT(result.output,
              HasSubstr("npu0    Attend         3     30       10.0           40.0\n"));
  EXPECT_THAT(Run({"status", "--all-segments"}).output, HasSubstr("Attend(2)"));
  const auto json = nlohmann::json::parse(Run({"status", "--json"}).output);
  EXPECT_EQ(json.at("workers")[0].at("hop_p50_us"), 29.5);
}

TEST_F(CommandsTest, StatusShowsPicturesWhereTheyAreAccepted) {
  EXPECT_THAT(Run({"status"}).output, testing::Not(HasSubstr("pictures")));
  v1::PictureStatus pictures;
  gateway_.set_pictures(pictures);
  const std::string none = Run({"status"}).output;
  EXPECT_THAT(none, HasSubstr("\npictures                  0 encoded, 0 found in the cache"));
  EXPECT_THAT(none, testing::Not(HasSubstr("ms of a picture")));
  pictures.set_encoded(4);
  pictures.set_cached(7);
  pictures.set_refused(2);
  pictures.set_failed(1);
  pictures.set_cache_pictures(3);
  pictures.set_cache_bytes(5 << 19);
  pictures.set_decode_seconds(0.1);
  pictures.set_prepare_seconds(0.05);
  pictures.set_encode_seconds(1);
  gateway_.set_pictures(pictures);
  const std::string some = Run({"status"}).output;
  EXPECT_THAT(some, HasSubstr("4 encoded, 7 found in the cache; requests with pictures: 2 refused, "
                              "1 failed; cache: 3 pictures, 2.5 MiB\n"));
  EXPECT_THAT(some,
              HasSubstr("ms of a picture           decode 25.0, prepare 12.5, encode 250.0\n"));
}

TEST_F(CommandsTest, StatusWaitsUntilTheGatewayIsReady) {
  EXPECT_EQ(Run({"status", "--wait", "5"}).code, 0);
  gateway_.set_state("loading");
  EXPECT_EQ(Run({"status"}).code, 0);
  const Result result = Run({"status", "--wait", "0.2"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.errors, HasSubstr("loading: no NPU"));
}

TEST_F(CommandsTest, StatusIsWatchedInPlaceAtATerminalAndByLinesElsewhere) {
  Child lines(WithAddress({"status", "--watch", "--interval", "0.05"}));
  ASSERT_TRUE(lines.WaitForOutput(" ready, 2 running, 0 waiting\n"));
  ASSERT_TRUE(lines.WaitForOutput("0 waiting, 0.0 tokens/s answered, 0.0 of prompts\n"));
  EXPECT_THAT(lines.output(), testing::Not(HasSubstr("\033")));
  Child json(WithAddress({"status", "--watch", "--json", "--interval", "0.05"}));
  ASSERT_TRUE(json.WaitForOutput("\n"));
  EXPECT_EQ(nlohmann::json::parse(json.output().substr(0, json.output().find('\n'))).at("state"),
            "ready");
  const std::string home = testing::TempDir();
  Terminal terminal({"status", "--watch", "--interval", "0.05", "--address", gateway_.address()},
                    home);
  ASSERT_TRUE(terminal.WaitFor("\033[2J\033[H"));
  ASSERT_TRUE(terminal.WaitFor("\033[32mready"));
  ASSERT_TRUE(terminal.WaitFor("\033[H"));
  ASSERT_TRUE(terminal.WaitFor("tokens/s answered"));
}

TEST_F(CommandsTest, ColoursAreForTerminalsAndForThoseWhoWantThem) {
  EXPECT_THAT(Run({"status"}).output, testing::Not(HasSubstr("\033")));
  ::setenv("NO_COLOR", "1", 1);
  Terminal plain({"status", "--address", gateway_.address()}, testing::TempDir(), 200,
                 /*keep_no_color=*/true);
  ::unsetenv("NO_COLOR");
  EXPECT_TRUE(plain.WaitFor("state                     ready\r\n"));
  EXPECT_EQ(plain.Wait(), 0);
}

TEST_F(CommandsTest, DoctorsFindingsAreJsonToo) {
  Child child({"doctor", "--json"});
  const int code = child.Wait();
  const auto json = nlohmann::json::parse(child.output());
  EXPECT_EQ(json.at("fit").get<bool>(), code == 0);
  EXPECT_GE(json.at("findings").size(), 8u);
  for (const auto& finding : json.at("findings")) {
    EXPECT_THAT(finding.at("detail").get<std::string>(), testing::Not(HasSubstr("level=")));
  }
}

TEST_F(CommandsTest, InspectPrintsJson) {
  Child child({"inspect", "--json", SourcePath("models/demo/demo.Q8_0.gguf")});
  EXPECT_EQ(child.Wait(), 0);
  const auto json = nlohmann::json::parse(child.output());
  EXPECT_EQ(json.at("format"), "gguf");
  EXPECT_EQ(json.at("config").at("num_layers"), 12);
  EXPECT_EQ(json.at("tensors").size(), 158u);
  EXPECT_EQ(json.at("tensors")[0].at("type"), "q8_0");
}

TEST_F(CommandsTest, InspectPrintsWhatIsInAFile) {
  Child child({"inspect", SourcePath("models/demo/demo.Q8_0.gguf")});
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_THAT(child.output(), HasSubstr("gguf"));
  Child missing({"inspect", "/nowhere.gguf"});
  EXPECT_EQ(missing.Wait(), 1);
  EXPECT_THAT(missing.errors(), HasSubstr("/nowhere.gguf"));
}

// A gateway would refuse the vocabulary in the same words: both ask Tokenizer::Create.
TEST_F(CommandsTest, InspectJudgesAVocabularyAsAGatewayDoes) {
  std::ifstream demo(SourcePath("models/demo/demo.Q8_0.gguf"), std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(demo), std::istreambuf_iterator<char>()};
  const size_t piece = bytes.find("<0x41>");
  ASSERT_NE(piece, std::string::npos);
  bytes.replace(piece, 6, "<0x4Z>");
  const std::string path = ::testing::TempDir() + "/tandem_spelt.gguf";
  std::ofstream(path, std::ios::binary) << bytes;
  Child child({"inspect", path});
  EXPECT_EQ(child.Wait(), 1);
  EXPECT_THAT(child.errors(), HasSubstr("is a byte but not spelt"));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace tandem
