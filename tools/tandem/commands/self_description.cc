#include "tools/tandem/commands/self_description.h"

#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "services/common/flags/manual_page.h"

namespace tandem {
namespace {

std::vector<const CLI::App*> Subcommands(const CLI::App& app) {
  std::vector<const CLI::App*> subcommands;
  for (const CLI::App* subcommand : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!subcommand->get_group().empty()) subcommands.push_back(subcommand);
  }
  return subcommands;
}

// For single quotes in a shell, and the characters _arguments takes for its own.
std::string ForZsh(const std::string& text) {
  return absl::StrReplaceAll(text, {{"'", "'\\''"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}

}  // namespace

std::string BashCompletion(const CLI::App& app) {
  std::vector<std::string> names;
  std::string cases;
  for (const CLI::App* subcommand : Subcommands(app)) {
    names.push_back(subcommand->get_name());
    std::vector<std::string> flags;
    for (const CLI::Option* option : ShownOptions(*subcommand)) {
      for (const std::string& flag : FlagNames(*option)) flags.push_back(flag);
    }
    absl::StrAppendFormat(&cases, "    %s) words='%s' ;;\n", subcommand->get_name(),
                          absl::StrJoin(flags, " "));
  }
  return absl::StrFormat(R"(# bash completion of tandem
_tandem() {
  local current=${COMP_WORDS[COMP_CWORD]} words=
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '%s --help --version' -- "$current"))
    return
  fi
  case ${COMP_WORDS[1]} in
%s  esac
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$current"))
  else
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}
complete -o filenames -F _tandem tandem
)",
                         absl::StrJoin(names, " "), cases);
}

std::string ZshCompletion(const CLI::App& app) {
  std::string names, cases;
  for (const CLI::App* subcommand : Subcommands(app)) {
    absl::StrAppendFormat(&names, "    '%s:%s'\n", subcommand->get_name(),
                          ForZsh(subcommand->get_description()));
    absl::StrAppendFormat(&cases, "    %s)\n      _arguments \\\n", subcommand->get_name());
    for (const CLI::Option* option : ShownOptions(*subcommand)) {
      for (const std::string& flag : FlagNames(*option)) {
        absl::StrAppendFormat(&cases, "        '%s[%s]%s' \\\n", flag,
                              ForZsh(option->get_description()),
                              TakesValue(*option) ? ":value:_files" : "");
      }
    }
    cases += "        '*:file:_files' ;;\n";
  }
  return absl::StrFormat(R"(#compdef tandem
local -a commands=(
%s)
if (( CURRENT == 2 )); then
  _describe command commands
else
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
%s  esac
fi
)",
                         names, cases);
}

std::string ManualPage(const CLI::App& app, const std::string& version) {
  std::string page = absl::StrFormat(
      ".TH TANDEM 1 \"\" \"Tandem %s\" \"User Commands\"\n"
      ".SH NAME\ntandem \\- %s\n"
      ".SH SYNOPSIS\n.B tandem\n.I command\n.RI [ option ...]\n"
      ".SH DESCRIPTION\n"
      "Starts a cluster of services, talks to one, and looks at models and devices.\n"
      ".SH OPTIONS\n",
      version, ForRoff(app.get_description()));
  page += OptionParagraphs(app);
  page += ".SH COMMANDS\n";
  for (const CLI::App* subcommand : Subcommands(app)) {
    absl::StrAppendFormat(&page, ".SS tandem %s\n%s.\n", ForRoff(subcommand->get_name()),
                          ForRoff(subcommand->get_description()));
    page += OptionParagraphs(*subcommand);
  }
  page +=
      ".SH EXIT STATUS\n0, or 1 after an error, which is one line on standard error.\n"
      ".SH FILES\n.TP\n.I ~/.local/state/tandem/history\nWhat was typed in tandem chat.\n"
      ".TP\n.I ~/.cache/tandem\nPipelines and packed weights; safe to remove.\n";
  return page;
}

}  // namespace tandem
