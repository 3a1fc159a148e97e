#include "daemon/scheduling/global/testdata/apex_profiles.h"

#include <stdio.h>
#include <stdlib.h>

#include <fstream>
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace fineserve::plan {
namespace {

constexpr double kActivationTokens = 2048;
constexpr double kActivationBytes = 8.5 * 2;  // per token and hidden unit

using Row = std::map<std::string, std::string>;  // by column

absl::StatusOr<std::vector<Row>> ReadRows(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat(path, ": cannot be read"));
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> columns = absl::StrSplit(line, ',');
  std::vector<Row> rows;
  while (std::getline(file, line)) {
    const std::vector<std::string> cells = absl::StrSplit(line, ',');
    // The last column may be quoted text with commas; it is ignored.
    if (cells.size() < columns.size()) {
      return absl::DataLossError(absl::StrCat(path, ": too short: ", line));
    }
    Row row;
    for (size_t i = 0; i < columns.size(); ++i) row[columns[i]] = cells[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

double Number(const Row& row, const std::string& column) {
  double value = 0;
  // A missing value becomes 0, which CheckProfile refuses.
  if (!absl::SimpleAtod(row.at(column), &value)) return 0;
  return value;
}

// The columns of models.csv for a quantisation, which is given by its name in
// the profile.
struct SizeColumns {
  const char* weights;
  const char* kv_token;
};
const std::map<std::string, SizeColumns>& Columns() {
  static const auto* columns = new std::map<std::string, SizeColumns>{
      {"org", {"weight_bytes_fp16", "kv_bytes_per_token_fp16"}},
      {"fp8_kv8", {"weight_bytes_fp8_computed", "kv_bytes_per_token_fp8"}},
      {"awq",
       {"weight_bytes_awq_int4_g128_computed", "kv_bytes_per_token_fp16"}},
      {"qoq",
       {"weight_bytes_awq_int4_g128_computed",
        "kv_bytes_per_token_int4_with_fp16_scale_zero_per_head"}}};
  return *columns;
}

std::string ModelsName(const std::string& architecture) {
  static const auto* names =
      new std::map<std::string, std::string>{{"llama-3-8b", "Llama-3-8B (QoQ)"},
                                             {"llama-3.1-8b", "Llama-3.1-8B"},
                                             {"llama-3.1-70b", "Llama-3.1-70B"},
                                             {"qwen-3-32b", "Qwen3-32B"}};
  const auto found = names->find(architecture);
  return found == names->end() ? architecture : found->second;
}

}  // namespace

absl::StatusOr<std::vector<Profile>> ReadApexProfiles(
    const std::string& times_path, const std::string& sizes_path) {
  const auto times = ReadRows(times_path);
  if (!times.ok()) return times.status();
  const auto sizes = ReadRows(sizes_path);
  if (!sizes.ok()) return sizes.status();
  std::map<std::string, Row> size_of;
  for (const Row& row : *sizes) size_of[row.at("model")] = row;
  std::map<std::string, Profile> profiles;
  for (const Row& row : *times) {
    if (row.at("mps_percentage") != "100") continue;
    Profile p;
    p.architecture = row.at("model");
    p.quantisation = row.at("qformat");
    p.tp = static_cast<uint32_t>(Number(row, "tp"));
    const auto size = size_of.find(ModelsName(p.architecture));
    const auto columns = Columns().find(p.quantisation);
    if (size == size_of.end() || columns == Columns().end()) {
      return absl::DataLossError(absl::StrCat("no sizes of ", p.Title()));
    }
    p.weight_bytes = Number(size->second, columns->second.weights);
    p.kv_token_bytes = Number(size->second, columns->second.kv_token);
    p.activation_bytes =
        kActivationTokens * kActivationBytes * Number(size->second, "hidden");
    Profile& known = profiles.emplace(p.Title(), p).first->second;
    known.points.push_back({static_cast<uint32_t>(Number(row, "batch_size")),
                            static_cast<uint32_t>(Number(row, "input_len")),
                            Number(row, "ttft"), Number(row, "tpot")});
  }
  std::vector<Profile> all;
  for (auto& [title, profile] : profiles) all.push_back(std::move(profile));
  return all;
}

std::vector<Profile> Tp1Profiles() {
  const std::string folder = FINESERVE_PLAN_TESTDATA;
  auto profiles = ReadApexProfiles(folder + "/apex_tp1_excerpt.csv",
                                   folder + "/models.csv");
  if (!profiles.ok()) {
    fprintf(stderr, "%s\n", std::string(profiles.status().message()).c_str());
    abort();
  }
  return *std::move(profiles);
}

Snapshot SmallModels(const std::vector<double>& rates,
                     const std::vector<double>& gpus) {
  Snapshot s;
  s.profiles = Tp1Profiles();
  for (size_t i = 0; i < rates.size(); ++i) {
    s.models.push_back({std::string(1, static_cast<char>('a' + i)),
                        "llama-3.1-8b", "org", 1, rates[i], 200, 300, 1.0});
  }
  for (size_t g = 0; g < gpus.size(); ++g) {
    s.gpus.push_back({"gpu-" + std::to_string(g), "node", gpus[g]});
  }
  return s;
}

double ReleasedSlo(const Profile& profile, double scale) {
  constexpr double kPrompt = 903, kBuffer_s = 0.004;
  double per_token = 0, rows = 0;
  for (const OperatingPoint& p : profile.points) {
    if (p.batch != 1) continue;
    per_token += p.ttft_s / p.prompt_tokens;
    ++rows;
  }
  return per_token / rows * kPrompt * scale - kBuffer_s;
}

}  // namespace fineserve::plan
