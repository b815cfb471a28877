#include "services/common/flags/parse_flags.h"

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <sstream>

#include "absl/strings/str_format.h"
#include "services/common/flags/manual_page.h"

namespace tandem {
namespace {

// Letters to insert, delete, replace or swap with their neighbour to make `a` into `b`.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> before(b.size() + 1), previous(b.size() + 1), current(b.size() + 1);
  std::iota(previous.begin(), previous.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    current[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      current[j] = std::min({replaced, previous[j] + 1, current[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        current[j] = std::min(current[j], before[j - 2] + 1);
      }
    }
    before.swap(previous);
    previous.swap(current);
  }
  return previous[b.size()];
}

// The app whose flags the command line is about: the subcommand, if one was named.
const CLI::App& ParsedApp(const CLI::App& app) {
  const auto parsed = app.get_subcommands();
  return parsed.empty() ? app : *parsed.front();
}

std::string DescribeExtra(const CLI::App& app, const std::string& extra) {
  if (!extra.starts_with('-')) return absl::StrFormat("'%s' is an argument too many", extra);
  const std::string name = extra.substr(0, extra.find('='));
  std::vector<std::string> known;
  for (const CLI::Option* option : ShownOptions(app)) {
    for (const std::string& flag : FlagNames(*option)) known.push_back(flag);
  }
  const std::string closest = ClosestWord(name, known);
  return absl::StrFormat("there is no flag %s%s", name,
                         closest.empty() ? "" : "; did you mean " + closest + "?");
}

std::string DescribeError(const CLI::App& app, const CLI::ParseError& error) {
  // A misspelt flag is the error, also if it leaves a required one missing.
  const std::vector<std::string> extras = app.remaining();
  const auto is = [&](CLI::ExitCodes code) {
    return error.get_exit_code() == static_cast<int>(code);
  };
  if (!extras.empty() && (is(CLI::ExitCodes::ExtrasError) ||
                          (is(CLI::ExitCodes::RequiredError) && extras[0].starts_with('-')))) {
    return DescribeExtra(app, extras[0]);
  }
  std::string text = error.what();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

std::string ClosestWord(const std::string& word, const std::vector<std::string>& candidates) {
  std::string closest;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const bool begins = word.size() >= 3 && candidate.starts_with(word);
    const size_t distance = begins ? 1 : EditDistance(word, candidate);
    if (distance >= least) continue;
    least = distance;
    closest = candidate;
  }
  return closest;
}

std::optional<int> ParseFlags(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {
      std::ostringstream text;
      app.exit(error, text, text);
      std::fputs(text.str().c_str(), stdout);
      if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return kExitSuccess;
      std::fprintf(stderr, "%s: standard output: not everything could be written\n",
                   app.get_name().c_str());
      return kExitFailure;
    }
    const CLI::App& parsed = ParsedApp(app);
    const bool whole = &parsed == &app;
    const std::string name =
        whole ? app.get_name() : absl::StrFormat("%s %s", app.get_name(), parsed.get_name());
    std::fprintf(stderr, "%s: %s (`%s --help` lists the flags)\n", name.c_str(),
                 DescribeError(parsed, error).c_str(), name.c_str());
    return kExitUsage;
  }
}

}  // namespace tandem
