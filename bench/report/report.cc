#include "bench/report/report.h"

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

using Answer = Arguments::Answer;

std::vector<Argument> All(const About& about) {
  std::vector<Argument> all = about.arguments;
  all.push_back({"--json", "FILE", "",
                 "write the figures, and whether each claim holds, as one "
                 "object"});
  return all;
}

std::string Help(const About& about) {
  std::string text = "usage: scripts/bench " + about.name;
  size_t width = 0;
  for (const Argument& a : All(about)) {
    text += " [" + a.name + " " + a.value + "]";
    width = std::max(width, a.name.size() + 1 + a.value.size());
  }
  text += "\n\n" + about.question + "\n\n";
  for (const Argument& a : All(about)) {
    std::string named = a.name + " " + a.value;
    named.resize(width, ' ');
    text += "  " + named + "  " + a.meaning;
    if (!a.otherwise.empty()) text += " (" + a.otherwise + ")";
    text += "\n";
  }
  return text + "\nIt prints a table. Example:\n\n  scripts/bench " +
         about.name + " --json " + about.name + ".json\n";
}

Answer Refuse(const About& about, const std::string& what) {
  return {2, about.name + ": " + what + "; see scripts/bench " + about.name +
                 " --help\n"};
}

// An argument with a numeric default takes only positive numbers, unless it
// also takes 0.
bool IsNumber(const std::string& text, bool or_zero = false) {
  char* end;
  const double number = strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' &&
         (number > 0 || (or_zero && number == 0));
}

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

std::variant<Arguments, Answer> Arguments::Parse(
    const std::vector<std::string>& words, const About& about) {
  Arguments arguments;
  std::map<std::string, Argument> known;
  for (const Argument& a : All(about)) {
    known[a.name] = a;
    arguments.values_[a.name] = a.otherwise;
  }
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--help" || words[i] == "-h") return Answer{0, Help(about)};
    const size_t equals = words[i].find('=');
    const std::string name = words[i].substr(0, equals);
    const auto found = known.find(name);
    if (found == known.end()) {
      return Refuse(about, "unknown argument \"" + words[i] + "\"");
    }
    if (equals == std::string::npos && i + 1 == words.size()) {
      return Refuse(about, name + " needs " + found->second.value);
    }
    const std::string value =
        equals == std::string::npos ? words[++i] : words[i].substr(equals + 1);
    const Argument& argument = found->second;
    if (IsNumber(argument.otherwise) && !IsNumber(value, argument.or_zero)) {
      return Refuse(about, name + " \"" + value +
                               "\" is not a positive number" +
                               (argument.or_zero ? " or 0" : ""));
    }
    arguments.values_[name] = value;
  }
  return arguments;
}

Arguments Arguments::ReadOrExit(int argc, char** argv, const About& about) {
  const auto parsed = Parse({argv + 1, argv + argc}, about);
  if (const auto* arguments = std::get_if<Arguments>(&parsed)) {
    return *arguments;
  }
  const Answer& answer = std::get<Answer>(parsed);
  fputs(answer.text.c_str(), answer.exit_status == 0 ? stdout : stderr);
  exit(answer.exit_status);
}

double Arguments::Number(const std::string& name) const {
  return strtod(Text(name).c_str(), nullptr);
}

uint64_t Arguments::Count(const std::string& name) const {
  return static_cast<uint64_t>(Number(name));
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double Percentile(std::vector<double> values, double percent) {
  const auto nth = values.begin() +
                   static_cast<std::ptrdiff_t>(
                       percent / 100 * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), nth, values.end());
  return *nth;
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
