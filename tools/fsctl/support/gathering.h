#ifndef TOOLS_FSCTL_SUPPORT_GATHERING_H_
#define TOOLS_FSCTL_SUPPORT_GATHERING_H_

#include <map>
#include <string>
#include <vector>

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

struct SupportOptions {
  std::string fleet_path;  // empty: those of fsctl up in the runtime folder
  std::string
      config_path;         // fineserved's; empty: the usual one, if it is there
  std::string log_folder;  // of fsctl up, beside the runtime folder; or empty
  std::string output;      // empty: fineserve-support-TIME.tar.gz
};

// Content of the archive before redaction.
struct Gathered {
  std::map<std::string, std::string> files;  // by path in the archive
  std::vector<std::string> secrets;          // that must not be in them
};

// Gathers from the daemons, this machine and its files. `scratch` is a private
// folder.
Gathered Gather(const Globals& globals, const SupportOptions& options,
                const std::string& scratch);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_SUPPORT_GATHERING_H_
