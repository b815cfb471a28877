// The client commands, as programs: answers, embeddings, usage and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "services/common/testing/paths.h"
#include "tools/tandem/commands/testing/commands_fixture.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(CommandsTest, GenerateStreamsTheAnswerAndDescribesIt) {
  const Result result = Run({"generate", "one", "two three"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.output, "one two three\n");
  EXPECT_EQ(result.errors,
            "3 tokens after 3, 10.0 tokens/s, first token after 0.250 s, seed 42, cut at the limit "
            "(--max-tokens)\n"
            "placement: Attend on npu0 (emulated), the rest on gpu0\n"
            "device time: gpu0 0.125 s (12.5 J)\n");
  EXPECT_EQ(Run({"generate", "--quiet", "one"}).errors, "");
}

TEST_F(CommandsTest, EmbedPrintsALineForATextOrForEachLineOfStandardInput) {
  EXPECT_EQ(Run({"embed", "one", "two"}).output, "{\"text\":\"one two\",\"embedding\":[7,0]}\n");
  EXPECT_EQ(Run({"embed"}, "a \"b\"\nc").output,
            "{\"text\":\"a \\\"b\\\"\",\"embedding\":[5,0]}\n"
            "{\"text\":\"c\",\"embedding\":[1,0.1]}\n");
  std::string lines;
  for (int i = 0; i < 65; ++i) lines += "text\n";
  const std::string output = Run({"embed", "-"}, lines).output;
  EXPECT_EQ(std::count(output.begin(), output.end(), '\n'), 65);
  EXPECT_TRUE(output.ends_with("[4,0]}\n")) << "a call of its own";
  EXPECT_EQ(Run({"embed"}, "").output, "");
  EXPECT_THAT(Run({"embed", "fail"}).errors, HasSubstr("not finite"));
}

TEST_F(CommandsTest, ALineThatCannotBeEmbeddedDoesNotLoseTheOthers) {
  const Result result = Run({"embed"}, "a\n\n \xFF\nbb\n");
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.output,
            "{\"text\":\"a\",\"embedding\":[1,0]}\n"
            "{\"line\":2,\"error\":\"the line is empty\"}\n"
            "{\"line\":3,\"error\":\"the line is not UTF-8 at byte 1\"}\n"
            "{\"text\":\"bb\",\"embedding\":[2,0.1]}\n");
  EXPECT_EQ(result.errors, "tandem: 2 of 4 lines failed; their errors are in the output\n");
  // One that the gateway refuses.
  const Result refused = Run({"embed"}, "a\nfail\nbb\n");
  EXPECT_EQ(refused.code, 1);
  EXPECT_EQ(refused.output,
            "{\"text\":\"a\",\"embedding\":[1,0]}\n"
            "{\"line\":2,\"error\":\"not finite\"}\n"
            "{\"text\":\"bb\",\"embedding\":[2,0]}\n");
}

TEST_F(CommandsTest, GenerateReadsThePromptFromStandardInput) {
  EXPECT_EQ(Run({"generate"}, "from a pipe\n").output, "from a pipe\n");
  EXPECT_EQ(Run({"generate", "-"}, "line\n\n").output, "line\n");
  EXPECT_EQ(gateway_.generate_requests()[0].text(), "from a pipe");
  EXPECT_EQ(gateway_.generate_requests()[1].text(), "line\n");
}

TEST_F(CommandsTest, GeneratePassesEveryFlagOn) {
  ASSERT_EQ(Run({"generate",
                 "--model",
                 "demo",
                 "--max-tokens",
                 "9",
                 "--stop",
                 "END",
                 "--stop",
                 "two words",
                 "--temperature",
                 "0",
                 "--top-k",
                 "5",
                 "--top-p",
                 "0.5",
                 "--min-p",
                 "0.25",
                 "--repetition-penalty",
                 "1.5",
                 "--presence-penalty",
                 "-0.5",
                 "--frequency-penalty",
                 "0.75",
                 "--seed",
                 "18446744073709551615",
                 "--ignore-eos",
                 "hello"})
                .code,
            0);
  const v1::GenerateRequest request = gateway_.generate_requests().at(0);
  EXPECT_EQ(request.model(), "demo");
  EXPECT_EQ(request.text(), "hello");
  EXPECT_EQ(request.limits().max_tokens(), 9);
  ASSERT_EQ(request.limits().stop_size(), 2);
  EXPECT_EQ(request.limits().stop(1), "two words");
  EXPECT_TRUE(request.limits().ignore_eos());
  EXPECT_TRUE(request.sampling().has_temperature());
  EXPECT_EQ(request.sampling().temperature(), 0.0f);
  EXPECT_EQ(request.sampling().top_k(), 5);
  EXPECT_EQ(request.sampling().top_p(), 0.5f);
  EXPECT_EQ(request.sampling().min_p(), 0.25f);
  EXPECT_EQ(request.sampling().repetition_penalty(), 1.5f);
  EXPECT_EQ(request.sampling().presence_penalty(), -0.5f);
  EXPECT_EQ(request.sampling().frequency_penalty(), 0.75f);
  EXPECT_EQ(request.sampling().seed(), ~uint64_t{0});

  ASSERT_EQ(Run({"generate", "plain"}).code, 0);
  const v1::GenerateRequest plain = gateway_.generate_requests().at(1);
  EXPECT_FALSE(plain.sampling().has_temperature());
  EXPECT_FALSE(plain.sampling().has_seed());
  EXPECT_EQ(plain.limits().max_tokens(), 512) << "a text may have no end";
  EXPECT_FALSE(plain.has_logprobs());
  ASSERT_EQ(Run({"generate", "--max-tokens", "0", "all"}).code, 0);
  EXPECT_FALSE(gateway_.generate_requests().at(2).limits().has_max_tokens());
}

