#ifndef DAEMON_SCHEDULING_GLOBAL_TESTDATA_APEX_PROFILES_H_
#define DAEMON_SCHEDULING_GLOBAL_TESTDATA_APEX_PROFILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/scheduling/global/model/snapshot.h"

namespace fineserve::plan {

// Returns profiles of the FineServe authors' models: times as they measured
// them (apex-cost.csv, rows without an MPS limit), sizes computed from the
// models' shapes (models.csv). Activations, which neither file has, are those
// of 2,048 tokens by the released code's 8.5 · hidden size · 2 bytes a token.
// NotFound if a file cannot be read, DataLoss for a bad row.
absl::StatusOr<std::vector<Profile>> ReadApexProfiles(
    const std::string& times_path, const std::string& sizes_path);

// Returns the same from the excerpt beside this file: TP 1.
std::vector<Profile> Tp1Profiles();

// Returns a snapshot of one 8B FP16 model for each rate, and GPUs of these
// sizes, with Tp1Profiles.
Snapshot SmallModels(const std::vector<double>& rates,
                     const std::vector<double>& gpus);

// Returns the SLO of the released code: its TTFT for 903 tokens at batch 1 (903
// times the mean seconds per token), times `scale`, less 4 ms.
double ReleasedSlo(const Profile& profile, double scale);

}  // namespace fineserve::plan

#endif  // DAEMON_SCHEDULING_GLOBAL_TESTDATA_APEX_PROFILES_H_
