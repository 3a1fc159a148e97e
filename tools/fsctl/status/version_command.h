#ifndef TOOLS_FSCTL_STATUS_VERSION_COMMAND_H_
#define TOOLS_FSCTL_STATUS_VERSION_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

namespace fineserve::fsctl {

// A process of FineServe, or of an engine that has loaded the shim.
struct VersionedPart {
  std::string name;     // "fineserve-proxy", "engine chat"
  int64_t pid = 0;      // 0: fsctl itself
  std::string version;  // empty: it does not say
  std::string note = {};
  bool is_former = false;  // of another release than what is installed
};

// Marks the parts whose release differs from that of the first one, fsctl.
void MarkFormer(std::vector<VersionedPart>* parts);
std::string VersionsText(const std::vector<VersionedPart>& parts, bool color);
std::string VersionsJson(const std::vector<VersionedPart>& parts);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_STATUS_VERSION_COMMAND_H_
