#include "services/loader/service/loader_pulse.h"

#include <utility>

#include "absl/strings/str_format.h"
#include "services/common/base/status_macros.h"

namespace tandem::loader {

absl::StatusOr<LoaderPulse> LoaderPulse::Create(const std::string& target) {
  TANDEM_ASSIGN_OR_RETURN(std::unique_ptr<LoaderClient> client, LoaderClient::Create(target));
  return LoaderPulse(std::move(client));
}

Pulse LoaderPulse::Take() {
  const auto status = client_->GetStatus();
  if (!status.ok()) {
    return {.alive = false,
            .status = absl::StrFormat("does not answer: %s", status.status().ToString())};
  }
  return {.serving = true,
          .status = absl::StrFormat("%d models resident, %d MiB, %d leases", status->models_size(),
                                    status->weight_bytes() >> 20, status->leases_size())};
}

}  // namespace tandem::loader
