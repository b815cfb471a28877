// What can be read from a line of a service's log (base/logging.h), text or JSON.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// "2026-01-31T12:00:00.000", by which lines of several services sort; empty where the line was not
// written by the log: by a driver, say.
std::string_view LogTime(std::string_view line);

// The value of the field "reason", which says why a service ends; else the whole line.
std::string LogReason(std::string_view line);

}  // namespace tandem
