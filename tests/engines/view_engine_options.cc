#include "tests/engines/view_engine_options.h"

#include "tests/engines/command_line.h"

namespace stock_engine {
namespace {

constexpr char kMore[] =
    "Lines from stdin:\n"
    "  alloc N | nan | nanscan | scan | write | queue | verify | free N |\n"
    "  step | begin | end | idle MS | watermark N | peek BLOCK |\n"
    "  poke BLOCK | stats | checkfree | fork | close | release | exit\n"
    "\n"
    "exit: 0 ok, 1 mismatch, 2 usage, 3 CUDA error, 4 no KV, 5 no view\n";

}  // namespace

ViewOptions ParseViewOptions(int argc, char** argv) {
  ViewOptions o;
  o.format.struct_bytes = sizeof(o.format);
  o.format.mode = FS_KV_VIEW;
  o.format.planes = o.format.planes_per_allocation = 1;
  o.format.page_bytes = 64 << 10;
  o.format.block_tokens = 16;
  CommandLine line("view_engine", "an engine with a view of FineServe's pool",
                   kMore);
  line.Count("planes", "of the KV (1)", &o.format.planes);
  line.Count("per-allocation", "planes in one tensor, one behind another (1)",
             &o.format.planes_per_allocation);
  line.Bytes("page", "of one block in one plane (64KiB)", &o.format.page_bytes);
  line.Count("blocks", "of each plane (0: the whole pool)", &o.format.blocks);
  line.OneOf<uint32_t>("mode", "view, guarded or strict (view)", &o.format.mode,
                       {{"view", FS_KV_VIEW},
                        {"guarded", FS_KV_GUARDED},
                        {"strict", FS_KV_STRICT}});
  line.Count("floor", "in blocks (0)", &o.format.floor_blocks);
  line.Count("cap", "in blocks (0)", &o.format.cap_blocks);
  line.Count("watermark", "blocks that it keeps ready (0)", &o.watermark);
  line.Count("progress", "the stage that its plugin reports (3)", &o.progress);
  line.Bytes("before", "device memory that is no KV, allocated first",
             &o.before_bytes);
  line.Count("seed", "what is written (1)", &o.seed);
  line.Real("random", "serves at random for X seconds, then exits",
            &o.random_seconds);
  line.Count("most", "with --random, at most N blocks (400)", &o.most_blocks);
  line.Flag("fill-first",
            "fills a block with rubbish before it writes it:\n"
            "of a killed engine's work only fills linger",
            &o.fills_first);
  line.Count("child-outlives-ms",
             "forks a child that keeps all descriptors and\n"
             "ends N ms after its parent",
             &o.child_outlives_ms);
  line.Parse(argc, argv);
  return o;
}

}  // namespace stock_engine
