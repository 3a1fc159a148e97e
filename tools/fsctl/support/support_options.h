#ifndef TOOLS_FSCTL_SUPPORT_SUPPORT_OPTIONS_H_
#define TOOLS_FSCTL_SUPPORT_SUPPORT_OPTIONS_H_

#include <string>

namespace fineserve::fsctl {

struct SupportOptions {
  std::string fleet_path;  // empty: those of fsctl up in the runtime folder
  std::string
      config_path;         // fineserved's; empty: the usual one, if it is there
  std::string log_folder;  // of fsctl up, beside the runtime folder; or empty
  std::string output;      // empty: fineserve-support-TIME.tar.gz
};

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_SUPPORT_SUPPORT_OPTIONS_H_
