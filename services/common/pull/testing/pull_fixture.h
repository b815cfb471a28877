// A store and a hub for tests of pulling.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "services/common/pull/part_file.h"
#include "services/common/pull/pull.h"
#include "services/common/pull/testing/fake_hub.h"
#include "services/common/testing/temporary_directory.h"

namespace tandem::pull::testing {

class PullTest : public ::testing::Test {
 protected:
  PullTest() {
    options_.folder = folder_.path();
    options_.hub.endpoint = fake_.hub().url();
    options_.hub.first_backoff = options_.transfer.first_backoff = absl::Milliseconds(1);
    options_.transfer.segment_bytes = 64 << 10;
    options_.hub.http.stall_timeout = absl::Seconds(5);
  }

  absl::StatusOr<PullResult> Pull(const std::string& text = FakeHub::kName) {
    const auto name = ParseModelName(text);
    EXPECT_TRUE(name.ok()) << name.status();
    return pull::Pull(*name, table_, options_, [this](const PullProgress& progress) {
      last_ = progress;
      return stop_at_ == 0 || progress.done_bytes < stop_at_;
    });
  }
  void ExpectWhole(const absl::StatusOr<PullResult>& result) {
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(Read(result->model.path), fake_.content());
    EXPECT_EQ(result->model.sha256, FakeHub::Sha256(fake_.content()));
    EXPECT_EQ(Files(), (std::vector<std::string>{".model-Q4_0.gguf.json", "model-Q4_0.gguf"}));
  }
  // What lies in the repository's folder.
  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    std::error_code error;
    for (std::filesystem::directory_iterator it(folder_.path() + "/owner/repo", error), end;
         it != end; ++it) {
      names.push_back(it->path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }
  static std::string Read(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }

  static constexpr size_t kBytes = (1 << 20) + 17;
  FakeHub fake_{kBytes};
  TemporaryDirectory folder_;
  ModelTable table_ = ModelTable::BuiltIn();
  PullOptions options_;
  PullProgress last_;
  uint64_t stop_at_ = 0;  // progress of so many bytes stops the pull
};

}  // namespace tandem::pull::testing
