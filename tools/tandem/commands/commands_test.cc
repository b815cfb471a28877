// The client commands, as programs, against a gateway in this process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/time/clock.h"
#include "tools/tandem/commands/testing/child.h"
#include "tools/tandem/commands/testing/fake_gateway.h"
#include "tools/tandem/commands/testing/terminal.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;

using ::testing::StartsWith;

class CommandsTest : public testing::Test {
 protected:
  struct Result {
    int code = 0;
    std::string output;
    std::string errors;
  };
  std::vector<std::string> WithAddress(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin() + 1, {"--address", gateway_.address()});
    return arguments;
  }
  Result Run(std::vector<std::string> arguments, std::string_view input = "") {
    Child child(WithAddress(std::move(arguments)));
    child.Write(input);
    child.CloseInput();
    const int code = child.Wait();
    return {code, child.output(), child.errors()};
  }

  FakeGateway gateway_;
};

TEST_F(CommandsTest, GenerateStreamsTheAnswerAndDescribesIt) {
  const Result result = Run({"generate", "one", "two three"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.output, "one two three\n");
  EXPECT_EQ(result.errors,
            "3 tokens after 3, 10.0 tokens/s, first token after 0.250 s, seed 42, cut at the limit "
            "(--max-tokens)\n"
            "placement: Attend on npu0 (emulated), the rest on gpu0\n"
            "device time: gpu0 0.125 s\n");
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
       {std::vector<std::string>{"inspect", TANDEM_SOURCE_DIR "/models/demo/demo.Q8_0.gguf"},
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
    Child child({command, "--model", TANDEM_SOURCE_DIR "/models/demo/demo.Q8_0.gguf",
                 "--gpu-device", "nosuch"});
    EXPECT_EQ(child.Wait(), 1);
    EXPECT_THAT(child.errors(), StartsWith("tandem: the cluster did not start: ")) << command;
  }
}

TEST_F(CommandsTest, LocalErrorsAreSentencesWithTheWayOut) {
  const std::string path = testing::TempDir() + "/there.gguf";
  std::ofstream(path) << "something";
  Child child({"convert", TANDEM_SOURCE_DIR "/models/demo/demo.Q8_0.gguf", path, "--requantise"});
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

TEST_F(CommandsTest, ChatKeepsTheConversation) {
  const Result result = Run({"chat", "--system", "Be brief."},
                            "first\n\nsecond \\\nline\n/reset\nthird\n/exit\nno\n");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.output,
            "2 messages: first\n"
            "4 messages: second line\n"
            "2 messages: third\n");
  EXPECT_THAT(result.errors, HasSubstr("tokens/s"));
  const v1::ChatRequest second = gateway_.chat_requests().at(1);
  ASSERT_EQ(second.messages_size(), 4);
  EXPECT_EQ(second.messages(2).role(), "assistant");
  EXPECT_EQ(second.messages(2).content(), "2 messages: first");
  EXPECT_EQ(second.messages(3).content(), "second \nline");
}

TEST_F(CommandsTest, ChatTakesMessagesOfManyLines) {
  EXPECT_EQ(Run({"chat"}, "\"\"\"one\n/reset\ntwo\"\"\"\n\"\"\"three\"\"\"\n").output,
            "1 messages: one /reset two\n3 messages: three\n");
  EXPECT_EQ(gateway_.chat_requests().at(0).messages(0).content(), "one\n/reset\ntwo");
}

TEST_F(CommandsTest, ChatTakesAnInstructionAndCountsWhatItTook) {
  const Result result = Run({"chat", "--quiet"},
                            "/system\n/system Be brief.\nfirst\n/reset\nsecond\n/system\n/stats\n");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.output, "2 messages: first\n2 messages: second\n");
  EXPECT_EQ(gateway_.chat_requests().at(1).messages(0).content(), "Be brief.");
  EXPECT_THAT(result.errors, StartsWith("no instruction\nBe brief.\n2 answers, "));
  EXPECT_THAT(result.errors, HasSubstr("gpu0 worked 0.250 s\n"));
}

