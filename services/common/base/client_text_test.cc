#include "services/common/base/client_text.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "absl/strings/cord.h"

namespace tandem {
namespace {

TEST(ClientTextTest, PlainTextStaysAsItIs) {
  EXPECT_EQ(ClientText(""), "");
  EXPECT_EQ(ClientText("gemma-3-1b 'it' \"x\" 50%"), "gemma-3-1b 'it' \"x\" 50%");
}

TEST(ClientTextTest, ControlAndNonAsciiBytesAreEscaped) {
  EXPECT_EQ(ClientText("a\r\nb\x1b[31m\x7f"), "a\\x0d\\x0ab\\x1b[31m\\x7f");
  EXPECT_EQ(ClientText("\xC3\xA9\xFF"), "\\xc3\\xa9\\xff");
  EXPECT_EQ(ClientText(std::string_view("\0", 1)), "\\x00");
  EXPECT_EQ(ClientText("\\x1b"), "\\\\x1b");
}

TEST(ClientTextTest, TheLengthIsBoundedWhateverWasSent) {
  EXPECT_EQ(ClientText("abcdef", 6), "abcdef");
  EXPECT_EQ(ClientText("abcdefg", 6), "abcdef...");
  EXPECT_EQ(ClientText("abcde\xFF", 6), "abcde...");
  for (const char c : {'x', '\\', '\n', '\xFF'}) {
    for (const size_t max_bytes : {size_t{0}, size_t{1}, size_t{7}, kShownBytes}) {
      EXPECT_LE(ClientText(std::string(1 << 20, c), max_bytes).size(), max_bytes + 3);
    }
  }
}

TEST(ClientTextTest, MessagesThatAreFitStayAsTheyAre) {
  const std::string message = "model: there is no \"a\\x0d\", only \"b\"";
  EXPECT_EQ(FitMessage(message), message);
  EXPECT_EQ(FitMessage("one\ntwo\x1b[0m\xC3\xA9"), "one two\\x1b[0m\\xc3\\xa9");
  const std::string bounded = FitMessage(std::string(8000, 'x'));
  EXPECT_EQ(bounded.size(), kMaxMessageBytesShown + 3);
  EXPECT_EQ(FitMessage("caf\xC3\xA9", 5), "caf...");
}

TEST(ClientTextTest, FilesAreNamedWithoutTheirFolders) {
  const std::pair<const char*, const char*> cases[] = {
      {"worker at unix:/run/tandem/gpu0.sock: no answer", "worker at unix:gpu0.sock: no answer"},
      {"/home/user/models/gemma.gguf: cannot be read", "gemma.gguf: cannot be read"},
      {"cannot open '/home/some user/a.gguf': full", "cannot open 'a.gguf': full"},
      {"path=/var/lib/x, (/etc/passwd)", "path=x, (passwd)"},
      {"unix:///run/gpu0.sock", "unix:gpu0.sock"},
      {"see https://huggingface.co/google/gemma or hf:google/gemma",
       "see https://huggingface.co/google/gemma or hf:google/gemma"},
      {"/tandem.v1.Generation/Tokenize: no response",
       "/tandem.v1.Generation/Tokenize: no response"},
      {"3 tokens/s, and/or 1/2", "3 tokens/s, and/or 1/2"},
      {"", ""},
      {"/", ""},
      {"'/unclosed quote", "'unclosed quote"},
  };
  for (const auto& [text, shown] : cases) EXPECT_EQ(WithoutFolders(text), shown);
}

TEST(ClientTextTest, ErrorsForClientsAreBoundedAndNameNoFolder) {
  absl::Status status = absl::UnavailableError("worker at unix:/run/tandem/gpu0.sock: lost\n");
  status.SetPayload("tandem/param", absl::Cord("x"));
  const absl::Status shown = ForClients(status);
  EXPECT_EQ(shown.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(shown.message(), "worker at unix:gpu0.sock: lost ");
  EXPECT_EQ(*shown.GetPayload("tandem/param"), "x");
  // What a client sent is shown as it was.
  const absl::Status sent = absl::NotFoundError("'GET /v1/nothing': no such path");
  EXPECT_EQ(ForClients(sent), sent);
  EXPECT_LE(ForClients(absl::NotFoundError(std::string(1 << 20, 'x'))).message().size(),
            kMaxMessageBytesShown + 3);
  EXPECT_EQ(ForClients(absl::OkStatus()), absl::OkStatus());
}

}  // namespace
}  // namespace tandem