TEST_F(CommandsTest, GeneratePassesAConstraintOn) {
  const std::string folder = testing::TempDir() + "/";
  std::ofstream(folder + "a.json") << "{\"type\": \"object\"}";
  std::ofstream(folder + "a.gbnf") << "root ::= \"a\"\n";
  std::ofstream(folder + "a.lark") << "start: \"a\"\n";
  const std::vector<std::vector<std::string>> flags = {
      {"--schema", folder + "a.json"},
      {"--grammar", folder + "a.gbnf"},
      {"--grammar", folder + "a.lark"},
      {"--regex", "[a-z]+ [0-9]"},
      {"--choices", "yes,no", "--choices", "not now"},
      {"--chat", "--choices", "yes"},
      {"--quiet"},
  };
  for (const auto& given : flags) {
    std::vector<std::string> arguments = {"generate"};
    arguments.insert(arguments.end(), given.begin(), given.end());
    arguments.emplace_back("words");
    EXPECT_EQ(Run(arguments).code, 0) << given[0];
  }
  const auto requests = gateway_.generate_requests();
  ASSERT_EQ(requests.size(), 6u);
  EXPECT_EQ(requests[0].constraint().json_schema(), "{\"type\": \"object\"}");
  EXPECT_EQ(requests[1].constraint().gbnf(), "root ::= \"a\"\n");
  EXPECT_EQ(requests[2].constraint().lark(), "start: \"a\"\n");
  EXPECT_EQ(requests[3].constraint().regex(), "[a-z]+ [0-9]");
  EXPECT_THAT(requests[4].constraint().choices().texts(),
              testing::ElementsAre("yes", "no", "not now"));
  EXPECT_EQ(requests[4].text(), "words");
  EXPECT_FALSE(requests[5].has_constraint());
  EXPECT_THAT(gateway_.chat_requests().at(0).constraint().choices().texts(),
              testing::ElementsAre("yes"));
  ASSERT_EQ(Run({"chat", "--regex", "[a-z]+"}, "one\ntwo\n").code, 0);
  for (const size_t turn : {1u, 2u}) {
    EXPECT_EQ(gateway_.chat_requests().at(turn).constraint().regex(), "[a-z]+");
  }
  ASSERT_EQ(Run({"generate", "--jsonl", "--regex", "a+"}, "{\"prompt\": \"one\"}\n").code, 0);
  EXPECT_EQ(gateway_.generate_requests().back().constraint().regex(), "a+");

  const Result missing = Run({"generate", "--schema", "/nowhere/a.json", "x"});
  EXPECT_EQ(missing.code, 1);
  EXPECT_THAT(missing.errors, StartsWith("tandem: --schema: /nowhere/a.json cannot be read: No "
                                         "such file or directory"));
  std::ofstream(folder + "long.json") << std::string((1 << 20) + 1, ' ');
  EXPECT_THAT(Run({"generate", "--schema", folder + "long.json", "x"}).errors,
              HasSubstr("long.json has more than 1048576 bytes"));
  EXPECT_THAT(Run({"generate", "--schema", folder, "x"}).errors, HasSubstr("Is a directory"));
  EXPECT_EQ(Run({"generate", "--regex", "a", "--choices", "a,b", "x"}).code, 2);
}