TEST_F(CommandsTest, ConversationsAreSavedAndGoneOnWith) {
  const std::string path = testing::TempDir() + "/conversation.json";
  EXPECT_EQ(Run({"chat", "--system", "Be brief."}, "first\n/save " + path + "\n").code, 0);
  const Result result = Run({"chat", "--load", path}, "second\n");
  EXPECT_EQ(result.output, "4 messages: second\n");
  const v1::ChatRequest request = gateway_.chat_requests().at(1);
  EXPECT_EQ(request.messages(0).role(), "system");
  EXPECT_EQ(request.messages(1).content(), "first");
  EXPECT_EQ(request.messages(2).role(), "assistant");
  EXPECT_THAT(Run({"chat"}, "/load /nowhere.json\n").errors, HasSubstr("/nowhere.json: No such"));
  EXPECT_THAT(Run({"chat"}, "/save\n").errors, HasSubstr("/save needs a file's name"));
  EXPECT_THAT(Run({"chat"}, "/lod x\n").errors, HasSubstr("/lod is no command"));
}

TEST_F(CommandsTest, PicturesStayInAConversation) {
  const std::string picture = testing::TempDir() + "/picture.png";
  const std::string path = testing::TempDir() + "/seen.json";
  std::ofstream(picture) << std::string("\0\xFF", 2);
  const Result first =
      Run({"chat"}, "/image " + picture + "\nWhat is it?\nAnd now?\n/save " + path + "\n");
  EXPECT_EQ(first.code, 0) << first.errors;
  EXPECT_THAT(first.errors, HasSubstr("the next message has 1 picture\n"));
  EXPECT_EQ(Run({"chat", "--load", path}, "Again?\n").code, 0);
  const auto requests = gateway_.chat_requests();
  ASSERT_EQ(requests.size(), 3u);
  for (const v1::ChatRequest& request : requests) {
    ASSERT_EQ(request.messages(0).images_size(), 1);
    EXPECT_EQ(request.messages(0).images(0).data(), std::string("\0\xFF", 2));
    EXPECT_EQ(request.messages(0).content(), "What is it?");
    for (int i = 1; i < request.messages_size(); ++i) {
      EXPECT_EQ(request.messages(i).images_size(), 0);
    }
  }
  EXPECT_EQ(requests[2].messages_size(), 5);
  EXPECT_THAT(Run({"chat"}, "/image\n").errors, HasSubstr("/image needs a file's name"));
  EXPECT_THAT(Run({"chat"}, "/image /nowhere.png\n").errors, HasSubstr("/nowhere.png: No such"));
}

TEST_F(CommandsTest, FilesThatHoldNoConversationAreRefused) {
  const std::string path = testing::TempDir() + "/broken.json";
  for (const auto& [text, message] :
       {std::pair{"{", "no JSON object"},
        {"{\"messages\": 1}", "a list of messages"},
        {"{\"messages\": [{\"role\": \"user\"}]}", "message 1 needs"},
        {"{\"messages\": [{\"role\": \"cook\", \"content\": \"x\"}]}", "message 1 needs"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", "
         "\"image_url\": {\"url\": \"http://x\"}}]}]}",
         "message 1 needs"}}) {
    std::ofstream(path) << text;
    EXPECT_THAT(Run({"chat", "--load", path}).errors, HasSubstr(message));
  }
}

