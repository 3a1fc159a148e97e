#include "tools/fsctl/geometry/geometry.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/byte_size.h"
#include "daemon/pool/geometry_search.h"
#include "tools/fsctl/geometry/geometry_output.h"
#include "tools/fsctl/pool/daemon_choice.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

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

// The cut that the flags describe: slabs of --slab.
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

}  // namespace

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

}  // namespace fineserve::fsctl
