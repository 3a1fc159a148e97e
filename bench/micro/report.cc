#include "bench/micro/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

namespace fineserve::bench {
namespace {

using Json = nlohmann::ordered_json;

std::string CpuModel() {
  std::ifstream in("/proc/cpuinfo");
  std::string line;
  while (std::getline(in, line)) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) {
      return line.substr(colon + 2);
    }
  }
  return "unknown";
}

Json Machine() {
  utsname system = {};
  uname(&system);
  return {{"cpu", CpuModel()},
          {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
          {"kernel", system.release}};
}

std::string Commit() {
  if (const char* given = getenv("FINESERVE_COMMIT")) return given;
  std::string commit;
  FILE* git = popen("git rev-parse HEAD 2>/dev/null", "r");
  if (git == nullptr) return "unknown";
  char line[64];
  if (fgets(line, sizeof(line), git) != nullptr) {
    commit.assign(line, strcspn(line, "\n"));
  }
  return pclose(git) == 0 && !commit.empty() ? commit : "unknown";
}

}  // namespace

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Report::Figure(std::string name, double value) {
  figures_.push_back({std::move(name), value});
}

void Report::Claim(std::string claim, double value, double target,
                   Compare compare) {
  const bool holds =
      compare == Compare::kAtMost ? value <= target : value >= target;
  claims_.push_back({std::move(claim), value, target, compare, holds});
}

bool Report::AllClaimsHold() const {
  return std::all_of(claims_.begin(), claims_.end(),
                     [](const Tested& c) { return c.holds; });
}

void Report::Print() const {
  size_t width = 0;
  for (const NamedValue& f : figures_) width = std::max(width, f.name.size());
  for (const Tested& c : claims_) width = std::max(width, c.claim.size());
  const int columns = static_cast<int>(width);
  printf("%s\n", bench_.c_str());
  for (const NamedValue& f : figures_) {
    printf("  %-*s %12.3f\n", columns, f.name.c_str(), f.value);
  }
  for (const Tested& c : claims_) {
    printf("  %-*s %12.3f  %s %g  %s\n", columns, c.claim.c_str(), c.value,
           c.compare == Compare::kAtMost ? "<=" : ">=", c.target,
           c.holds ? "holds" : "DOES NOT HOLD");
  }
}

bool Report::WriteJson(const std::string& path) const {
  Json json = {{"bench", bench_}, {"commit", Commit()}, {"machine", Machine()}};
  json["figures"] = Json::object();
  for (const NamedValue& f : figures_) json["figures"][f.name] = f.value;
  json["claims"] = Json::array();
  for (const Tested& c : claims_) {
    json["claims"].push_back({{"claim", c.claim},
                              {"value", c.value},
                              {"target", c.target},
                              {"holds", c.holds}});
  }
  std::ofstream out(path);
  out << json.dump(2) << '\n';
  out.flush();
  if (!out) fprintf(stderr, "cannot write %s\n", path.c_str());
  return out.good();
}

int Finish(const Report& report, const Arguments& arguments) {
  report.Print();
  const std::string& path = arguments.json_path();
  return path.empty() || report.WriteJson(path) ? 0 : 1;
}

void Die(const std::string& what) {
  fprintf(stderr, "bench: %s\n", what.c_str());
  exit(1);
}

}  // namespace fineserve::bench
