#ifndef BENCH_REPORT_REPORT_H_
#define BENCH_REPORT_REPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"

namespace fineserve::bench {

// One argument of a bench: "--data DIR".
struct Argument {
  std::string name;       // "--data"
  std::string value;      // "DIR"
  std::string otherwise;  // its default
  std::string meaning;
  // True if it accepts 0, which leaves something out.
  bool or_zero = false;
};

// The text that --help prints about a bench.
struct About {
  std::string name;      // of scripts/bench
  std::string question;  // which it answers, and how; lines of 80 columns
  std::vector<Argument> arguments = {};  // besides --json and --help
};

// The command line of a bench. Immutable.
class Arguments {
 public:
  // Text to print instead of running, and the exit status.
  struct Answer {
    int exit_status;
    std::string text;
  };
  static std::variant<Arguments, Answer> Parse(
      const std::vector<std::string>& words, const About& about);

  // Reads main's arguments. Exits with 0 after --help, and with 2 and one line
  // on standard error if an argument is wrong.
  static Arguments ReadOrExit(int argc, char** argv, const About& about);

  const std::string& Text(const std::string& name) const {
    return values_.at(name);
  }
  // Returns a positive number, or 0 if the argument accepts it; other values
  // were rejected when they were read.
  double Number(const std::string& name) const;
  uint64_t Count(const std::string& name) const;
  // Path of the JSON file; if it is empty, no file is written.
  const std::string& json_path() const { return values_.at("--json"); }

 private:
  std::map<std::string, std::string> values_;  // by name
};

// Ends the bench with a message on standard error.
[[noreturn]] void Die(const std::string& what);

// Returns the middle value, the larger one if there are two; there must be at
// least one value.
double Median(std::vector<double> values);
// Returns the value below which `percent` of the others are; there must be at
// least one value.
double Percentile(std::vector<double> values, double percent);

enum class Compare { kAtMost, kAtLeast };

// The result of a bench: figures, and claims that they support or refute.
// Prints a table for people and writes one JSON object for machines:
//
//   {"bench", "commit", "machine": {"cpu", "cores", "kernel"},
//    "figures": {"name with unit": number, ...},
//    "claims": [{"claim", "value", "target", "holds"}, ...]}
//
// Figures keep their order. Not thread-safe.
class Report {
 public:
  explicit Report(std::string bench) : bench_(std::move(bench)) {}

  // Adds a figure. `name` ends with its unit: "hooked cuMemAlloc, 1 thread
  // (ns/call)".
  void Figure(std::string name, double value);

  // Records whether `value` compares to `target` as claimed.
  void Claim(std::string claim, double value, double target, Compare compare);

  bool AllClaimsHold() const;

  // Prints the table on standard output.
  void Print() const;

  // Returns false, after a message on standard error, if the file cannot be
  // written.
  bool WriteJson(const std::string& path) const;

 private:
  struct NamedValue {
    std::string name;
    double value;
  };
  struct Tested {
    std::string claim;
    double value;
    double target;
    Compare compare;
    bool holds;
  };

  std::string bench_;
  std::vector<NamedValue> figures_;
  std::vector<Tested> claims_;
};

// Prints the table and writes the JSON to the file of --json. Returns main's
// exit status: a claim that does not hold is a result, not an error.
int Finish(const Report& report, const Arguments& arguments);

// Returns the value; an error ends the bench with its message.
template <typename T>
T OrDie(absl::StatusOr<T> result) {
  if (!result.ok()) Die(std::string(result.status().message()));
  return *std::move(result);
}

inline void OkOrDie(const absl::Status& s) {
  if (!s.ok()) Die(std::string(s.message()));
}

}  // namespace fineserve::bench

#endif  // BENCH_REPORT_REPORT_H_
