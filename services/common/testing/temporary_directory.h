// A directory for a test's files and sockets, gone with this.  Short: a socket's path has at most
// 107 characters.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "services/common/base/check.h"

namespace tandem {

class TemporaryDirectory {
 public:
  TemporaryDirectory() { TANDEM_CHECK(::mkdtemp(path_.data()) != nullptr); }
  ~TemporaryDirectory() {
    std::error_code ignored;  // a destructor must not throw, whatever still happens in there
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/tandem-XXXXXX";
};

}  // namespace tandem
