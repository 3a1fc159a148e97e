#ifndef DAEMON_CONFIG_PROFILE_KEY_H_
#define DAEMON_CONFIG_PROFILE_KEY_H_

#include <functional>
#include <string>

#include "daemon/config/profile_file.h"
#include "daemon/config/toml_keys.h"

namespace fineserve::config {

// Receives a profile and the path of its file.
using TakeProfile = std::function<void(const std::string& found,
                                       const MeasuredProfile& profile)>;

// The setter of `key`, in the file at `path`, whose value names a profile file.
// Errors have the line of the file at `path`, then that of the profile file.
Setter ProfileKey(const std::string& path, const std::string& key,
                  TakeProfile take);

}  // namespace fineserve::config

#endif  // DAEMON_CONFIG_PROFILE_KEY_H_