TEST_F(CommandsTest, GenerateAnswersAQuestion) {
  const Result result = Run({"generate", "--chat", "--system", "Be brief.", "Why?"});
  EXPECT_EQ(result.output, "2 messages: Why?\n");
  const v1::ChatRequest request = gateway_.chat_requests().at(0);
  EXPECT_EQ(request.messages(0).role(), "system");
  EXPECT_EQ(request.messages(0).content(), "Be brief.");
  EXPECT_EQ(request.messages(1).role(), "user");
  EXPECT_EQ(request.limits().max_tokens(), 4096);
}

TEST_F(CommandsTest, GenerateSendsPictures) {
  const std::string one = testing::TempDir() + "/one.png";
  const std::string other = testing::TempDir() + "/other.jpg";
  std::ofstream(one) << "a picture";
  std::ofstream(other) << std::string("\0\xFF", 2);
  EXPECT_EQ(Run({"generate", "--image", one, "--image", other, "What", "is", "it?"}).code, 0);
  const v1::ChatMessage message = gateway_.chat_requests().at(0).messages(0);
  EXPECT_EQ(message.content(), "What is it?");
  ASSERT_EQ(message.images_size(), 2);
  EXPECT_EQ(message.images(0).data(), "a picture");
  EXPECT_EQ(message.images(1).data(), std::string("\0\xFF", 2));
  EXPECT_EQ(message.images(1).content_offset(), 0u);
  EXPECT_THAT(Run({"generate", "--image", "/nowhere.png", "x"}).errors,
              HasSubstr("/nowhere.png: No such"));
  std::ofstream(one).close();
  EXPECT_THAT(Run({"generate", "--image", one, "x"}).errors, HasSubstr("one.png: 0 bytes"));
  EXPECT_EQ(Run({"generate", "--jsonl", "--image", other}).code, 2);
}

TEST_F(CommandsTest, GeneratePrintsJson) {
  const Result result = Run({"generate", "--json", "--logprobs", "1", "a b"});
  EXPECT_EQ(result.code, 0);
  const auto json = nlohmann::json::parse(result.output);
  EXPECT_EQ(json.at("text"), "a b");
  EXPECT_EQ(json.at("finish_reason"), "length");
  EXPECT_EQ(json.at("usage").at("completion_tokens"), 2);
  EXPECT_EQ(json.at("usage").at("device_seconds").at("gpu0"), 0.125);
  EXPECT_EQ(json.at("usage").at("device_joules").at("gpu0"), 12.5);
  EXPECT_THAT(json.at("placement").get<std::string>(), StartsWith("Attend on npu0"));
  ASSERT_EQ(json.at("tokens").size(), 2);
  EXPECT_EQ(json.at("tokens")[1].at("piece"), " b");
  EXPECT_EQ(json.at("tokens")[1].at("logprob"), -0.5);
  EXPECT_EQ(json.at("tokens")[1].at("alternatives")[0].at("piece"), "\uFFFD");
}

TEST_F(CommandsTest, GenerateAnswersJsonLinesInTheirOrder) {
  const Result result =
      Run({"generate", "--jsonl", "--parallel", "3", "--max-tokens", "7"},
          "{\"prompt\": \"one two\", \"id\": [1]}\n"
          "\n"
          "{\"messages\": [{\"role\": \"user\", \"content\": \"Why?\"}], \"max_tokens\": 3}\n"
          "{\"prompt\": 1}\n"
          "nonsense\n"
          "{\"prompt\": \"fail\"}\n"
          "{\"prompt\": \"last\", \"seed\": 5, \"temperature\": 0}\n");
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.errors, HasSubstr("3 of 6 lines failed"));
  std::vector<nlohmann::json> lines;
  std::istringstream stream(result.output);
  for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(lines.size(), 6u);
  for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i].at("index"), i);
  EXPECT_EQ(lines[0].at("text"), "one two");
  EXPECT_EQ(lines[0].at("id"), nlohmann::json::parse("[1]"));
  EXPECT_EQ(lines[1].at("text"), "1 messages: Why?");
  EXPECT_EQ(lines[2].at("error").at("message"), "'prompt' must be a text");
  EXPECT_EQ(lines[3].at("error").at("message"), "the line is no JSON object");
  EXPECT_EQ(lines[4].at("error").at("code"), "INVALID_ARGUMENT");
  EXPECT_EQ(lines[5].at("text"), "last");
  EXPECT_EQ(gateway_.chat_requests().at(0).limits().max_tokens(), 3);
  for (const v1::GenerateRequest& request : gateway_.generate_requests()) {
    EXPECT_EQ(request.limits().max_tokens(), 7);
    EXPECT_EQ(request.sampling().has_seed(), request.text() == "last");
  }
}

