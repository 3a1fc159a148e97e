#ifndef TOOLS_FSCTL_GEOMETRY_GEOMETRY_OUTPUT_H_
#define TOOLS_FSCTL_GEOMETRY_GEOMETRY_OUTPUT_H_

#include <string>
#include <vector>

#include "daemon/pool/geometry_search.h"
#include "tools/fsctl/geometry/geometry_spec.h"

namespace fineserve::fsctl {

// Output of `fsctl geometry`. `frontier` is not empty.
std::string FrontierText(const slab::SearchRequest& request,
                         const std::vector<NamedFormat>& formats,
                         const std::vector<slab::GeometryChoice>& frontier,
                         bool all, bool color);
std::string FrontierJson(const slab::SearchRequest& request,
                         const std::vector<NamedFormat>& formats,
                         const std::vector<slab::GeometryChoice>& frontier);

// Shows how well formats fit one cut; adds those that do not fit to `refused`.
std::string FitText(const slab::PoolGeometry& pool,
                    const std::vector<NamedFormat>& formats, bool color,
                    int* refused);
std::string FitJson(const slab::PoolGeometry& pool,
                    const std::vector<NamedFormat>& formats, int* refused);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_GEOMETRY_GEOMETRY_OUTPUT_H_
