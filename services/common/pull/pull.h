// Brings a model from the hub into a store, with its vision encoder: the one way in, for the command
// line and for the gateway.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "services/common/pull/hub.h"
#include "services/common/pull/model_name.h"
#include "services/common/pull/model_store.h"
#include "services/common/pull/model_table.h"
#include "services/common/pull/transfer.h"

namespace tandem::pull {

// No file has this name.
inline constexpr char kNoEncoder[] = "none";

struct PullOptions {
  std::string folder;  // of the store
  HubOptions hub;      // with the token
  TransferOptions transfer;
  // The mmproj file of the repository to bring with the model, as List names it.  Empty: the one
  // that belongs to it; kNoEncoder: none.
  std::string mmproj;
  int max_changes = 2;   // how often the file may change on the host meanwhile
  int max_refusals = 3;  // how often in a row an address may end to hold with no byte in between
};

enum class PullPhase { kResolving, kDownloading, kVerifying };

struct PullProgress {
  PullPhase phase = PullPhase::kResolving;
  std::string file;    // "OWNER/REPO/FILE"; the model's first, then its encoder's
  std::string sha256;  // empty: the host gives none
  uint64_t total_bytes = 0;
  uint64_t done_bytes = 0;     // of the phase
  uint64_t resumed_bytes = 0;  // that were there before
};

struct PullResult {
  PulledModel model;
  bool was_there = false;  // both files, and nothing was brought
  uint64_t received_bytes = 0;
  std::string no_encoder_reason;  // why it has no encoder though one was looked for
};

// Options as the environment has them: HF_ENDPOINT, the token, certificates (SSL_CERT_FILE,
// CURL_CA_BUNDLE).  `token_file`: empty, or the file to take the token from.  Errors as for
// FindToken.
absl::StatusOr<PullOptions> PullOptionsFromEnvironment(const std::string& folder,
                                                       const std::string& token_file);

// Returns when the model and its encoder are under their names in the store, checked; what cannot be
// finished stays beside them under another name, and the next pull goes on there.  A repository
// without an encoder for the model is no error.  `progress` is called on this thread, several times
// a second while bytes come; false stops: CANCELLED.
// INVALID_ARGUMENT: the name; NOT_FOUND: no such name, repository or file; UNAUTHENTICATED and
// PERMISSION_DENIED: a token or a licence is wanted, or a redirect leads where none may;
// ALREADY_EXISTS: another pull of the file is under way; RESOURCE_EXHAUSTED: the disk; DATA_LOSS:
// the checksum is wrong; ABORTED: the file keeps changing; UNAVAILABLE: the network, too often.
absl::StatusOr<PullResult> Pull(const ModelName& name, const ModelTable& table,
                                const PullOptions& options,
                                const std::function<bool(const PullProgress&)>& progress);

}  // namespace tandem::pull
