#include "bench/micro/arguments.h"

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>

namespace fineserve::bench {
namespace {

using Told = Arguments::Told;

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

Told Refuse(const About& about, const std::string& what) {
  return {2, about.name + ": " + what + "; see scripts/bench " + about.name +
                 " --help\n"};
}

// An argument whose default is a number takes positive numbers only, unless it
// takes 0 too.
bool IsNumber(const std::string& text, bool or_zero = false) {
  char* end;
  const double number = strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' &&
         (number > 0 || (or_zero && number == 0));
}

}  // namespace

std::variant<Arguments, Told> Arguments::Parse(
    const std::vector<std::string>& words, const About& about) {
  Arguments arguments;
  std::map<std::string, Argument> known;
  for (const Argument& a : All(about)) {
    known[a.name] = a;
    arguments.values_[a.name] = a.otherwise;
  }
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--help" || words[i] == "-h") return Told{0, Help(about)};
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
  const Told& told = std::get<Told>(parsed);
  fputs(told.text.c_str(), told.exit_status == 0 ? stdout : stderr);
  exit(told.exit_status);
}

double Arguments::Number(const std::string& name) const {
  return strtod(Text(name).c_str(), nullptr);
}

uint64_t Arguments::Count(const std::string& name) const {
  return static_cast<uint64_t>(Number(name));
}

}  // namespace fineserve::bench
