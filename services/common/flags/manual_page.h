// Manual pages (roff) made from what a program's flags say of themselves.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace tandem {

// The options that --help shows.
std::vector<const CLI::Option*> ShownOptions(const CLI::App& app);
// "-h", "--help".
std::vector<std::string> FlagNames(const CLI::Option& option);
bool TakesValue(const CLI::Option& option);

// Text in which nothing means anything to roff.
std::string ForRoff(const std::string& text);
// The shown options, each as a tagged paragraph.
std::string OptionParagraphs(const CLI::App& app);
// The app's description for NAME: without a full stop.
std::string SummaryOf(const CLI::App& app);

struct ManualText {
  int section = 1;
  std::string version;
  // Roff, below DESCRIPTION and after OPTIONS.
  std::string description;
  std::string more_sections;
};

// A whole page.  `app` has a name; its description is one sentence.
std::string ManualOf(const CLI::App& app, const ManualText& page);

// Adds --manual, which --help does not show: prints the page and ends the program.  Call it after
// the other flags are there.
void AddManualFlag(CLI::App& app, const ManualText& page);

}  // namespace tandem
