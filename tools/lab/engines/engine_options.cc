#include "tools/lab/engines/engine_options.h"

#include "tools/lab/engines/engine_flags.h"

namespace stock_engine {
namespace {

constexpr char kMore[] =
    "Lines from stdin, with --hold:\n"
    "  verify | write SEED | checkzero | checkfree | free | alloc | fork |\n"
    "  fork libc | queue | stall | resume | capture [begin|end] | spoil |\n"
    "  workspace |\n"
    "  share ADDRESS | open HANDLE | close ADDRESS | range ADDRESS |\n"
    "  poke ADDRESS VALUE | peek ADDRESS | drop ADDRESS | device N |\n"
    "  freeze | thaw MS | weights SEED | weight N | leave MS | return MS |\n"
    "  wait stream|context|event | ask stream|event | last | exit\n"
    "\n"
    "exit: 0 ok, 1 mismatch, 2 usage, 3 CUDA error, 4 no memory for KV\n";

constexpr uint64_t kMost = 1000000;

}  // namespace

Options ParseOptions(int argc, char** argv) {
  Options o;
  EngineFlags flags(
      "stock_engine",
      "allocates, writes and verifies GPU memory as an LLM engine "
      "does",
      kMore);
  flags.Bytes("weights", "in several allocations (8MiB)", &o.weight_bytes);
  flags.Count("layers", "(2)", &o.layers, 1, kMost);
  flags.Bytes("kv", "of each layer (16MiB)", &o.kv_bytes);
  flags.Flag("one-kv", "one KV allocation in all, not one per layer",
             &o.one_kv_allocation);
  flags.OneOf<KvAllocator>("allocator",
                           "how KV is allocated: plain, async, virtual, rdma "
                           "(plain)",
                           &o.allocator,
                           {{"plain", KvAllocator::kPlain},
                            {"async", KvAllocator::kAsync},
                            {"virtual", KvAllocator::kVirtual},
                            {"rdma", KvAllocator::kRdma}});
  flags.Bytes("workspace", "(4MiB)", &o.workspace_bytes);
  flags.Count("seed", "what is written (1)", &o.seed);
  flags.Count("weight-seed", "what the weights hold (0)", &o.weight_seed);
  flags.Flag("freeze", "say that the weights hold parameters alone", &o.freeze);
  flags.Count("rounds", "write and verify N times, seed + 1 each time (1)",
              &o.rounds, 1, kMost);
  flags.Count("small", "small allocations made and freed (0)",
              &o.small_allocations, 0, kMost);
  flags.Count("ctx-device", "device ordinal (0)", &o.device, 0, kMost);
  flags.Flag("hold", "after the first rounds, obey lines from stdin", &o.hold);
  flags.Parse(argc, argv);
  return o;
}

}  // namespace stock_engine
