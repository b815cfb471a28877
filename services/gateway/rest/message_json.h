// Protobuf messages as JSON, by proto3's JSON mapping.
//
// Encodes the message and prints the fields in the order of the bytes, so it costs nothing for
// fields without a value.  protobuf's MessageToJsonString goes through a general tree of types,
// which takes too long for a message per token.
#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "absl/status/status.h"

namespace tandem::gateway {

// Appends `message`, of a generated proto3 type, to `out` as one line.  Leaves out fields at their
// default, as MessageToJsonString does.  Bytes of texts that are not UTF-8 become U+FFFD.
// INTERNAL: a google.protobuf.Timestamp, Any or the like that has no JSON form; `out` then ends
// within the message.
absl::Status AppendMessageJson(const google::protobuf::Message& message, std::string& out);

}  // namespace tandem::gateway
