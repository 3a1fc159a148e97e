#ifndef TOOLS_FSCTL_FOLLOW_FOLLOW_COMMANDS_H_
#define TOOLS_FSCTL_FOLLOW_FOLLOW_COMMANDS_H_

#include <string>

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// The admin port of the fineserve-proxy that is asked if none runs under this
// user.
inline constexpr char kProxyAdmin[] = "127.0.0.1:8001";

struct FollowOptions {
  bool follow = false;
  std::string model;  // empty: all
  std::string admin;  // empty: of the proxy that runs here
};
// `fsctl requests --follow`: prints each request as it ends, until the proxy
// does. Returns the exit code.
int RunFollow(const Globals& globals, const FollowOptions& options);

struct TraceOptions {
  std::string id;     // or how it begins
  std::string admin;  // empty: of the proxies that run here
};
// `fsctl trace`: prints the life of one request.
int RunTrace(const Globals& globals, const TraceOptions& options);

// `fsctl usage`: prints what each named key has spent. `admin`: of the proxy
// that is asked; empty: the one that runs here.
int RunUsage(const Globals& globals, const std::string& admin);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_FOLLOW_FOLLOW_COMMANDS_H_
