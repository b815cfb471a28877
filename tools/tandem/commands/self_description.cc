#include "tools/tandem/commands/self_description.h"

#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
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

std::string NamesOfCommands(const CLI::App& app) {
  return absl::StrJoin(Subcommands(app), " ", [](std::string* out, const CLI::App* subcommand) {
    out->append(subcommand->get_name());
  });
}

// What may follow an option, or stand for an argument.
struct Values {
  std::vector<std::string> words;  // one of these, if there are any
  bool files = false;              // else the name of a file
};

// An enumeration is what CLI::IsMember's type name says, "TEXT:{f16,q8_0}".  Numbers and keys are
// no files; any other text may be one.
Values ValuesOf(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.find('}');
  Values values;
  if (open != std::string::npos && close != std::string::npos) {
    values.words = absl::StrSplit(type.substr(open + 1, close - open - 1), ',');
  } else {
    values.files = !type.starts_with("INT") && !type.starts_with("UINT") &&
                   !type.starts_with("FLOAT") && type != "KEY" && type != "ADDRESS";
  }
  return values;
}

// Those of a command's arguments that are no options; `help` has commands for values.
Values ArgumentsOf(const CLI::App& app, const CLI::App& command) {
  if (command.get_name() == "help") return {absl::StrSplit(NamesOfCommands(app), ' '), false};
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) return ValuesOf(*option);
  }
  return {};
}

// For single quotes in a shell, and the characters _arguments takes for its own.
std::string ForZsh(const std::string& text) {
  return absl::StrReplaceAll(text, {{"'", "'\\''"}, {"[", "\\["}, {"]", "\\]"}, {":", "\\:"}});
}
std::string ForFish(const std::string& text) {
  return absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}});
}

constexpr char kBash[] = R"(# bash completion of tandem
_tandem() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} flags= values= files=
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '%s --help --version' -- "$current"))
    return
  fi
  # --flag=value comes as three words.
  if [ "$current" = = ]; then
    current=
  elif [ "$previous" = = ]; then
    previous=${COMP_WORDS[COMP_CWORD-2]}
  fi
  case ${COMP_WORDS[1]} in
%s  esac
  case "${COMP_WORDS[1]} $previous" in
%s  esac
  if [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$current"))
  elif [ -n "$values" ]; then
    COMPREPLY=($(compgen -W "$values" -- "$current"))
  elif [ -n "$files" ]; then
    COMPREPLY=($(compgen -f -- "$current"))
  fi
}
complete -o filenames -F _tandem tandem
)";

std::string ZshValues(const Values& values) {
  if (!values.words.empty()) return "(" + absl::StrJoin(values.words, " ") + ")";
  return values.files ? "_files" : " ";
}

}  // namespace

std::string BashCompletion(const CLI::App& app) {
  std::string commands, options;
  const auto assignments = [](const Values& values) {
    return absl::StrFormat("values='%s' files=%s", absl::StrJoin(values.words, " "),
                           values.files ? "1" : "");
  };
  for (const CLI::App* command : Subcommands(app)) {
    std::vector<std::string> flags;
    for (const CLI::Option* option : ShownOptions(*command)) {
      for (const std::string& flag : FlagNames(*option)) {
        flags.push_back(flag);
        if (!TakesValue(*option)) continue;
        absl::StrAppendFormat(&options, "    '%s %s') %s ;;\n", command->get_name(), flag,
                              assignments(ValuesOf(*option)));
      }
    }
    absl::StrAppendFormat(&commands, "    %s) flags='%s' %s ;;\n", command->get_name(),
                          absl::StrJoin(flags, " "), assignments(ArgumentsOf(app, *command)));
  }
  return absl::StrFormat(kBash, NamesOfCommands(app), commands, options);
}

