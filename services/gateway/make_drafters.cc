#include "services/gateway/make_drafters.h"

#include <memory>
#include <utility>
#include <vector>

#include "services/common/base/status_macros.h"
#include "services/gateway/draft/draft_model.h"
#include "services/gateway/speculation/lookup_drafter.h"

namespace tandem::gateway {

absl::StatusOr<MakeDrafters> DraftersFor(const DrafterSet& drafters, const DraftModelPlace& place,
                                         const ExecutorOptions& model) {
  if (drafters.empty()) return MakeDrafters();
  ExecutorOptions draft;
  if (drafters.draft) {
    TANDEM_ASSIGN_OR_RETURN(draft, DraftExecutorOptions(model, place));
  }
  return [drafters, draft](const Executor& target, const Executor::Progress& progress)
             -> absl::StatusOr<std::vector<std::unique_ptr<Drafter>>> {
    std::vector<std::unique_ptr<Drafter>> made;
    if (drafters.lookup) made.push_back(std::make_unique<LookupDrafter>());
    if (drafters.draft) {
      const auto start = [draft](const Executor::Progress& report) {
        return Executor::Start(draft, report);
      };
      TANDEM_ASSIGN_OR_RETURN(made.emplace_back(),
                              DraftModel::Create({.start = start, .name = draft.model_name},
                                                 target.vocabulary(), progress));
    }
    return made;
  };
}

}  // namespace tandem::gateway
