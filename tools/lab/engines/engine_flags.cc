#include "tools/lab/engines/engine_flags.h"

#include <getopt.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace stock_engine {
namespace {

bool ReadBytes(const std::string& text, size_t* bytes) {
  const size_t digits =
      std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string unit = text.substr(digits);
  int shift = 0;
  if (!unit.empty()) {
    const char* found = strchr("KMG", unit[0]);
    if (found == nullptr || (unit.size() > 1 && unit.substr(1) != "iB")) {
      return false;
    }
    shift = 10 * static_cast<int>(found - "KMG" + 1);
  }
  uint64_t number;
  if (!EngineFlags::ReadNumber(text.substr(0, digits), 1, SIZE_MAX >> shift,
                               &number)) {
    return false;
  }
  *bytes = number << shift;
  return true;
}

}  // namespace

bool EngineFlags::ReadNumber(const std::string& text, uint64_t least,
                             uint64_t most, uint64_t* number) {
  char* end;
  errno = 0;
  *number = strtoull(text.c_str(), &end, 10);
  return errno == 0 && !text.empty() && *end == '\0' && text[0] != '-' &&
         *number >= least && *number <= most;
}

void EngineFlags::Flag(const char* name, const char* meaning, bool* to) {
  Add(name, "", meaning, [to](const std::string&) { return *to = true; });
}

void EngineFlags::Text(const char* name, const char* meaning, std::string* to) {
  Add(name, "NAME", meaning, [to](const std::string& value) {
    *to = value;
    return true;
  });
}

void EngineFlags::Bytes(const char* name, const char* meaning, size_t* to) {
  Add(name, "SIZE", meaning,
      [to](const std::string& value) { return ReadBytes(value, to); });
}

void EngineFlags::Real(const char* name, const char* meaning, double* to) {
  Add(name, "X", meaning, [to](const std::string& value) {
    char* end;
    *to = strtod(value.c_str(), &end);
    return !value.empty() && *end == '\0' && std::isfinite(*to) && *to >= 0;
  });
}

void EngineFlags::Add(const char* name, const char* kind, const char* meaning,
                      std::function<bool(const std::string& value)> read) {
  options_.push_back({name, kind, meaning, std::move(read)});
}

void EngineFlags::Refuse(const std::string& why) const {
  fprintf(stderr, "%s: %s (see --help)\n", program_.c_str(), why.c_str());
  exit(2);
}

void EngineFlags::PrintHelp() const {
  printf("%s: %s\n", program_.c_str(), about_.c_str());
  for (const Option& o : options_) {
    std::string meaning = o.meaning;
    for (size_t at = 0; (at = meaning.find('\n', at)) != std::string::npos;) {
      meaning.replace(at, 1, "\n" + std::string(30, ' '));
      at += 30;
    }
    printf("  --%-26s%s\n", (o.name + " " + o.kind).c_str(), meaning.c_str());
  }
  printf("\n%s", more_.c_str());
  exit(0);
}

void EngineFlags::Parse(int argc, char** argv) const {
  std::vector<option> known;
  for (const Option& o : options_) {
    const int argument = o.kind.empty() ? no_argument : required_argument;
    known.push_back({o.name.c_str(), argument, nullptr, 0});
  }
  known.push_back({"help", no_argument, nullptr, 'h'});
  known.push_back({});
  int index = 0;
  for (int c; (c = getopt_long(argc, argv, "", known.data(), &index)) != -1;) {
    if (c == '?') exit(2);  // getopt_long has named the option
    if (c == 'h') PrintHelp();
    const Option& found = options_[static_cast<size_t>(index)];
    const std::string value = optarg == nullptr ? "" : optarg;
    if (!found.read(value)) {
      Refuse("bad value for --" + found.name + ": '" + value + "'");
    }
  }
  if (optind < argc) Refuse(std::string("unexpected '") + argv[optind] + "'");
}

}  // namespace stock_engine
