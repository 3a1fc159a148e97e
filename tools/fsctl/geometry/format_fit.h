#ifndef TOOLS_FSCTL_GEOMETRY_FORMAT_FIT_H_
#define TOOLS_FSCTL_GEOMETRY_FORMAT_FIT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/pool/geometry/format.h"
#include "daemon/pool/geometry/geometry_search.h"

namespace fineserve::fsctl {

struct NamedFormat {
  std::string name;  // that the user gave; else the whole specification
  slab::Format format;
};

// Reads "[NAME:]planes=32,page=64KiB,tokens=16". For anything else, returns
// InvalidArgument, in one line that names the key.
absl::StatusOr<NamedFormat> ParseFormat(const std::string& text);

// Reads "[NAME:]layers=32,kv-heads=8,head-dim=128,precision=fp8[,tp=2]
// [,quant-bytes=1024][,tokens=16][,layout=layers|split|packed]"; precision is
// fp32, fp16, bf16, fp8, int8, fp4 or int4.
absl::StatusOr<NamedFormat> ParseModel(const std::string& text);

// Output of `fsctl geometry`. `frontier` is not empty.
std::string FrontierText(const slab::SearchRequest& request,
                         const std::vector<NamedFormat>& formats,
                         const std::vector<slab::GeometryChoice>& frontier,
                         bool all, bool color);
std::string FrontierJson(const slab::SearchRequest& request,
                         const std::vector<NamedFormat>& formats,
                         const std::vector<slab::GeometryChoice>& frontier);

// Shows how well the formats fit one cut, and adds the number of formats that
// do not fit to `refused`.
std::string FitText(const slab::PoolGeometry& pool,
                    const std::vector<NamedFormat>& formats, bool color,
                    int* refused);
std::string FitJson(const slab::PoolGeometry& pool,
                    const std::vector<NamedFormat>& formats, int* refused);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_GEOMETRY_FORMAT_FIT_H_
