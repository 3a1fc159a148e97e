#include "tools/lab/engines/ranks/group_options.h"

#include <climits>
#include <cstdint>
#include <sstream>
#include <string>

#include "tools/lab/engines/engine_flags.h"

namespace stock_engine {
namespace {

constexpr char kMore[] =
    "lines from stdin: stats | request | finish | lease N | exit\n"
    "\n"
    "exit: 0 ok, 1 mismatch, 2 usage, 3 CUDA error, 4 no KV, 5 no view,\n"
    "  6 a rank ended\n";

bool ReadNumbers(const std::string& values, std::vector<int>* numbers) {
  numbers->clear();
  std::istringstream words(values);
  for (std::string word; std::getline(words, word, ',');) {
    uint64_t number;
    if (!EngineFlags::ReadNumber(word, 0, INT_MAX, &number)) return false;
    numbers->push_back(static_cast<int>(number));
  }
  return !numbers->empty();
}

}  // namespace

GroupOptions ParseGroupOptions(int argc, char** argv) {
  GroupOptions o;
  EngineFlags flags("group_engine",
                    "an engine that spans GPUs, a process for each", kMore);
  flags.Add("gpus", "A,B,...", "CUDA ordinals, one for each rank (0)",
            [&o](const std::string& v) { return ReadNumbers(v, &o.gpus); });
  flags.Flag("alone", "one process on the first of them, without ranks",
             &o.alone);
  flags.Flag("random", "serves at random between the lines", &o.random);
  flags.Count("floor", "in blocks of 64 KiB (1)", &o.floor_blocks);
  flags.Count("seed", "what is written (1)", &o.seed);
  flags.Count("weights", "in MiB, of each rank (0)", &o.weights_mib);
  flags.Count("port",
              "serves /health and completions over HTTP there, and\n"
              "uses KV for these alone, not at random",
              &o.port, 0, UINT16_MAX);
  flags.Flag("prompts",
             "completions take the \"slabs\" that their bodies name,\n"
             "several at once, and keep them until \"finish\"",
             &o.prompts);
  flags.Count("rank", "for its own use: is that rank", &o.rank);
  flags.Parse(argc, argv);
  if (o.rank >= static_cast<int>(o.gpus.size())) {
    flags.Refuse("--rank is not one of --gpus");
  }
  return o;
}

}  // namespace stock_engine