TEST_F(CommandsTest, LinesTypedAtATerminalCanBeEditedAndComeBack) {
  const std::string home = testing::TempDir() + "/editor-home";
  std::filesystem::remove_all(home);
  std::filesystem::create_directories(home);
  {
    Terminal terminal({"chat", "--quiet", "--address", gateway_.address()}, home);
    ASSERT_TRUE(terminal.WaitFor("> "));
    terminal.Type("helo w\xC3\xB6rld\x01\x06\x06\x06l\r");  // to the start, three to the right
    ASSERT_TRUE(terminal.WaitFor("1 messages: hello w\xC3\xB6rld"));
    ASSERT_TRUE(terminal.WaitFor("> "));
    terminal.Type("dropped\x03");
    ASSERT_TRUE(terminal.WaitFor("Ctrl-D leaves"));
    ASSERT_TRUE(terminal.WaitFor("> "));
    terminal.Type("\x10\r");  // the line before
    ASSERT_TRUE(terminal.WaitFor("3 messages: hello w\xC3\xB6rld"));
    ASSERT_TRUE(terminal.WaitFor("> "));
    terminal.Type("\x04");
    EXPECT_EQ(terminal.Wait(), 0);
  }
  EXPECT_TRUE(std::filesystem::exists(home + "/.local/state/tandem/history"));
  Terminal terminal({"chat", "--quiet", "--address", gateway_.address()}, home);
  ASSERT_TRUE(terminal.WaitFor("> "));
  terminal.Type(std::string_view("x\0\x7f\0", 4));  // Ctrl-D typed ahead: counts on an empty line
  EXPECT_EQ(terminal.Wait(), 0);
}

TEST_F(CommandsTest, ChatGreetsWithTheModelsNameAndCompletesCommands) {
  const std::string home = testing::TempDir() + "/greeting-home";
  std::filesystem::create_directories(home);
  Terminal terminal({"chat", "--address", gateway_.address()}, home);
  ASSERT_TRUE(terminal.WaitFor("demo"));
  ASSERT_TRUE(terminal.WaitFor("> "));
  terminal.Type("/sy\t");
  ASSERT_TRUE(terminal.WaitFor("stem "));
  terminal.Type("Be brief.\r");
  ASSERT_TRUE(terminal.WaitFor("> "));
  terminal.Type("/s\t");
  ASSERT_TRUE(terminal.WaitFor("/save  /stats  /system"));
  terminal.Type("\x03");
  ASSERT_TRUE(terminal.WaitFor("Ctrl-D leaves"));  // not the prompt before
  ASSERT_TRUE(terminal.WaitFor("> "));
  terminal.Type("first\r");
  ASSERT_TRUE(terminal.WaitFor("2 messages: first"));
  ASSERT_TRUE(terminal.WaitFor("\033[2m3 tokens after 3"));  // dim
  ASSERT_TRUE(terminal.WaitFor("> "));
  terminal.Type("\x04");
  EXPECT_EQ(terminal.Wait(), 0);
  EXPECT_EQ(gateway_.chat_requests().at(0).messages(0).content(), "Be brief.");
  Terminal nobody({"chat", "--address", "unix:/nowhere/gateway.sock"}, home);
  EXPECT_TRUE(nobody.WaitFor("no gateway answers at unix:/nowhere/gateway.sock"));
  EXPECT_EQ(nobody.Wait(), 1);
}

TEST_F(CommandsTest, APasteOfSeveralLinesIsOneMessage) {
  const std::string home = testing::TempDir() + "/paste-home";
  std::filesystem::create_directories(home);
  Terminal terminal({"chat", "--quiet", "--address", gateway_.address()}, home);
  ASSERT_TRUE(terminal.WaitFor("\033[?2004h"));  // asks the terminal to mark pastes
  ASSERT_TRUE(terminal.WaitFor("> "));
  terminal.Type("see: \033[200~first\rsecond \xC3\xB6\r\r  third\033[201~ end\r");
  ASSERT_TRUE(terminal.WaitFor("1 messages: see:"));
  ASSERT_TRUE(terminal.WaitFor("> "));
  terminal.Type("\x10\r");  // it is one line of the history, too
  ASSERT_TRUE(terminal.WaitFor("3 messages: see:"));
  ASSERT_TRUE(terminal.WaitFor("> "));
  terminal.Type("\x04");
  ASSERT_TRUE(terminal.WaitFor("\033[?2004l"));
  EXPECT_EQ(terminal.Wait(), 0);
  const auto requests = gateway_.chat_requests();
  ASSERT_EQ(requests.size(), 2u);
  const std::string text = "see: first\nsecond \xC3\xB6\n\n  third end";
  EXPECT_EQ(requests[0].messages(0).content(), text);
  EXPECT_EQ(requests[1].messages(2).content(), text);
}

