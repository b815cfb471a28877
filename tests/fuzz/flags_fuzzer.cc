// A file of --config: whatever is in it is taken or refused by a usage error.
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "services/common/base/check.h"
#include "services/common/flags/config_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int fd = ::memfd_create("config", MFD_CLOEXEC);
  TANDEM_CHECK(fd >= 0 && ::write(fd, data, size) == static_cast<ssize_t>(size));
  CLI::App app;
  std::string model;
  std::vector<std::string> workers;
  uint32_t rows = 7;
  double seconds = 1;
  bool metrics = false;
  app.add_option("--model", model)->required();
  app.add_option("--worker", workers);
  app.add_option("--max-rows", rows)->check(CLI::Range(1u, 65535u));
  app.add_option("--seconds", seconds)->check(CLI::Range(0.1, 3600.0));
  app.add_flag("--metrics", metrics);
  tandem::AddConfigFlag(app);
  try {
    app.parse("--config /proc/self/fd/" + std::to_string(fd));
    TANDEM_CHECK(rows >= 1 && rows <= 65535 && seconds >= 0.1 && seconds <= 3600.0);
    TANDEM_CHECK(app.count("--model") > 0);
  } catch (const CLI::ParseError& error) {
    TANDEM_CHECK(error.get_exit_code() != 0);
  }
  ::close(fd);
  return 0;
}
