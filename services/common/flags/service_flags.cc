#include "services/common/flags/service_flags.h"

#include "services/common/flags/config_file.h"
#include "services/common/flags/manual_page.h"
#include "services/common/version/version.h"

namespace tandem {
namespace {

constexpr char kDescription[] =
    "One of the services of a Tandem cluster; tandem(1) starts all of them, and so does the "
    "systemd\n"
    "target of that name.  Logs go to standard error, one line an event.  SIGTERM drains, a "
    "second\n"
    "one ends at once.  Under systemd the service says when it serves, what it is doing, and that\n"
    "it lives (Type=notify, WatchdogSec=).\n"
    ".PP\n"
    "Each option can be given in the file of \\-\\-config, as TOML, without its dashes.\n";
constexpr char kMoreSections[] =
    ".SH EXIT STATUS\n"
    "0 after an orderly end; otherwise the end of the log says why:\n"
    "1, another try may help; 2, flags or the files that they name are wrong; 3, this machine has\n"
    "nothing for the service; 4, the device is not there or cannot be opened; 5, it gives wrong\n"
    "answers; 6, an address cannot be listened on.\n"
    ".SH ENVIRONMENT\n"
    ".TP\n"
    "\\fBTANDEM_LOG\\fR\n"
    "Least level that is logged: debug, info, warning or err.\n";

}  // namespace

void AddServiceFlags(CLI::App& app, const std::string& name) {
  app.name(name);
  AddConfigFlag(app);
  app.set_version_flag("--version", VersionText(name));
  AddManualFlag(app, {.section = 8,
                      .version = Version(),
                      .description = kDescription,
                      .more_sections = kMoreSections});
}

}  // namespace tandem
