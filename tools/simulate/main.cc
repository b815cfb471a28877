// tandem-simulate: the gateway over simulated workers, loaders, network and time.
// docs/simulation.md says what it checks.
#include <sys/personality.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/str_format.h"
#include "services/common/base/exit_codes.h"
#include "services/common/base/logging.h"
#include "services/common/flags/parse_flags.h"
#include "services/common/version/version.h"
#include "tools/simulate/run/many.h"
#include "tools/simulate/run/simulation.h"
#include "tools/simulate/threads/world.h"

namespace tandem::simulate {
namespace {

// The same addresses in every run: hash tables are ordered by them.
void KeepAddresses(char** argv) {
  const int now = ::personality(0xFFFFFFFF);
  if (now < 0 || (now & ADDR_NO_RANDOMIZE) != 0) return;
  if (::personality(static_cast<unsigned long>(now) | ADDR_NO_RANDOMIZE) >= 0) {
    ::execv("/proc/self/exe", argv);
  }
  std::fprintf(stderr,
               "tandem-simulate: addresses stay random: a seed may run differently again\n");
}

int Replay(uint64_t seed) {
  const Scenario scenario = DrawScenario(seed);
  std::printf("%s\n", Describe(scenario).c_str());
  std::fflush(stdout);
  InitLogging("gateway");
  const Note note = [](const std::string& text) {
    std::fprintf(stderr, "%s %s\n", ElapsedText().c_str(), text.c_str());
  };
  const Findings findings = Simulate(scenario, note, [](const Findings& /*findings*/) {});
  std::printf("%d answered, %d refused, %d ended with errors, %d cancelled, %d violations\n",
              static_cast<int>(findings.num_answered), static_cast<int>(findings.num_refused),
              static_cast<int>(findings.num_ended), static_cast<int>(findings.num_cancelled),
              static_cast<int>(findings.violations.size()));
  return findings.violations.empty() ? kExitSuccess : kExitFailure;
}

int Main(int argc, char** argv) {
  ManyOptions many;
  bool log = false;
  CLI::App app("Runs the gateway over simulated workers that fail, a scenario for each seed.",
               "tandem-simulate");
  app.add_option("--first-seed", many.first_seed, "The first seed")->capture_default_str();
  app.add_option("--seeds", many.num_seeds, "How many seeds")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--jobs", many.num_jobs, "Seeds that run at the same time")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  app.add_option("--seconds", many.seconds, "Time limit for a seed, in seconds of real time")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_flag("--stop", many.stop, "End with the first seed that fails");
  app.add_flag("--twice", many.twice, "Run each seed twice: one whose runs differ fails");
  app.add_flag("--log", log, "Run --first-seed alone, with a log of what happens");
  app.set_version_flag("--version", VersionText("tandem-simulate"));
  if (const auto ended = ParseFlags(app, argc, argv)) return *ended;
  KeepAddresses(argv);
  return log ? Replay(many.first_seed) : RunMany(many);
}

}  // namespace
}  // namespace tandem::simulate

int main(int argc, char** argv) { return tandem::simulate::Main(argc, argv); }
