#include "tests/evaluation/evaluation_fixture.h"

#include <cctype>
#include <cstdio>
#include <map>

#include "services/common/base/check.h"

namespace tandem::evaluation {
namespace {

template <typename T>
const T& OpenOnce(const std::string& path, absl::StatusOr<T> (*open)(const std::string&)) {
  static std::map<std::string, T> opened;
  const auto it = opened.find(path);
  if (it != opened.end()) return it->second;
  absl::StatusOr<T> value = open(path);
  if (!value.ok()) std::fprintf(stderr, "%s\n", value.status().ToString().c_str());
  TANDEM_CHECK(value.ok());
  return opened.emplace(path, *std::move(value)).first->second;
}

}  // namespace

const testing::Checkpoint& OpenCheckpoint(const std::string& path) {
  return OpenOnce(path, testing::LoadCheckpoint);
}

const testing::ReferenceOutputs& OpenReferenceOutputs(const std::string& folder) {
  return OpenOnce(folder, testing::LoadReferenceOutputs);
}

void EvaluationTest::Place(const std::string& placement, const std::string& checkpoint_path,
                           const testing::RunLimits& limits) {
  const auto made = MakePlacement(placement);
  if (absl::IsNotFound(made.status())) {
    GTEST_SKIP() << "NO DEVICE for " << placement << ": " << made.status();
  }
  ASSERT_OK(made);
  ASSERT_OK_AND_ASSIGN(runner_,
                       testing::PlanRunner::CreatePlanned(OpenCheckpoint(checkpoint_path).weights,
                                                          made->workers, made->policy, limits));
}

std::string TestName(const std::string& text) {
  std::string name;
  for (const char c : text) {
    if (std::isalnum(static_cast<unsigned char>(c))) name.push_back(c);
  }
  return name;
}

}  // namespace tandem::evaluation
