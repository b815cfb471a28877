// Errors that name the wrong part of a request, for APIs that report more than a code.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace tandem::gateway {

// INVALID_ARGUMENT about the parameter `param` ("messages[2].role"), of the kind `code`
// ("invalid_type"); both travel in the status.
absl::Status ParamError(std::string_view param, std::string_view code, std::string_view message);

// The parameter of a ParamError; may be empty.  For other INVALID_ARGUMENT or NOT_FOUND errors: the
// name at the start of the message, before a colon ("messages[1].role: ..."), without "sampling.";
// empty without a name.
std::string ErrorParam(const absl::Status& status);
// The kind of a ParamError; "context_length_exceeded" if the message starts with that; empty for
// other errors.
std::string ErrorCode(const absl::Status& status);
// An error about messages[i] of a ChatRequest as one about `array`[places[i]], the element that the
// message was read from.  Other errors stay as they are.
absl::Status AtPlace(const absl::Status& status, std::string_view array,
                     const std::vector<size_t>& places);
// The message for clients of the JSON APIs, in which parameters are not below "sampling.".
std::string ErrorMessage(const absl::Status& status);

}  // namespace tandem::gateway