TEST_F(CommandsTest, ChatBreaksLinesBetweenWords) {
  const std::string home = testing::TempDir() + "/wrap-home";
  std::filesystem::create_directories(home);
  Terminal terminal({"chat", "--quiet", "--address", gateway_.address()}, home, 24);
  ASSERT_TRUE(terminal.WaitFor("> "));
  terminal.Type("aaaaaa bbbbbb cccccc\r");
  // "1 messages: aaaaaa bbbbbb" is 25 columns wide.
  ASSERT_TRUE(terminal.WaitFor("1 messages: aaaaaa\r\nbbbbbb cccccc\r\n"));
  terminal.Type("\x04");
  EXPECT_EQ(terminal.Wait(), 0);
}

TEST_F(CommandsTest, ChatEndsWithItsInput) {
  EXPECT_EQ(Run({"chat"}).code, 0);
  EXPECT_EQ(Run({"chat"}, "no line feed").output, "1 messages: no line feed\n");
}

TEST_F(CommandsTest, ChatWithoutATerminalEndsAtTheFirstError) {
  const Result result = Run({"chat"}, "one\nfail\nnever\n");
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(result.output, "1 messages: one\n");
  EXPECT_THAT(result.errors, HasSubstr("sampling.top_p"));
}

TEST_F(CommandsTest, ControlCStopsTheAnswerAndNotTheChat) {
  Child child(WithAddress({"chat"}));
  child.Write("forever\n");
  ASSERT_TRUE(child.WaitForOutput("1 messages: forever1 messages"));
  child.Signal(SIGINT);
  child.Write("and then\n/exit\n");
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_THAT(child.output(), testing::EndsWith("\n3 messages: and then\n"));
  EXPECT_THAT(child.errors(), HasSubstr("(stopped)"));
}

TEST_F(CommandsTest, ControlCEndsGenerate) {
  Child child(WithAddress({"generate", "forever"}));
  ASSERT_TRUE(child.WaitForOutput("forever"));
  child.Signal(SIGINT);
  EXPECT_EQ(child.Wait(), -SIGINT);
}

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
  std::filesystem::copy_file(TANDEM_SOURCE_DIR "/models/demo/demo.Q8_0.gguf", folder + "/demo.gguf",
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
    const std::string command = "bash --norc -c '. " + script + "; cd " + TANDEM_SOURCE_DIR +
                                "/models/demo; COMP_WORDS=(" + words +
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
  Child child({"inspect", "--json", TANDEM_SOURCE_DIR "/models/demo/demo.Q8_0.gguf"});
  EXPECT_EQ(child.Wait(), 0);
  const auto json = nlohmann::json::parse(child.output());
  EXPECT_EQ(json.at("format"), "gguf");
  EXPECT_EQ(json.at("config").at("num_layers"), 12);
  EXPECT_EQ(json.at("tensors").size(), 158u);
  EXPECT_EQ(json.at("tensors")[0].at("type"), "q8_0");
}

TEST_F(CommandsTest, InspectPrintsWhatIsInAFile) {
  Child child({"inspect", TANDEM_SOURCE_DIR "/models/demo/demo.Q8_0.gguf"});
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_THAT(child.output(), HasSubstr("gguf"));
  Child missing({"inspect", "/nowhere.gguf"});
  EXPECT_EQ(missing.Wait(), 1);
  EXPECT_THAT(missing.errors(), HasSubstr("/nowhere.gguf"));
}

// A gateway would refuse the vocabulary in the same words: both ask Tokenizer::Create.
TEST_F(CommandsTest, InspectJudgesAVocabularyAsAGatewayDoes) {
  std::ifstream demo(TANDEM_SOURCE_DIR "/models/demo/demo.Q8_0.gguf", std::ios::binary);
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
