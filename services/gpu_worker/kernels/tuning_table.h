// Tables of measured tuning, kept on disk: one file for a device, its driver, the kernels and the
// shapes of a model's matrices.
//
//   { "format": 2, "device": ..., "driver": ..., "kernels": ..., "shapes": ..., "made_by": ...,
//     "settings": {"matmul_columns": 4, ...},
//     "trials": [{"setting": ..., "cases": ["r1", ...], "chosen": 4, "time": {"2": 1.21,
//     "4": 1.0}}] }
//
// docs/tuning.md explains them.  A table that is read is checked: files of other machines, damaged
// files and values that no kernel accepts are refused.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/common/weights/packed_tensor.h"
#include "services/gpu_worker/kernels/tuning_settings.h"

namespace tandem::gpu {

// The scope of a table.
struct TuningKey {
  std::string device;
  std::string driver;   // with its version
  std::string kernels;  // a hash of every shader
  std::string shapes;   // "qkv q4_0 8192x5376, ..."
  friend bool operator==(const TuningKey&, const TuningKey&) = default;

  std::string FileName() const;  // without a folder
};
TuningKey MakeTuningKey(const vulkan::DeviceInfo& info, std::string shapes);
// Each shape of the matrices once, in their order.
std::string ShapesOf(const std::vector<const PackedTensor*>& tensors);

// One setting's measurement: times by value, relative to the previous value's.
struct TuningTrial {
  std::string setting;
  std::vector<std::string> cases;  // TuningCase::Name
  uint32_t chosen = 0;
  std::map<uint32_t, double> time;
};

struct TuningTable {
  TuningKey key;
  std::string made_by;  // "tandem tune", "first start"
  std::map<std::string, uint32_t> settings;
  std::vector<TuningTrial> trials;
};

std::string ToJson(const TuningTable& table);
// INVALID_ARGUMENT names the file and the fault.
absl::StatusOr<TuningTable> ParseTuningTable(const std::string& text, const std::string& name);

// Applies a table.  FAILED_PRECONDITION: it is for another device, driver, kernels or model;
// INVALID_ARGUMENT: an unknown setting, or a value that no kernel accepts.  After an error `tuning`
// is unchanged.
absl::Status ApplyTuningTable(const TuningTable& table, const TuningKey& key,
                              const vulkan::DeviceInfo& info, Tuning& tuning);

// NOT_FOUND: the folder has no file for this key; otherwise as ParseTuningTable.
absl::StatusOr<TuningTable> ReadTuningTable(const std::string& folder, const TuningKey& key);
// Writes through a rename, so that a reader sees the whole new file or the old one.
absl::Status WriteTuningTable(const std::string& folder, const TuningTable& table);

}  // namespace tandem::gpu
