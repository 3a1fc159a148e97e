#ifndef TOOLS_FSCTL_GEOMETRY_GEOMETRY_SPEC_H_
#define TOOLS_FSCTL_GEOMETRY_GEOMETRY_SPEC_H_

#include <string>

#include "absl/status/statusor.h"
#include "daemon/pool/format.h"

namespace fineserve::fsctl {

struct NamedFormat {
  std::string name;  // that the user gave; else the whole specification
  slab::Format format;
};

// "[NAME:]planes=32,page=64KiB,tokens=16". Anything else is InvalidArgument, in
// one line that names the key.
absl::StatusOr<NamedFormat> ParseFormat(const std::string& text);

// "[NAME:]layers=32,kv-heads=8,head-dim=128,precision=fp8[,tp=2]
// [,quant-bytes=1024][,tokens=16][,layout=layers|split|packed]"; precision is
// fp32, fp16, bf16, fp8, int8, fp4 or int4.
absl::StatusOr<NamedFormat> ParseModel(const std::string& text);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_GEOMETRY_GEOMETRY_SPEC_H_