TEST_F(CommandsTest, UnknownCommandsAreNamedWithASuggestion) {
  Child child({"srve"});
  EXPECT_EQ(child.Wait(), 2);
  EXPECT_EQ(child.errors(),
            "tandem: there is no command 'srve'; did you mean 'serve'? (`tandem help` lists "
            "them)\n");
  Child far({"xylophone", "--help"});
  EXPECT_EQ(far.Wait(), 2);
  EXPECT_THAT(far.errors(), testing::Not(HasSubstr("did you mean")));
}

TEST_F(CommandsTest, HelpAndVersionAreCommandsToo) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{}, {"help"}, {"--help"}}) {
    Child child(arguments);
    EXPECT_EQ(child.Wait(), 0);
    EXPECT_THAT(child.output(), HasSubstr("Usage: tandem [OPTIONS]"));
    EXPECT_THAT(child.output(), HasSubstr("Start the four services"));
  }
  Child help({"help", "embed"}), flag({"embed", "--help"});
  EXPECT_EQ(help.Wait(), 0);
  EXPECT_EQ(flag.Wait(), 0);
  EXPECT_THAT(help.output(), HasSubstr("Usage: tandem embed"));
  EXPECT_EQ(help.output(), flag.output());
  Child unknown({"help", "srve"});
  EXPECT_EQ(unknown.Wait(), 2);
  EXPECT_THAT(unknown.errors(), HasSubstr("did you mean 'serve'?"));
  Child version({"version"}), version_flag({"--version"});
  EXPECT_EQ(version.Wait(), 0);
  EXPECT_EQ(version_flag.Wait(), 0);
  EXPECT_EQ(version.output(), version_flag.output());
}

TEST_F(CommandsTest, UsageErrorsExitWithTwo) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--nonsense"},
                                                    {"serve"},
                                                    {"generate", "--top-k", "many", "x"},
                                                    {"generate", "--system", "x", "y"},
                                                    {"trace"},
                                                    {"completion", "nosuch"}}) {
    Child child(arguments);
    EXPECT_EQ(child.Wait(), 2) << arguments[0];
    EXPECT_EQ(std::count(child.errors().begin(), child.errors().end(), '\n'), 1) << child.errors();
  }
  Child misspelt({"serve", "--modle", "x"});
  EXPECT_EQ(misspelt.Wait(), 2);
  EXPECT_THAT(misspelt.errors(), HasSubstr("there is no flag --modle; did you mean --model?"));
}

TEST_F(CommandsTest, AFullDiskUnderStandardOutputIsAnError) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"inspect", SourcePath("models/demo/demo.Q8_0.gguf")},
        {"--help"},
        {"version"},
        {"manual"},
        WithAddress({"generate", "x"}),
        WithAddress({"embed", "x"}),
        WithAddress({"status"}),
        WithAddress({"models", "--json"})}) {
    Child child(arguments, "/dev/full");
    EXPECT_EQ(child.Wait(), 1) << arguments[0];
    EXPECT_THAT(child.errors(), HasSubstr("tandem: standard output: ")) << arguments[0];
  }
}

TEST_F(CommandsTest, ErrorsAreOneLineAndExitCodeOne) {
  const Result result = Run({"generate", "fail"});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.output, "");
  EXPECT_EQ(result.errors,
            "tandem: sampling.top_p is 7: it must be in (0, 1] (INVALID_ARGUMENT)\n");
  EXPECT_THAT(Run({"generate", "nothing"}).errors, HasSubstr("without a reason"));
  EXPECT_THAT(Run({"generate", "bad \xFF"}).errors,
              StartsWith("tandem: the prompt is not UTF-8 at byte 4\n"));
  EXPECT_THAT(Run({"generate", "--system", "x", "y"}).errors, HasSubstr("--chat"));
  EXPECT_NE(Run({"generate", "--top-k", "many", "x"}).code, 0);
}

TEST_F(CommandsTest, NamesTheAddressWhereNobodyAnswers) {
  for (const std::vector<std::string>& command : {std::vector<std::string>{"generate"},
                                                  {"chat"},
                                                  {"embed"},
                                                  {"models"},
                                                  {"status"},
                                                  {"bench"},
                                                  {"trace", "--last"}}) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.begin() + 1, {"--address", "unix:/nowhere/gateway.sock"});
    const absl::Time begin = absl::Now();
    Child child(arguments);
    child.Write("hello\n");
    child.CloseInput();
    EXPECT_EQ(child.Wait(), 1);
    EXPECT_THAT(child.errors(), StartsWith("tandem: no gateway answers at unix:/nowhere/gateway"));
    EXPECT_THAT(child.errors(), HasSubstr("tandem serve"));
    EXPECT_LT(absl::Now() - begin, absl::Seconds(10)) << command[0];
  }
}

