#include "tests/engines/engine_options.h"

#include <getopt.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace stock_engine {
namespace {

constexpr char kUsage[] =
    "stock_engine: allocates, writes and verifies GPU memory as an LLM engine\n"
    "does.\n"
    "\n"
    "  --weights SIZE     bytes of weights, in several allocations (8MiB)\n"
    "  --layers N         layers (2)\n"
    "  --kv SIZE          bytes of KV per layer (16MiB)\n"
    "  --one-kv           one KV allocation in all, not one per layer\n"
    "  --allocator NAME   how KV is allocated: plain, async, virtual,\n"
    "                     rdma (plain)\n"
    "  --workspace SIZE   bytes of workspace (4MiB)\n"
    "  --seed N           what is written (1)\n"
    "  --rounds N         write and verify N times, seed + 1 each time (1)\n"
    "  --small N          small allocations made and freed (0)\n"
    "  --ctx-device N     device ordinal (0)\n"
    "  --hold             after the first rounds, obey lines from stdin:\n"
    "                     verify | write SEED | checkzero | checkfree | free "
    "|\n"
    "                     alloc | fork | fork libc | queue | stall | resume |\n"
    "                     capture | spoil | workspace |\n"
    "                     share ADDRESS | open HANDLE | close ADDRESS |\n"
    "                     range ADDRESS | poke ADDRESS VALUE | peek ADDRESS |\n"
    "                     drop ADDRESS | device N |\n"
    "                     wait stream|context|event | ask stream|event | exit\n"
    "\n"
    "exit: 0 ok, 1 mismatch, 2 usage, 3 CUDA error, 4 no memory for KV\n";

[[noreturn]] void UsageError(const char* option, const char* value) {
  fprintf(stderr, "stock_engine: bad value for --%s: '%s' (see --help)\n",
          option, value);
  exit(2);
}

size_t BytesOrExit(const char* option, const char* value) {
  size_t bytes;
  if (!ParseBytes(value, &bytes)) UsageError(option, value);
  return bytes;
}

uint64_t NumberOrExit(const char* option, const char* value, uint64_t least,
                      uint64_t most) {
  char* end;
  errno = 0;
  const uint64_t number = strtoull(value, &end, 10);
  if (errno != 0 || end == value || *end != '\0' || value[0] == '-' ||
      number < least || number > most) {
    UsageError(option, value);
  }
  return number;
}

int CountOrExit(const char* option, const char* value, int least) {
  return static_cast<int>(NumberOrExit(option, value, least, 1000000));
}

KvAllocator AllocatorOrExit(const char* option, const char* value) {
  if (strcmp(value, "plain") == 0) return KvAllocator::kPlain;
  if (strcmp(value, "async") == 0) return KvAllocator::kAsync;
  if (strcmp(value, "virtual") == 0) return KvAllocator::kVirtual;
  if (strcmp(value, "rdma") == 0) return KvAllocator::kRdma;
  UsageError(option, value);
}

void Apply(char option, const char* name, const char* value, Options* options) {
  switch (option) {
    case 'w':
      options->weight_bytes = BytesOrExit(name, value);
      break;
    case 'k':
      options->kv_bytes = BytesOrExit(name, value);
      break;
    case 'p':
      options->workspace_bytes = BytesOrExit(name, value);
      break;
    case 'l':
      options->layers = CountOrExit(name, value, 1);
      break;
    case 'o':
      options->one_kv_allocation = true;
      break;
    case 'a':
      options->allocator = AllocatorOrExit(name, value);
      break;
    case 'e':
      options->seed = NumberOrExit(name, value, 0, UINT64_MAX);
      break;
    case 'r':
      options->rounds = CountOrExit(name, value, 1);
      break;
    case 's':
      options->small_allocations = CountOrExit(name, value, 0);
      break;
    case 'd':
      options->device = CountOrExit(name, value, 0);
      break;
    case 'H':
      options->hold = true;
      break;
    case 'h':
      fputs(kUsage, stdout);
      exit(0);
    default:
      exit(2);  // getopt_long has named the option
  }
}

constexpr option kOptions[] = {{"weights", required_argument, nullptr, 'w'},
                               {"kv", required_argument, nullptr, 'k'},
                               {"workspace", required_argument, nullptr, 'p'},
                               {"layers", required_argument, nullptr, 'l'},
                               {"one-kv", no_argument, nullptr, 'o'},
                               {"allocator", required_argument, nullptr, 'a'},
                               {"seed", required_argument, nullptr, 'e'},
                               {"rounds", required_argument, nullptr, 'r'},
                               {"small", required_argument, nullptr, 's'},
                               {"ctx-device", required_argument, nullptr, 'd'},
                               {"hold", no_argument, nullptr, 'H'},
                               {"help", no_argument, nullptr, 'h'},
                               {}};

}  // namespace

bool ParseBytes(const char* text, size_t* bytes) {
  char* unit;
  errno = 0;
  const uint64_t number = strtoull(text, &unit, 10);
  if (errno != 0 || unit == text || text[0] == '-') return false;
  int shift = 0;
  if (*unit != '\0') {
    const char* found = strchr("KMG", *unit);
    if (found == nullptr) return false;
    shift = 10 * static_cast<int>(found - "KMG" + 1);
    if (unit[1] != '\0' && strcmp(unit + 1, "iB") != 0) return false;
  }
  if (number > (SIZE_MAX >> shift)) return false;
  *bytes = number << shift;
  return *bytes > 0;
}

Options ParseOptions(int argc, char** argv) {
  Options options;
  for (;;) {
    int index = 0;
    const int found = getopt_long(argc, argv, "", kOptions, &index);
    if (found < 0) break;
    Apply(static_cast<char>(found), kOptions[index].name, optarg, &options);
  }
  if (optind < argc) {
    fprintf(stderr, "stock_engine: unexpected '%s' (see --help)\n",
            argv[optind]);
    exit(2);
  }
  return options;
}

}  // namespace stock_engine
