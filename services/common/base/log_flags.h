// The flag of every service that says how it logs.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "services/common/base/logging.h"

namespace tandem {

// --log-format, in force as soon as it is parsed.
inline void AddLogFlags(CLI::App& app) {
  app.add_option_function<std::string>(
         "--log-format",
         [](const std::string& format) {
           SetLogFormat(format == "json" ? LogFormat::kJson : LogFormat::kText);
         },
         "Lines of the log: text (key=value) or json")
      ->check(CLI::IsMember({"text", "json"}))
      ->default_str("text");
}

}  // namespace tandem
