#ifndef BENCH_MICRO_ARGUMENTS_H_
#define BENCH_MICRO_ARGUMENTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace fineserve::bench {

// One argument of a bench: "--data DIR".
struct Argument {
  std::string name;       // "--data"
  std::string value;      // "DIR"
  std::string otherwise;  // its default
  std::string meaning;
  // True if it takes 0, to leave something out.
  bool or_zero = false;
};

// Text that --help prints about a bench.
struct About {
  std::string name;      // of scripts/bench
  std::string question;  // which it answers, and how; lines of 80 columns
  std::vector<Argument> arguments = {};  // besides --json and --help
};

// The command line of a bench. Immutable.
class Arguments {
 public:
  // Text to print instead of running, and the exit status.
  struct Told {
    int exit_status;
    std::string text;
  };
  static std::variant<Arguments, Told> Parse(
      const std::vector<std::string>& words, const About& about);

  // Reads main's arguments. Exits with 0 after --help, and with 2 and one line
  // on standard error if an argument is wrong.
  static Arguments ReadOrExit(int argc, char** argv, const About& about);

  const std::string& Text(const std::string& name) const {
    return values_.at(name);
  }
  // A positive number, or 0 if the argument takes it: other values were refused
  // when they were read.
  double Number(const std::string& name) const;
  uint64_t Count(const std::string& name) const;
  // Path of the JSON file; empty: none is written.
  const std::string& json_path() const { return values_.at("--json"); }

 private:
  std::map<std::string, std::string> values_;  // by name
};

}  // namespace fineserve::bench

#endif  // BENCH_MICRO_ARGUMENTS_H_
