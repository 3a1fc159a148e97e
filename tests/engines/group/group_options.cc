#include "tests/engines/group/group_options.h"

#include <getopt.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace stock_engine {
namespace {

constexpr char kUsage[] =
    "group_engine: an engine that spans GPUs, a process for each\n"
    "\n"
    "  --gpus A,B,…  CUDA ordinals, one for each rank (0)\n"
    "  --alone       one process on the first of them, without ranks\n"
    "  --random      serves at random between the lines\n"
    "  --floor N     in blocks of 64 KiB (1)\n"
    "  --seed N      what is written (1)\n"
    "  --rank N      for its own use: is that rank\n"
    "\n"
    "lines from stdin: stats | lease N | exit\n"
    "\n"
    "exit: 0 ok, 1 mismatch, 2 usage, 3 CUDA error, 4 no KV, 5 no view,\n"
    "  6 a rank ended\n";

uint32_t Number(const char* name, const char* value) {
  char* end;
  const unsigned long number = strtoul(value, &end, 10);
  if (end == value || *end != '\0' || number > UINT32_MAX) {
    fprintf(stderr, "group_engine: bad value for --%s: '%s' (see --help)\n",
            name, value);
    exit(2);
  }
  return static_cast<uint32_t>(number);
}

std::vector<int> Numbers(const char* name, const std::string& values) {
  std::vector<int> numbers;
  for (size_t begin = 0; begin <= values.size();) {
    const size_t comma = std::min(values.find(',', begin), values.size());
    const std::string value = values.substr(begin, comma - begin);
    numbers.push_back(static_cast<int>(Number(name, value.c_str())));
    begin = comma + 1;
  }
  return numbers;
}

constexpr option kOptions[] = {{"gpus", required_argument, nullptr, 'g'},
                               {"alone", no_argument, nullptr, 'a'},
                               {"random", no_argument, nullptr, 'r'},
                               {"floor", required_argument, nullptr, 'f'},
                               {"seed", required_argument, nullptr, 's'},
                               {"rank", required_argument, nullptr, 'R'},
                               {"help", no_argument, nullptr, 'h'},
                               {nullptr, 0, nullptr, 0}};

}  // namespace

GroupOptions ParseGroupOptions(int argc, char** argv) {
  GroupOptions options;
  int found;
  int place = 0;
  while ((found = getopt_long(argc, argv, "h", kOptions, &place)) != -1) {
    if (found == 'g') options.gpus = Numbers("gpus", optarg);
    if (found == 'a') options.alone = true;
    if (found == 'r') options.random = true;
    if (found == 'f') options.floor_blocks = Number("floor", optarg);
    if (found == 's') options.seed = Number("seed", optarg);
    if (found == 'R') options.rank = static_cast<int>(Number("rank", optarg));
    if (found == 'h') {
      fputs(kUsage, stdout);
      exit(0);
    }
    if (found == '?') exit(2);  // getopt_long has named the option
  }
  const auto ranks = static_cast<int>(options.gpus.size());
  if (optind < argc || options.rank >= ranks) {
    fputs("group_engine: see --help\n", stderr);
    exit(2);
  }
  return options;
}

}  // namespace stock_engine
