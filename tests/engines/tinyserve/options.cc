#include "tests/engines/tinyserve/options.h"

#include <cstdlib>
#include <cstring>

#include "tests/engines/command_line.h"

namespace tinyserve {
namespace {

constexpr char kAbout[] =
    "an LLM engine for tests. It serves vLLM's HTTP dialect, runs\n"
    "continuous batching with paged KV in device memory, and computes each\n"
    "token from the KV that it reads back.\n";

constexpr char kMore[] =
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

constexpr uint32_t kMost = 1 << 30;

using stock_engine::CommandLine;

void AddServer(CommandLine* line, Options* o) {
  line->Text("model", "the model that it serves (tiny)", &o->engine.model);
  line->Text("host", "address to listen on (127.0.0.1)", &o->host);
  line->Count("port", "0: any, printed (8000)", &o->port);
  line->Flag("lines",
             "obeys lines from stdin: stats | flip (a bit of KV) |\n"
             "hold TOKENS (stops when an answer has so many) |\n"
             "continue",
             &o->lines);
  line->Flag("log-requests",
             "prints a line on stderr for each request:\n"
             "request ID traceparent VALUE",
             &o->logs_requests);
}

void AddKv(CommandLine* line, Options* o) {
  line->Count("planes", "of the KV (1)", &o->format.planes, 1, 1024);
  line->Bytes("page", "of one block in one plane (64KiB)",
              &o->format.page_bytes);
  line->Count("block-tokens", "of a block (16)", &o->format.block_tokens, 1,
              4096);
  line->Count("blocks",
              "of each plane (0: with a view the pool's, else for\n"
              "8 of the longest requests)",
              &o->blocks, 0, kMost);
  line->Flag("view",
             "has a view of FineServe's pool; also by\n"
             "FINESERVE_VIEW",
             &o->view);
  line->Bytes("weights",
              "on the GPU besides KV, in tensors of 4MiB; each\n"
              "step reads some of each (none)",
              &o->weights_bytes);
  line->Real("load-s", "seconds that loading them takes (0)", &o->load_s);
  line->OneOf<Mode>("mode", "view, guarded or strict (view)", &o->mode,
                    {{"view", Mode::kView},
                     {"guarded", Mode::kGuarded},
                     {"strict", Mode::kStrict}});
  line->Count("floor",
              "blocks that it always holds (0: the longest\n"
              "request's)",
              &o->floor_blocks, 0, kMost);
}

void AddSteps(CommandLine* line, EngineSettings* to) {
  line->Count("max-model-len", "tokens of prompt and answer (4096)",
              &to->limits.model_tokens, 2, kMost);
  line->Count("max-num-seqs", "sequences that run at once (64)",
              &to->limits.most_sequences, 1, 1 << 16);
  line->Count("max-num-batched-tokens", "tokens of one step (2048)",
              &to->limits.step_tokens, 1, kMost);
  line->Count("checked-blocks",
              "blocks of a sequence that each step reads\n"
              "besides the newest; the last reads all (2)",
              &to->checked_blocks, 0, kMost);
  line->Real("step-base-us", "the time of a step (7600),", &to->cost.base_us);
  line->Real("step-token-us", "plus for each prompt token (16),",
             &to->cost.per_token_us);
  line->Real("step-sequence-us", "plus for each decoded sequence (64),",
             &to->cost.per_sequence_us);
  line->Real("speed", "divided by this (1)", &to->cost.speed);
}

}  // namespace

Options ParseOptions(int argc, char** argv) {
  Options options;
  options.engine.model = "tiny";
  const char* view = getenv("FINESERVE_VIEW");
  options.view = view != nullptr && *view != '\0' && strcmp(view, "0") != 0;
  CommandLine line("tinyserve", kAbout, kMore);
  AddServer(&line, &options);
  AddKv(&line, &options);
  AddSteps(&line, &options.engine);
  line.Parse(argc, argv);
  if (options.engine.cost.speed == 0) line.Refuse("--speed is 0");
  const KvFormat& format = options.format;
  if (format.page_bytes % (size_t{8} * format.block_tokens) != 0) {
    line.Refuse(
        "--page must be a multiple of 8 bytes for each of "
        "--block-tokens");
  }
  options.engine.limits.block_tokens = format.block_tokens;
  return options;
}

}  // namespace tinyserve
