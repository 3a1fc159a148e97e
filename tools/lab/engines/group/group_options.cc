#include "tools/lab/engines/group/group_options.h"

#include <climits>
#include <cstdint>
#include <sstream>
#include <string>

#include "tools/lab/engines/command_line.h"

namespace stock_engine {
namespace {

constexpr char kMore[] =
    "lines from stdin: stats | request | lease N | exit\n"
    "\n"
    "exit: 0 ok, 1 mismatch, 2 usage, 3 CUDA error, 4 no KV, 5 no view,\n"
    "  6 a rank ended\n";

bool ReadNumbers(const std::string& values, std::vector<int>* numbers) {
  numbers->clear();
  std::istringstream words(values);
  for (std::string word; std::getline(words, word, ',');) {
    uint64_t number;
    if (!CommandLine::ReadNumber(word, 0, INT_MAX, &number)) return false;
    numbers->push_back(static_cast<int>(number));
  }
  return !numbers->empty();
}

}  // namespace

GroupOptions ParseGroupOptions(int argc, char** argv) {
  GroupOptions o;
  CommandLine line("group_engine",
                   "an engine that spans GPUs, a process for each", kMore);
  line.Add("gpus", "A,B,...", "CUDA ordinals, one for each rank (0)",
           [&o](const std::string& v) { return ReadNumbers(v, &o.gpus); });
  line.Flag("alone", "one process on the first of them, without ranks",
            &o.alone);
  line.Flag("random", "serves at random between the lines", &o.random);
  line.Count("floor", "in blocks of 64 KiB (1)", &o.floor_blocks);
  line.Count("seed", "what is written (1)", &o.seed);
  line.Count("weights", "in MiB, of each rank (0)", &o.weights_mib);
  line.Count("port",
             "serves /health and completions over HTTP there, and\n"
             "uses KV for these alone, not at random",
             &o.port, 0, UINT16_MAX);
  line.Count("rank", "for its own use: is that rank", &o.rank);
  line.Parse(argc, argv);
  if (o.rank >= static_cast<int>(o.gpus.size())) {
    line.Refuse("--rank is not one of --gpus");
  }
  return o;
}

}  // namespace stock_engine
