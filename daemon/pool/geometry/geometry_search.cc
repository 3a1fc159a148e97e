#include "daemon/pool/geometry/geometry_search.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "daemon/contract/abi/byte_size.h"
#include "daemon/pool/geometry/slab_layout.h"

namespace fineserve::slab {
namespace {

std::optional<GeometryChoice> Judge(const SearchRequest& r,
                                    uint64_t granule_bytes, uint64_t granules) {
  GeometryChoice choice;
  const uint64_t slab_bytes = granule_bytes * granules;
  const uint64_t slabs = r.pool_bytes / slab_bytes;
  if (slabs < kLeastSlabs || slabs * granules > r.max_handles) return {};
  choice.geometry = {granule_bytes, static_cast<uint32_t>(granules),
                     static_cast<uint32_t>(slabs)};
  for (const Format& format : r.formats) {
    const auto layout = SlabLayout::Create(choice.geometry, format);
    if (!layout.ok()) return {};
    choice.waste = std::max(choice.waste, layout->Waste());
    choice.mean_waste +=
        layout->Waste() / static_cast<double>(r.formats.size());
  }
  const double pool = static_cast<double>(r.pool_bytes);
  choice.remainder = static_cast<double>(r.pool_bytes % slab_bytes) / pool;
  const double engines =
      r.engines != 0 ? r.engines : static_cast<double>(r.formats.size());
  choice.partial = engines * static_cast<double>(slab_bytes) / 2 / pool;
  return choice;
}

// Ignores differences that come from rounding.
bool Less(double a, double b) { return a < b - 1e-12; }

// Keeps, in order of slab size, the choices that waste less than all smaller
// slabs do. Among choices of one size, keeps the one with the fewest handles.
std::vector<GeometryChoice> KeepFrontier(std::vector<GeometryChoice> all) {
  std::sort(all.begin(), all.end(),
            [](const GeometryChoice& a, const GeometryChoice& b) {
              const uint64_t x = a.geometry.slab_bytes();
              const uint64_t y = b.geometry.slab_bytes();
              if (x != y) return x < y;
              if (Less(a.waste, b.waste) || Less(b.waste, a.waste)) {
                return a.waste < b.waste;
              }
              return a.geometry.granule_count() < b.geometry.granule_count();
            });
  std::vector<GeometryChoice> kept;
  for (const GeometryChoice& choice : all) {
    if (kept.empty() || Less(choice.waste, kept.back().waste)) {
      kept.push_back(choice);
    }
  }
  return kept;
}

absl::Status Check(const SearchRequest& r) {
  if (r.granularity == 0 || r.max_handles == 0 || r.formats.empty()) {
    return absl::InvalidArgumentError(
        "a geometry needs a granularity, handles and at least one format");
  }
  for (const Format& f : r.formats) {
    if (f.planes == 0 || f.page_bytes == 0 || f.block_tokens == 0) {
      return absl::InvalidArgumentError(
          "a format needs at least one plane, page byte and token");
    }
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t ExactGranules(const std::vector<Format>& formats) {
  uint64_t lcm = 1;
  for (const Format& f : formats) {
    if (f.planes == 0) return 0;
    const uint64_t common = std::gcd(lcm, uint64_t{f.planes});  // at least 1
    // NOLINTNEXTLINE(clang-analyzer-core.DivideZero)
    const uint64_t factor = f.planes / common;
    if (__builtin_mul_overflow(lcm, factor, &lcm)) return 0;
  }
  return lcm;
}

absl::StatusOr<std::vector<GeometryChoice>> GeometryFrontier(
    const SearchRequest& r) {
  if (absl::Status status = Check(r); !status.ok()) return status;
  uint64_t planes = 1;
  for (const Format& f : r.formats) {
    planes = std::max<uint64_t>(planes, f.planes);
  }
  const uint64_t most_slab = r.pool_bytes / kLeastSlabs;
  const uint64_t exact = ExactGranules(r.formats);
  // Smaller granules would exceed the handle limit with any slab size.
  const uint64_t least_granule =
      std::max(r.granularity, r.pool_bytes / (2 * uint64_t{r.max_handles}) /
                                  r.granularity * r.granularity);
  std::vector<GeometryChoice> all;
  for (uint64_t granule = least_granule; granule * planes <= most_slab;
       granule += r.granularity) {
    // Beyond the exact number of granules, the pattern of tails repeats.
    uint64_t most = most_slab / granule;
    if (exact != 0) most = std::min(most, exact);
    for (uint64_t granules = planes; granules <= most; ++granules) {
      if (const auto choice = Judge(r, granule, granules)) {
        all.push_back(*choice);
      }
    }
  }
  if (all.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no cut of ", abi::SizeText(r.pool_bytes), " gives ", kLeastSlabs,
        " slabs with a block of every format in at most ", r.max_handles,
        " handles; the smallest slab is ", planes, " planes × ",
        abi::SizeText(r.granularity), ": enlarge the pool"));
  }
  return KeepFrontier(std::move(all));
}

const GeometryChoice& Cheapest(const std::vector<GeometryChoice>& frontier) {
  return *std::min_element(
      frontier.begin(), frontier.end(),
      [](const auto& a, const auto& b) { return Less(a.cost(), b.cost()); });
}

}  // namespace fineserve::slab