TEST_F(CommandsTest, AClusterOfOnesOwnThatCannotStartIsAnErrorAtOnce) {
  for (const char* command : {"bench", "tune"}) {
    Child missing({command, "--model", "/nowhere/model.gguf"});
    EXPECT_EQ(missing.Wait(), 2);
    EXPECT_THAT(missing.errors(), HasSubstr("/nowhere/model.gguf")) << command;
    // What only the cluster finds out.
    Child child(
        {command, "--model", SourcePath("models/demo/demo.Q8_0.gguf"), "--gpu-device", "nosuch"});
    EXPECT_EQ(child.Wait(), 1);
    EXPECT_THAT(child.errors(), StartsWith("tandem: the cluster did not start: ")) << command;
  }
}

TEST_F(CommandsTest, AKilledCommandLeavesNothingOfItsCluster) {
  // Without it the cluster ends by itself, before the command is killed.
  if (!std::filesystem::exists(BuildPath("bin/tandem-gpu-worker"))) {
    GTEST_SKIP() << "tandem-gpu-worker is not in this build";
  }
  std::string folder = testing::TempDir() + "/own-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const auto begun = [&folder] {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (std::filesystem::exists(entry.path() / "serve.pid")) return true;
    }
    return false;
  };
  const std::string model = SourcePath("models/demo/demo.Q8_0.gguf");
  const std::vector<std::pair<int, std::vector<std::string>>> cases = {
      {SIGINT, {"bench", "--model", model, "--gpu-device", "nosuch"}},
      {SIGKILL, {"bench", "--model", model, "--gpu-device", "nosuch"}},
      {SIGTERM, {"tune", "--model", model, "--gpu-device", "nosuch"}},
      {SIGHUP, {"run", model, "--gpu-device", "nosuch"}}};
  for (const auto& [signal, command] : cases) {
    ::setenv("TMPDIR", folder.c_str(), 1);
    Child child(command);
    ::unsetenv("TMPDIR");
    const absl::Time patience = absl::Now() + absl::Seconds(60);
    while (!begun() && absl::Now() < patience) absl::SleepFor(absl::Milliseconds(1));
    ASSERT_TRUE(begun()) << command[0];
    child.Signal(signal);
    EXPECT_NE(child.Wait(), 0);
    while (!std::filesystem::is_empty(folder) && absl::Now() < patience) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder)) << command[0] << " " << signal;
  }
  std::filesystem::remove_all(folder);
}

TEST_F(CommandsTest, RunTalksToAGatewayThatServesItsVeryFile) {
  const std::string path = SourcePath("models/demo/demo.Q8_0.gguf");
  Child inspect({"inspect", "--json", path});
  ASSERT_EQ(inspect.Wait(), 0);
  const auto model = nlohmann::json::parse(inspect.output());
  const auto run = [this, &path](const std::string& id) {
    gateway_.set_model("demo.Q8_0.gguf", id);
    // No cluster of its own can start.
    Child child({"run", path, "--gpu-device", "nosuch", "Hello"});
    const int code = child.Wait();
    return Result{code, child.output(), child.errors()};
  };
  ::setenv("TANDEM_ADDRESS", gateway_.address().c_str(), 1);
  const Result same = run(model.at("content_id").get<std::string>());
  const Result other = run("0123456789abcdef0123456789abcdef");
  ::unsetenv("TANDEM_ADDRESS");
  EXPECT_EQ(same.code, 0) << same.errors;
  EXPECT_EQ(gateway_.chat_requests().size(), 1u);
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.errors, HasSubstr("serves another file demo.Q8_0.gguf"));
  EXPECT_THAT(other.errors, HasSubstr("the cluster did not start: "));
}

TEST_F(CommandsTest, LocalErrorsAreSentencesWithTheWayOut) {
  const std::string path = testing::TempDir() + "/there.gguf";
  std::ofstream(path) << "something";
  Child child({"convert", SourcePath("models/demo/demo.Q8_0.gguf"), path, "--requantise"});
  EXPECT_EQ(child.Wait(), 1);
  EXPECT_EQ(child.errors(),
            "tandem: " + path + " is there already: --force replaces it, or choose another name\n");
}

TEST_F(CommandsTest, GenerateGivesUpAtItsTimeout) {
  const Result result = Run({"generate", "--timeout", "0.2", "forever"});
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.output, StartsWith("forever"));
  EXPECT_THAT(result.errors, HasSubstr("DEADLINE_EXCEEDED"));
}

}  // namespace
}  // namespace tandem