std::string ZshCompletion(const CLI::App& app) {
  std::string names, cases;
  for (const CLI::App* command : Subcommands(app)) {
    absl::StrAppendFormat(&names, "    '%s:%s'\n", command->get_name(),
                          ForZsh(command->get_description()));
    absl::StrAppendFormat(&cases, "    %s)\n      _arguments \\\n", command->get_name());
    for (const CLI::Option* option : ShownOptions(*command)) {
      for (const std::string& flag : FlagNames(*option)) {
        absl::StrAppendFormat(&cases, "        '%s[%s]%s' \\\n", flag,
                              ForZsh(option->get_description()),
                              TakesValue(*option) ? ":value:" + ZshValues(ValuesOf(*option)) : "");
      }
    }
    absl::StrAppendFormat(&cases, "        '*:argument:%s' ;;\n",
                          ZshValues(ArgumentsOf(app, *command)));
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

std::string FishCompletion(const CLI::App& app) {
  std::string script =
      "# fish completion of tandem\n"
      "complete -c tandem -f\n"
      "complete -c tandem -n __fish_use_subcommand -l help -d 'Print this help message and exit'\n"
      "complete -c tandem -n __fish_use_subcommand -l version -d 'Print the version and exit'\n";
  const auto words_of = [](const Values& values) -> std::string {
    if (values.words.empty()) return "";
    return absl::StrFormat(" -a '%s'", absl::StrJoin(values.words, " "));
  };
  // -x: a value is needed, and it is no file.
  const auto value_of = [&words_of](const CLI::Option& option) {
    if (!TakesValue(option)) return std::string();
    const Values values = ValuesOf(option);
    return values.files ? " -r -F" : " -x" + words_of(values);
  };
  for (const CLI::App* command : Subcommands(app)) {
    const std::string& name = command->get_name();
    absl::StrAppendFormat(&script, "complete -c tandem -n __fish_use_subcommand -a %s -d '%s'\n",
                          name, ForFish(command->get_description()));
    const std::string condition =
        absl::StrFormat("complete -c tandem -n '__fish_seen_subcommand_from %s'", name);
    for (const CLI::Option* option : ShownOptions(*command)) {
      for (const std::string& flag : option->get_lnames()) {
        absl::StrAppendFormat(&script, "%s -l %s%s -d '%s'\n", condition, flag, value_of(*option),
                              ForFish(option->get_description()));
      }
    }
    const Values arguments = ArgumentsOf(app, *command);
    if (arguments.files) script += condition + " -F\n";
    if (!arguments.words.empty()) script += condition + words_of(arguments) + "\n";
  }
  return script;
}

std::string ManualPage(const CLI::App& app, const std::string& version) {
  std::string page = absl::StrFormat(
      ".TH TANDEM 1 \"\" \"Tandem %s\" \"User Commands\"\n"
      ".SH NAME\ntandem \\- %s\n"
      ".SH SYNOPSIS\n.B tandem\n.I command\n.RI [ option ...]\n"
      ".SH DESCRIPTION\n"
      "Starts a cluster of services, talks to one, and looks at models and devices.\n"
      ".SH OPTIONS\n",
      version, SummaryOf(app));
  page += OptionParagraphs(app);
  page += ".SH COMMANDS\n";
  for (const CLI::App* subcommand : Subcommands(app)) {
    absl::StrAppendFormat(&page, ".SS tandem %s\n%s.\n", ForRoff(subcommand->get_name()),
                          ForRoff(subcommand->get_description()));
    // Commands inherit the footer that says how to reach this page.
    if (subcommand->get_footer() != app.get_footer()) {
      absl::StrAppendFormat(&page, ".PP\n%s\n", ForRoff(subcommand->get_footer()));
    }
    page += OptionParagraphs(*subcommand);
  }
  const auto section = [&page](const char* heading,
                               const std::vector<std::pair<const char*, const char*>>& entries) {
    absl::StrAppendFormat(&page, ".SH %s\n", heading);
    for (const auto& [name, text] : entries) {
      absl::StrAppendFormat(&page, ".TP\n\\fB%s\\fR\n%s\n", ForRoff(name), ForRoff(text));
    }
  };
  section(
      "EXAMPLES",
      {{"tandem run gemma3:4b", "Pulls a model if it is not there, serves it and talks with it."},
       {"tandem serve --model gemma3:4b", "Serves it until Ctrl-C."},
       {"tandem chat --system 'Be brief.'", "Talks with it."},
       {"tandem generate --chat 'What is the capital of Japan?'", "Asks one question."},
       {"git diff | tandem generate --chat --quiet", "Asks what comes on standard input."},
       {"tandem generate --jsonl < questions.jsonl > answers.jsonl",
        "Answers many, some at a time."},
       {"tandem status --watch", "Shows what the cluster does, again and again."},
       {"TANDEM_API_KEY=KEY tandem chat --address https://example.org",
        "Talks with a cluster on another host, by its HTTP port."},
       {"tandem bench --model gemma3:4b --json > now.json",
        "Measures a model in a cluster of its own."}});
  section("EXIT STATUS",
          {{"0", "Success."},
           {"1",
            "It failed; one line on standard error says why.  So does a write to standard "
            "output that fails."},
           {"2", "The command line is wrong; nothing was done."}});
  section(
      "ENVIRONMENT",
      {{"TANDEM_ADDRESS", "The gateway, where --address does not say."},
       {"TANDEM_API_KEY", "Key for a gateway's HTTP port, where --api-key does not say."},
       {"TANDEM_CA_FILE", "CA that signs its certificate, without --ca-file."},
       {"TANDEM_MODELS", "The folder of pulled models."},
       {"HF_TOKEN", "Token for models that tandem pull may fetch only with one."},
       {"TANDEM_LOG", "Least level that the services log: debug, info, warning or err."},
       {"NO_COLOR", "Set and not empty: no colours.  Only terminals get colours."},
       {"XDG_RUNTIME_DIR",
        "Its folder tandem has a cluster's sockets and logs; without it "
        "/tmp/tandem-UID."},
       {"XDG_STATE_HOME", "Its folder tandem has the history of tandem chat."},
       {"XDG_DATA_HOME", "Its folder tandem has the pulled models, where TANDEM_MODELS is unset."},
       {"XDG_CACHE_HOME", "Its folder tandem has pipelines and packed weights."}});
  section("FILES", {{"~/.local/state/tandem/history", "What was typed in tandem chat."},
                    {"~/.cache/tandem", "Pipelines and packed weights; safe to remove."}});
  page +=
      ".SH SEE ALSO\n"
      "tandem\\-gateway(8), tandem\\-gpu\\-worker(8), tandem\\-npu\\-worker(8), "
      "tandem\\-loader(8), tandem\\-health(1)\n";
  return page;
}

}  // namespace tandem
