#include "services/common/flags/manual_page.h"

#include <cstdio>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace tandem {

std::vector<const CLI::Option*> ShownOptions(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return !option->get_group().empty(); });
}

std::vector<std::string> FlagNames(const CLI::Option& option) {
  std::vector<std::string> flags;
  for (const std::string& name : option.get_snames()) flags.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) flags.push_back("--" + name);
  return flags;
}

bool TakesValue(const CLI::Option& option) { return option.get_items_expected_max() > 0; }

std::string ForRoff(const std::string& text) {
  std::string escaped = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}});
  if (escaped.starts_with('.') || escaped.starts_with('\'')) escaped = "\\&" + escaped;
  return escaped;
}

namespace {

// The type of an option's value.  CLI11 repeats it before a range: "UINT:UINT in [1 - 16]".
std::string TypeForRoff(const CLI::Option& option) {
  std::string type = option.get_type_name();
  const size_t colon = type.find(':');
  if (colon != std::string::npos &&
      type.compare(colon + 1, colon + 1, type.substr(0, colon) + " ") == 0) {
    type.erase(0, colon + 1);
  }
  return absl::StrReplaceAll(ForRoff(type), {{",", ",\\:"}});  // a long list may break there
}

std::string Sentence(const std::string& text) {
  return text.empty() || text.ends_with('.') ? text : text + ".";
}

}  // namespace

std::string OptionParagraphs(const CLI::App& app) {
  std::string page;
  for (const CLI::Option* option : ShownOptions(app)) {
    const std::vector<std::string> flags = FlagNames(*option);
    std::string head = flags.empty()
                           ? absl::StrFormat("\\fI%s\\fR", ForRoff(option->get_name(true)))
                           : absl::StrFormat("\\fB%s\\fR", ForRoff(absl::StrJoin(flags, ", ")));
    if (!flags.empty() && TakesValue(*option)) {
      head += absl::StrFormat(" \\fI%s\\fR", TypeForRoff(*option));
    }
    absl::StrAppendFormat(&page, ".TP\n%s\n%s\n", head,
                          ForRoff(Sentence(option->get_description())));
    if (!option->get_default_str().empty()) {
      absl::StrAppendFormat(&page, "Default: %s.\n", ForRoff(option->get_default_str()));
    }
  }
  return page;
}

std::string SummaryOf(const CLI::App& app) {
  std::string summary = app.get_description();
  if (summary.ends_with('.')) summary.pop_back();
  return ForRoff(summary);
}

std::string ManualOf(const CLI::App& app, const ManualText& page) {
  const std::string name = app.get_name();
  return absl::StrFormat(
      ".TH %s %d \"\" \"Tandem %s\" \"%s\"\n"
      ".SH NAME\n%s \\- %s\n"
      ".SH SYNOPSIS\n.B %s\n.RI [ option ...]\n"
      ".SH DESCRIPTION\n%s"
      ".SH OPTIONS\n%s%s"
      ".SH SEE ALSO\ntandem(1)\n",
      absl::AsciiStrToUpper(name), page.section, page.version,
      page.section == 8 ? "System Administration" : "User Commands", ForRoff(name), SummaryOf(app),
      ForRoff(name), page.description, OptionParagraphs(app), page.more_sections);
}

void AddManualFlag(CLI::App& app, const ManualText& page) {
  app.add_flag_callback("--manual",
                        [&app, page] {
                          std::fputs(ManualOf(app, page).c_str(), stdout);
                          throw CLI::Success();
                        })
      ->configurable(false)
      ->group("");
}

}  // namespace tandem
