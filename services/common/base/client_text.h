// Text that a client or another host sent, made fit for errors, logs, headers and terminals.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tandem {

// Bytes that an error shows of a text unless its place calls for another number.
inline constexpr size_t kShownBytes = 64;
// Longest message of a status that crosses a process or reaches a client.
inline constexpr size_t kMaxMessageBytesShown = 1024;

// `text` as visible ASCII and spaces on one line: every other byte is "\xNN", a backslash "\\".
// Once `max_bytes` bytes are there the rest becomes "...", so the result is at most
// max_bytes + 3 bytes long whatever was sent.  Time O(max_bytes).
std::string ClientText(std::string_view text, size_t max_bytes = kShownBytes);

// A whole message (an error's text) for a header or a terminal: as ClientText, but a backslash
// stays as it is, and a tab or a line's end becomes a space.  A message that is fit already is
// returned unchanged.
std::string FitMessage(std::string_view message, size_t max_bytes = kMaxMessageBytesShown);

// `text` with the file's name alone in place of each absolute path in it: "unix:/run/gpu0.sock" is
// "unix:gpu0.sock".  Addresses (https://...) and methods (/package.Service/Method) stay.
std::string WithoutFolders(std::string_view text);

// An error as clients may see it: its message fits (FitMessage), and where the mistake is not the
// client's it names no folder of this machine.  Code and payloads stay.
absl::Status ForClients(const absl::Status& status);

}  // namespace tandem
