// Makes text from a gateway, which may be on another host, safe for terminals.
#pragma once

#include <google/protobuf/message.h>

#include <string>
#include <string_view>

namespace tandem {

// `text` with U+FFFD for each control character but line feed and tab.
std::string ForTerminal(std::string_view text);

// The same, without line feeds.
std::string OnOneLine(std::string_view text);

// Applies OnOneLine to every string in `message`, at any depth.
void MakePrintable(google::protobuf::Message& message);

// A worker's device, marked where a processor does its work: "llvmpipe (software)".
std::string DeviceText(std::string_view device, std::string_view kind, bool emulated);

}  // namespace tandem
