#include "tests/engines/tinyserve/options.h"

#include <getopt.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/engines/engine_options.h"

namespace tinyserve {
namespace {

constexpr char kUsage[] =
    "tinyserve: an LLM engine for tests. It serves vLLM's HTTP dialect, runs\n"
    "continuous batching with paged KV in device memory, and computes each\n"
    "token from the KV that it reads back.\n"
    "\n"
    "  --model NAME                the model that it serves (tiny)\n"
    "  --host ADDRESS              (127.0.0.1)\n"
    "  --port N                    0: any, printed (8000)\n"
    "  --planes N                  planes of the KV (1)\n"
    "  --page SIZE                 bytes of one block in one plane (64KiB)\n"
    "  --block-tokens N            tokens of a block (16)\n"
    "  --blocks N                  blocks of each plane (0: with a view the\n"
    "                              pool's, else for 8 of the longest "
    "requests)\n"
    "  --view                      has a view of FineServe's pool; also by\n"
    "                              FINESERVE_VIEW\n"
    "  --weights SIZE              on the GPU besides KV, in tensors of 4MiB;\n"
    "                              each step reads some of each (0)\n"
    "  --load-s X                  seconds that loading them takes (0)\n"
    "  --mode NAME                 view, guarded or strict (view)\n"
    "  --floor N                   blocks that it always holds (0: the\n"
    "                              longest request's)\n"
    "  --max-model-len N           tokens of prompt and answer (4096)\n"
    "  --max-num-seqs N            sequences that run at once (64)\n"
    "  --max-num-batched-tokens N  tokens of one step (2048)\n"
    "  --checked-blocks N          blocks of a sequence that each step reads\n"
    "                              besides the newest; the last reads all (2)\n"
    "  --step-base-us X            the time of a step (7600),\n"
    "  --step-token-us X           plus for each prompt token (16),\n"
    "  --step-sequence-us X        plus for each decoded sequence (64),\n"
    "  --speed X                   divided by this (1)\n"
    "  --lines                     obeys lines from stdin: stats | flip (a "
    "bit\n"
    "                              of KV) | hold TOKENS (stops when an answer\n"
    "                              has so many) | continue\n"
    "  --log-requests              prints a line on stderr for each request:\n"
    "                              request ID traceparent VALUE\n"
    "\n"
    "prints: ready port=8000 pid=4711 blocks=2048\n"
    "paths: /v1/completions /v1/chat/completions /v1/models /tokenize\n"
    "  /health /version /metrics, and POST /fault/error (every second request\n"
    "  from now on is answered 500), /fault/reset, /fault/none, /fault/hang\n"
    "  (SIGSTOP), /fault/die\n"
    "exit: 0 ok (SIGTERM), 1 cannot listen, 2 usage, 3 CUDA error, 4 no KV,\n"
    "  5 no view\n"
    "\n"
    "  tinyserve --model llama --port 8000 --speed 10 &\n"
    "  curl localhost:8000/v1/completions -H 'Content-Type: application/json'\n"
    "    -d '{\"model\": \"llama\", \"prompt\": \"hello\", \"stream\": "
    "true}'\n";

[[noreturn]] void UsageError(const char* option, const char* value) {
  fprintf(stderr, "tinyserve: bad value for --%s: '%s' (see --help)\n", option,
          value);
  exit(2);
}

uint32_t Count(const char* option, const char* value, uint32_t least,
               uint32_t most) {
  char* end;
  const uint64_t number = strtoull(value, &end, 10);
  if (end == value || *end != '\0' || value[0] == '-' || number < least ||
      number > most) {
    UsageError(option, value);
  }
  return static_cast<uint32_t>(number);
}

double Real(const char* option, const char* value) {
  char* end;
  const double number = strtod(value, &end);
  if (end == value || *end != '\0' || !std::isfinite(number) || number < 0) {
    UsageError(option, value);
  }
  return number;
}

size_t Bytes(const char* option, const char* value) {
  size_t bytes;
  if (!stock_engine::ParseBytes(value, &bytes)) UsageError(option, value);
  return bytes;
}

Mode ModeOf(const char* option, const char* value) {
  if (strcmp(value, "view") == 0) return Mode::kView;
  if (strcmp(value, "guarded") == 0) return Mode::kGuarded;
  if (strcmp(value, "strict") == 0) return Mode::kStrict;
  UsageError(option, value);
}

constexpr uint32_t kMost = 1 << 30;

bool ApplyToServer(int option, const char* name, const char* value,
                   Options* to) {
  switch (option) {
    case 'M':
      to->engine.model = value;
      return true;
    case 'H':
      to->host = value;
      return true;
    case 'P':
      to->port = static_cast<uint16_t>(Count(name, value, 0, UINT16_MAX));
      return true;
    case 'L':
      to->lines = true;
      return true;
    case 'R':
      to->logs_requests = true;
      return true;
    case 'h':
      fputs(kUsage, stdout);
      exit(0);
    default:
      return false;
  }
}

bool ApplyToKv(int option, const char* name, const char* value, Options* to) {
  switch (option) {
    case 'p':
      to->format.planes = Count(name, value, 1, 1024);
      return true;
    case 'g':
      to->format.page_bytes = Bytes(name, value);
      return true;
    case 't':
      to->format.block_tokens = Count(name, value, 1, 4096);
      return true;
    case 'b':
      to->blocks = Count(name, value, 0, kMost);
      return true;
    case 'v':
      to->view = true;
      return true;
    case 'w':
      to->weights_bytes = Bytes(name, value);
      return true;
    case 'o':
      to->load_s = Real(name, value);
      return true;
    case 'm':
      to->mode = ModeOf(name, value);
      return true;
    case 'f':
      to->floor_blocks = Count(name, value, 0, kMost);
      return true;
    default:
      return false;
  }
}

void ApplyToSteps(int option, const char* name, const char* value,
                  EngineSettings* to) {
  switch (option) {
    case 'l':
      to->limits.model_tokens = Count(name, value, 2, kMost);
      return;
    case 's':
      to->limits.most_sequences = Count(name, value, 1, 1 << 16);
      return;
    case 'k':
      to->limits.step_tokens = Count(name, value, 1, kMost);
      return;
    case 'c':
      to->checked_blocks = Count(name, value, 0, kMost);
      return;
    case 'B':
      to->cost.base_us = Real(name, value);
      return;
    case 'T':
      to->cost.per_token_us = Real(name, value);
      return;
    case 'S':
      to->cost.per_sequence_us = Real(name, value);
      return;
    case 'X':
      to->cost.speed = Real(name, value);
      if (to->cost.speed == 0) UsageError(name, value);
      return;
    default:
      exit(2);  // getopt_long has named the option
  }
}

constexpr option kOptions[] = {
    {"model", required_argument, nullptr, 'M'},
    {"host", required_argument, nullptr, 'H'},
    {"port", required_argument, nullptr, 'P'},
    {"planes", required_argument, nullptr, 'p'},
    {"page", required_argument, nullptr, 'g'},
    {"block-tokens", required_argument, nullptr, 't'},
    {"blocks", required_argument, nullptr, 'b'},
    {"view", no_argument, nullptr, 'v'},
    {"weights", required_argument, nullptr, 'w'},
    {"load-s", required_argument, nullptr, 'o'},
    {"mode", required_argument, nullptr, 'm'},
    {"floor", required_argument, nullptr, 'f'},
    {"max-model-len", required_argument, nullptr, 'l'},
    {"max-num-seqs", required_argument, nullptr, 's'},
    {"max-num-batched-tokens", required_argument, nullptr, 'k'},
    {"checked-blocks", required_argument, nullptr, 'c'},
    {"step-base-us", required_argument, nullptr, 'B'},
    {"step-token-us", required_argument, nullptr, 'T'},
    {"step-sequence-us", required_argument, nullptr, 'S'},
    {"speed", required_argument, nullptr, 'X'},
    {"lines", no_argument, nullptr, 'L'},
    {"log-requests", no_argument, nullptr, 'R'},
    {"help", no_argument, nullptr, 'h'},
    {nullptr, 0, nullptr, 0}};

void CheckFormat(const KvFormat& format) {
  const size_t quantum = size_t{8} * format.block_tokens;
  if (format.page_bytes % quantum == 0) return;
  fprintf(stderr,
          "tinyserve: --page must be a multiple of 8 bytes for each of "
          "--block-tokens %u: of %zu\n",
          format.block_tokens, quantum);
  exit(2);
}

}  // namespace

Options ParseOptions(int argc, char** argv) {
  Options options;
  options.engine.model = "tiny";
  const char* view = getenv("FINESERVE_VIEW");
  options.view = view != nullptr && *view != '\0' && strcmp(view, "0") != 0;
  for (;;) {
    int index = 0;
    const int found = getopt_long(argc, argv, "", kOptions, &index);
    if (found < 0) break;
    const char* name = found == '?' ? "" : kOptions[index].name;
    if (!ApplyToServer(found, name, optarg, &options) &&
        !ApplyToKv(found, name, optarg, &options)) {
      ApplyToSteps(found, name, optarg, &options.engine);
    }
  }
  if (optind < argc) {
    fprintf(stderr, "tinyserve: unexpected '%s' (see --help)\n", argv[optind]);
    exit(2);
  }
  CheckFormat(options.format);
  options.engine.limits.block_tokens = options.format.block_tokens;
  return options;
}

}  // namespace tinyserve
