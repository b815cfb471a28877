// The command chat, and how commands end at Ctrl+C.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>

#include "tools/tandem/commands/testing/commands_fixture.h"
#include "tools/tandem/commands/testing/terminal.h"

namespace tandem {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

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
  EXPECT_THAT(result.errors, HasSubstr("gpu0 worked 0.250 s, 25.0 J\n"));
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

TEST_F(CommandsTest, AnInstructionOnTheCommandLineReplacesTheLoadedOne) {
  const std::string path = testing::TempDir() + "/instructed.json";
  EXPECT_EQ(Run({"chat", "--system", "Be brief."}, "first\n/save " + path + "\n").code, 0);
  EXPECT_EQ(Run({"chat", "--load", path, "--system", "Be kind."}, "second\n").output,
            "4 messages: second\n");
  const v1::ChatRequest request = gateway_.chat_requests().at(1);
  EXPECT_EQ(request.messages(0).role(), "system");
  EXPECT_EQ(request.messages(0).content(), "Be kind.");
  EXPECT_EQ(request.messages(1).content(), "first");
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

}  // namespace
}  // namespace tandem
