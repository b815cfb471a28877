// Parses a line of a service's log (base/logging.h), text or JSON.
#pragma once

#include <string>
#include <string_view>

namespace tandem {

// "2026-01-31T12:00:00.000", the sort key of lines of several services; empty if the log did not
// write the line (but a driver did).
std::string_view LogTime(std::string_view line);

// The value of the field "reason", which services log when they end; else the whole line.
std::string LogReason(std::string_view line);

}  // namespace tandem
