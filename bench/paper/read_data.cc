#include "bench/paper/read_data.h"

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "bench/micro/report.h"
#include "bench/workload/trace.h"
#include "daemon/plan/testdata/apex_profiles.h"

namespace fineserve::bench {
namespace {

// Drops the requests that the FineServe authors' workload maker drops.
std::vector<workload::Lengths> AsReleased(
    const std::vector<workload::Lengths>& all) {
  std::vector<workload::Lengths> kept;
  for (const workload::Lengths& l : all) {
    if (l.input < 4 || l.output < 4) continue;
    if (l.input > 2048 || l.input + l.output > 4096) continue;
    kept.push_back(l);
  }
  return kept;
}

template <typename T>
T Must(absl::StatusOr<T> read) {
  if (!read.ok()) {
    Die(absl::StrCat(std::string(read.status().message()),
                     "; set the folder with --data"));
  }
  return *std::move(read);
}

}  // namespace

Data ReadData(const std::string& folder) {
  Data data;
  data.profiles = Must(
      plan::ReadApexProfiles(folder + "/calibration_fineserve_apex_profile.csv",
                             folder + "/calibration_models.csv"));
  data.sharegpt = AsReleased(Must(workload::ReadLengths(
      folder + "/lengths_sharegpt_firstturn_llama2tok_even.csv.gz")));
  data.multi_turn = Must(workload::ReadLengths(
      folder + "/lengths_sharegpt_8k_accumulated_llama2tok_even.csv.gz"));
  data.arena =
      Must(workload::ReadTrace(folder + "/arena27_prism_vtc_600s.csv.gz"));
  return data;
}

}  // namespace fineserve::bench
