#include "tools/tandem/commands/status_watch.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tools/tandem/api_client.h"
#include "tools/tandem/commands/style.h"

namespace tandem {
namespace {

std::string TimeOfDay(absl::Time time) {
  return absl::FormatTime("%H:%M:%S", time, absl::LocalTimeZone());
}

}  // namespace

std::string StatusWatch::Rates(const v1::GetStatusResponse& status, absl::Time now) {
  const uint64_t prompts = status.scheduler().prompt_tokens();
  const uint64_t answers = status.scheduler().completion_tokens();
  std::string text;
  // The counts begin again with another gateway.
  if (last_ != absl::InfinitePast() && prompts >= last_prompt_tokens_ &&
      answers >= last_completion_tokens_) {
    const double seconds = absl::ToDoubleSeconds(now - last_);
    text = absl::StrFormat("%.1f tokens/s answered, %.1f of prompts",
                           static_cast<double>(answers - last_completion_tokens_) / seconds,
                           static_cast<double>(prompts - last_prompt_tokens_) / seconds);
  }
  last_ = now;
  last_prompt_tokens_ = prompts;
  last_completion_tokens_ = answers;
  return text;
}

void StatusWatch::Show(const v1::GetStatusResponse& status) {
  const absl::Time now = absl::Now();
  if (form_ == Form::kJson) {
    std::printf("%s\n", nlohmann::ordered_json::parse(MessageAsJson(status)).dump().c_str());
    return;
  }
  const std::string rates = Rates(status, now);
  if (form_ == Form::kScreen) {
    return Redraw(absl::StrFormat("%s  %s\n\n%s", TimeOfDay(now), rates, tables_(status)));
  }
  std::printf("%s %s, %d running, %d waiting%s%s\n", TimeOfDay(now).c_str(), status.state().c_str(),
              static_cast<int>(status.scheduler().running()),
              static_cast<int>(status.scheduler().waiting()), rates.empty() ? "" : ", ",
              rates.c_str());
}

void StatusWatch::ShowError(const absl::Status& error) {
  const absl::Time now = absl::Now();
  const std::string message(error.message());
  last_ = absl::InfinitePast();
  if (form_ == Form::kJson) {
    std::printf("%s\n", nlohmann::json({{"error", message}}).dump().c_str());
  } else if (form_ == Form::kScreen) {
    Redraw(absl::StrFormat("%s\n\n%s\n", TimeOfDay(now), Styled(stdout, Style::kBad, message)));
  } else {
    std::printf("%s %s\n", TimeOfDay(now).c_str(), message.c_str());
  }
}

// Over what was drawn before: no flicker, and nothing left of longer lines.
void StatusWatch::Redraw(const std::string& text) {
  winsize size{};
  const int rows =
      ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1 ? size.ws_row : 24;
  constexpr char kCutLongLines[] = "\033[?7l", kWrapThemAgain[] = "\033[?7h";
  std::string screen = std::string(drawn_ ? "\033[H" : "\033[2J\033[H") + kCutLongLines;
  std::istringstream lines(text);
  int row = 1;
  for (std::string line; row < rows && std::getline(lines, line); ++row) {
    screen += line + "\033[K\n";
  }
  std::fputs((screen + "\033[J" + kWrapThemAgain).c_str(), stdout);
  drawn_ = true;
}

}  // namespace tandem
