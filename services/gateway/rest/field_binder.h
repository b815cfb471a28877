// Sets a message's fields from text: path variables and query parameters.
#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem::gateway {

// Names and values of a query, decoded ("a=1&b=x+y"), in order.  INVALID_ARGUMENT: a malformed
// escape, or text that is not UTF-8.
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParseQuery(std::string_view query);

// The fields along a path like "sampling.topK", by their names in the .proto or in JSON.
// INVALID_ARGUMENT: no such field, or a repeated one or a map before the last.
absl::StatusOr<std::vector<const google::protobuf::FieldDescriptor*>> FindFieldPath(
    const google::protobuf::Descriptor& message, std::string_view path);

// Sets fields of one message.  Single-thread.
class FieldBinder {
 public:
  // `message`: Borrowed.
  explicit FieldBinder(google::protobuf::Message& message) : message_(message) {}

  // Sets the scalar field at `path` to `text`, read as proto3's JSON reads a string.  A repeated
  // field gets one more element.  Messages that JSON writes as a string or a scalar (Timestamp,
  // Duration, FieldMask, wrappers) count as scalars.  INVALID_ARGUMENT names the field: a value out
  // of range or of another type, a field that is no scalar, a field set twice, or two fields of one
  // oneof.
  absl::Status Set(std::string_view path, const std::string& text);
  // Set refuses fields at and below `path` from now on.
  absl::Status Forbid(std::string_view path);

 private:
  using FieldPath = std::vector<const google::protobuf::FieldDescriptor*>;
  google::protobuf::Message& message_;
  std::set<FieldPath> set_;        // singular fields that have been set
  std::set<FieldPath> forbidden_;  // set by the path or the body
};

}  // namespace tandem::gateway
