
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/byte_size.h"
#include "daemon/pool/geometry/geometry_search.h"
#include "tools/fsctl/daemons/daemon_choice.h"
#include "tools/fsctl/geometry/format_fit.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

struct GeometryOptions {
  std::vector<std::string> formats;
  std::vector<std::string> models;
  // Sizes as the user wrote them; empty if not given.
  std::string pool;
  std::string slab;  // evaluate slabs of this size instead of searching
  std::string granule;
  std::string granularity = "2MiB";
  uint32_t engines = 0;
  uint32_t max_handles = 0;  // 0: slab::kMaxHandles
  bool running = false;      // evaluate the pool of the running daemon
  bool all = false;          // list every cut of the frontier
};

// 0 for an empty text.
absl::StatusOr<uint64_t> Bytes(const char* flag, const std::string& text) {
  uint64_t bytes = 0;
  if (!text.empty() && !abi::ParseByteSize(text.c_str(), &bytes)) {
    return absl::InvalidArgumentError(absl::StrCat(
        flag, ": \"", text, "\" is not a size; write it like 64GiB"));
  }
  return bytes;
}

absl::StatusOr<std::vector<NamedFormat>> Formats(const GeometryOptions& o) {
  std::vector<NamedFormat> formats;
  const auto take = [&](absl::StatusOr<NamedFormat> parsed) {
    absl::Status status = parsed.status();
    if (status.ok()) formats.push_back(*std::move(parsed));
    return status;
  };
  for (const std::string& text : o.models) {
    if (absl::Status s = take(ParseModel(text)); !s.ok()) return s;
  }
  for (const std::string& text : o.formats) {
    if (absl::Status s = take(ParseFormat(text)); !s.ok()) return s;
  }
  if (formats.empty()) {
    return absl::InvalidArgumentError(
        "geometry needs a --model or a --format; see fsctl geometry --help");
  }
  return formats;
}

// Returns the cut that the flags describe, with slabs of --slab.
absl::StatusOr<slab::PoolGeometry> GivenCut(uint64_t pool_bytes,
                                            const GeometryOptions& o) {
  const absl::StatusOr<uint64_t> slab = Bytes("--slab", o.slab);
  if (!slab.ok()) return slab.status();
  absl::StatusOr<uint64_t> granule = Bytes("--granule", o.granule);
  if (granule.ok() && *granule == 0) {
    granule = Bytes("--granularity", o.granularity);
  }
  if (!granule.ok()) return granule.status();
  if (*granule == 0 || *slab == 0 || *slab % *granule != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--slab ", o.slab, " is not a multiple of the granule, ",
                     Size(*granule), "; change --slab or --granule"));
  }
  slab::PoolGeometry cut;
  cut.granule_bytes = *granule;
  cut.granules_per_slab = static_cast<uint32_t>(*slab / *granule);
  cut.slab_count = static_cast<uint32_t>(pool_bytes / *slab);
  if (cut.slab_count == 0) {
    return absl::InvalidArgumentError("the pool is smaller than one slab");
  }
  return cut;
}

int PrintFit(const Globals& globals, const slab::PoolGeometry& cut,
             const std::vector<NamedFormat>& formats) {
  int refused = 0;
  Print(globals.json ? FitJson(cut, formats, &refused)
                     : FitText(cut, formats, globals.color, &refused));
  return refused == 0 ? kExitOk : kExitBadAnswer;
}

int EvaluateRunning(const Globals& globals,
                    const std::vector<NamedFormat>& formats) {
  const absl::StatusOr<Pool> pool = ChoosePool(globals.gpu);
  if (!pool.ok()) return FailWithoutPool(pool.status());
  const abi::TableSnapshot& table = pool->table;
  return PrintFit(globals,
                  {table.granule_bytes, table.granules_per_slab,
                   static_cast<uint32_t>(table.slabs.size())},
                  formats);
}

int Search(const Globals& globals, const GeometryOptions& o,
           uint64_t pool_bytes, const std::vector<NamedFormat>& formats) {
  slab::SearchRequest request;
  request.pool_bytes = pool_bytes;
  const absl::StatusOr<uint64_t> granularity =
      Bytes("--granularity", o.granularity);
  if (!granularity.ok()) return Fail(kExitUsage, granularity.status());
  request.granularity = *granularity;
  request.engines = o.engines;
  if (o.max_handles != 0) request.max_handles = o.max_handles;
  for (const NamedFormat& f : formats) request.formats.push_back(f.format);
  const auto frontier = slab::GeometryFrontier(request);
  if (!frontier.ok()) return Fail(kExitBadAnswer, frontier.status());
  return Print(globals.json ? FrontierJson(request, formats, *frontier)
                            : FrontierText(request, formats, *frontier, o.all,
                                           globals.color));
}

int RunGeometry(const Globals& globals, const GeometryOptions& o) {
  const auto formats = Formats(o);
  if (!formats.ok()) return Fail(kExitUsage, formats.status());
  if (o.running) return EvaluateRunning(globals, *formats);
  const absl::StatusOr<uint64_t> pool = Bytes("--pool", o.pool);
  if (!pool.ok()) return Fail(kExitUsage, pool.status());
  if (*pool == 0) {
    return Fail(kExitUsage,
                "geometry needs --pool SIZE, or --running for the pool of a "
                "daemon");
  }
  if (o.slab.empty()) return Search(globals, o, *pool, *formats);
  const auto cut = GivenCut(*pool, o);
  if (!cut.ok()) return Fail(kExitUsage, cut.status());
  return PrintFit(globals, *cut, *formats);
}

}  // namespace

void AddGeometry(Commands& c) {
  const auto [command, o] = c.Add(
      "geometry", "Show how well block formats fit into slabs",
      "  fsctl geometry --pool 64GiB \\\n"
      "    --model 8b:layers=32,kv-heads=8,head-dim=128,precision=fp16 \\\n"
      "    --model 32b:layers=64,kv-heads=8,head-dim=128,precision=fp8\n"
      "  fsctl geometry --pool 64GiB --slab 512MiB "
      "--format planes=36,page=64KiB\n"
      "  fsctl geometry --running --format planes=36,page=64KiB,tokens=16\n"
      "\nA --model takes layers, kv-heads, head-dim, precision (fp32 fp16 bf16 "
      "fp8 int8\nfp4 int4), tp, quant-bytes (per block and layer), tokens (per "
      "block; default: 16)\nand layout (layers: one tensor per layer, the "
      "default; split: K and V apart;\npacked: all layers of a block "
      "together).\n",
      RunGeometry);
  command->add_option("--model", o->models,
                      "Model, as [NAME:]KEY=VALUE,...; repeatable");
  command->add_option(
      "--format", o->formats,
      "Block format, as [NAME:]planes=N,page=SIZE[,tokens=N]; repeatable");
  command->add_option("--pool", o->pool, "Size of the pool");
  command->add_option("--slab", o->slab,
                      "Evaluate slabs of this size instead of searching");
  command->add_option("--granule", o->granule,
                      "Size of a granule, with --slab");
  command->add_flag("--running", o->running,
                    "Evaluate the pool of the running daemon");
  command->add_option(
      "--engines", o->engines,
      "Number of engines that hold slabs at once (default: one per format)");
  command->add_option("--granularity", o->granularity,
                      "Allocation granularity of the driver (default: 2MiB)");
  command
      ->add_option("--max-handles", o->max_handles,
                   "Maximum number of memory handles in the pool")
      ->check(CLI::PositiveNumber);
  command->add_flag("--all", o->all, "List every cut worth considering");
}

}  // namespace fineserve::fsctl
