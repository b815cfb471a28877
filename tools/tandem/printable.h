// Text from a gateway, which may be on another host, made fit for terminals.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

namespace tandem {

// `text` with U+FFFD for each control character but line feed and tab.
std::string ForTerminal(std::string_view text);

// The same on one line.
std::string OnOneLine(std::string_view text);

// Every string in `message`, at any depth, becomes OnOneLine of it.
void MakePrintable(google::protobuf::Message& message);

}  // namespace tandem
