#include "bench/paper/compared_systems/scene.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "bench/report/report.h"
#include "daemon/scheduling/global/testdata/apex_profiles.h"
#include "tools/lab/workload/arrivals.h"

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

const std::vector<SlowdownSource>& Slowdowns() {
  // Means of the authors' profile with fewer SMs (MPS 50, 40 and 20 %) over the
  // same with all SMs, TP 1, 48 points each; a third and a quarter of the SMs
  // are interpolated between 40 and 20 %. Assumes that co-tenants leave half of
  // the SMs, a third, a quarter. A request is its prefill and 327 steps.
  static const auto* all = new std::vector<SlowdownSource>{
      {"MPS, requests",
       "the authors' profile: whole requests with 1/2, 1/3, 1/4 of the SMs "
       "(MPS) over all of them",
       {{1, 1.13, 1.40, 1.62}}},
      {"MPS, prefill",
       "the authors' profile: prefill alone with 1/2, 1/3, 1/4 of the SMs",
       {{1, 1.60, 2.54, 3.24}}},
      {"Fig. 6",
       "FineServe section 3.3: FP8 with FP8 has 1.95 times the throughput of "
       "one; each more is taken for as much",
       {{1, 1.026, 1.051}}},
      {"time slices", "n engines take n times as long each", {}},
  };
  return *all;
}

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
  data.arxiv = Must(workload::ReadLengths(
      folder + "/lengths_arxiv_summarization_llama2tok_even.csv.gz"));
  data.azure_code =
      Must(workload::ReadTrace(folder + "/azure2023_code_first30min.csv.gz"));
  data.azure = workload::Beside(
      Must(workload::ReadTrace(folder + "/azure2023_conv_first30min.csv.gz")),
      data.azure_code);
  data.servegen = Must(
      workload::ReadTrace(folder + "/servegen_day2_0900_60min_10rps.csv.gz"));
  data.servegen_bursts = Must(
      workload::ReadTrace(folder + "/servegen_day1_1400_30min_20rps.csv.gz"));
  return data;
}

}  // namespace fineserve::bench
