#include "tests/engines/view_engine_options.h"

#include <getopt.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/engines/engine_options.h"

namespace stock_engine {
namespace {

constexpr char kViewUsage[] =
    "view_engine: an engine with a view of FineServe's pool\n"
    "\n"
    "  --planes N             planes of the KV (1)\n"
    "  --per-allocation N     planes in one tensor, one behind another (1)\n"
    "  --page SIZE            bytes of one block in one plane (64KiB)\n"
    "  --blocks N             blocks of each plane (0: the whole pool)\n"
    "  --mode NAME            view, guarded or strict (view)\n"
    "  --floor N, --cap N     in blocks (0)\n"
    "  --watermark N          blocks that it keeps ready (0)\n"
    "  --progress N           the stage that its plugin reports (3)\n"
    "  --before SIZE          device memory that is no KV, allocated first\n"
    "  --seed N               what is written (1)\n"
    "  --random SECONDS       serves at random, then exits\n"
    "  --most N               with --random, at most N blocks (400)\n"
    "  --fill-first           fills a block with rubbish before it writes it:\n"
    "                         of a killed engine's work only fills linger\n"
    "  --child-outlives-ms N  forks a child that keeps all descriptors and\n"
    "                         ends N ms after its parent\n"
    "\n"
    "lines from stdin: alloc N | nan | nanscan | scan | write | queue |\n"
    "  verify |\n"
    "  free N | step | begin | end | idle MS | watermark N | peek BLOCK | poke "
    "BLOCK | stats | checkfree |\n"
    "  fork | close | release | exit\n"
    "\n"
    "exit: 0 ok, 1 mismatch, 2 usage, 3 CUDA error, 4 no KV, 5 no view\n";

[[noreturn]] void ViewUsageError(const char* option, const char* value) {
  fprintf(stderr, "view_engine: bad value for --%s: '%s' (see --help)\n",
          option, value);
  exit(2);
}

uint64_t Number(const char* option, const char* value) {
  char* end;
  const uint64_t number = strtoull(value, &end, 10);
  if (end == value || *end != '\0') ViewUsageError(option, value);
  return number;
}

double Seconds(const char* option, const char* value) {
  char* end;
  const double seconds = strtod(value, &end);
  if (end == value || *end != '\0' || !(seconds >= 0)) {
    ViewUsageError(option, value);
  }
  return seconds;
}

size_t Bytes(const char* option, const char* value) {
  size_t bytes;
  if (!ParseBytes(value, &bytes)) ViewUsageError(option, value);
  return bytes;
}

uint32_t Mode(const char* option, const std::string& value) {
  if (value == "view") return FS_KV_VIEW;
  if (value == "guarded") return FS_KV_GUARDED;
  if (value == "strict") return FS_KV_STRICT;
  ViewUsageError(option, value.c_str());
}

void Apply(int option, const char* name, const char* value, ViewOptions* to) {
  switch (option) {
    case 'p':
      to->format.planes = static_cast<uint32_t>(Number(name, value));
      break;
    case 'a':
      to->format.planes_per_allocation =
          static_cast<uint32_t>(Number(name, value));
      break;
    case 'g':
      to->format.page_bytes = Bytes(name, value);
      break;
    case 'b':
      to->format.blocks = Number(name, value);
      break;
    case 'm':
      to->format.mode = Mode(name, value);
      break;
    case 'f':
      to->format.floor_blocks = Number(name, value);
      break;
    case 'c':
      to->format.cap_blocks = Number(name, value);
      break;
    case 'w':
      to->watermark = Number(name, value);
      break;
    case 'P':
      to->progress = static_cast<int>(Number(name, value));
      break;
    case 'B':
      to->before_bytes = Bytes(name, value);
      break;
    case 's':
      to->seed = Number(name, value);
      break;
    case 'r':
      to->random_seconds = Seconds(name, value);
      break;
    case 'M':
      to->most_blocks = static_cast<uint32_t>(Number(name, value));
      break;
    case 'F':
      to->fills_first = true;
      break;
    case 'C':
      to->child_outlives_ms = static_cast<unsigned>(Number(name, value));
      break;
    case 'h':
      fputs(kViewUsage, stdout);
      exit(0);
    default:
      exit(2);  // getopt_long has named the option
  }
}

constexpr option kViewOptions[] = {
    {"planes", required_argument, nullptr, 'p'},
    {"per-allocation", required_argument, nullptr, 'a'},
    {"page", required_argument, nullptr, 'g'},
    {"blocks", required_argument, nullptr, 'b'},
    {"mode", required_argument, nullptr, 'm'},
    {"floor", required_argument, nullptr, 'f'},
    {"cap", required_argument, nullptr, 'c'},
    {"watermark", required_argument, nullptr, 'w'},
    {"progress", required_argument, nullptr, 'P'},
    {"before", required_argument, nullptr, 'B'},
    {"seed", required_argument, nullptr, 's'},
    {"random", required_argument, nullptr, 'r'},
    {"most", required_argument, nullptr, 'M'},
    {"fill-first", no_argument, nullptr, 'F'},
    {"child-outlives-ms", required_argument, nullptr, 'C'},
    {"help", no_argument, nullptr, 'h'},
    {nullptr, 0, nullptr, 0}};

}  // namespace

ViewOptions ParseViewOptions(int argc, char** argv) {
  ViewOptions options;
  options.format.struct_bytes = sizeof(options.format);
  options.format.mode = FS_KV_VIEW;
  options.format.planes = options.format.planes_per_allocation = 1;
  options.format.page_bytes = 64 << 10;
  options.format.block_tokens = 16;
  int index = 0;
  int option;
  while ((option = getopt_long(argc, argv, "", kViewOptions, &index)) != -1) {
    Apply(option, option == '?' ? "" : kViewOptions[index].name, optarg,
          &options);
  }
  return options;
}

}  // namespace stock_engine
