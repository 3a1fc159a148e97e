#ifndef TOOLS_FSCTL_PROFILE_PROFILE_COMMAND_H_
#define TOOLS_FSCTL_PROFILE_PROFILE_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

struct ProfileOptions {
  std::string url;
  std::string model;  // empty: the only one
  std::vector<uint32_t> batches = {1, 2, 4, 8, 16, 32};
  std::vector<uint32_t> prompts = {64, 256, 1024};
  uint32_t chunk_tokens = 0;  // 0: what fits best
  double budget_s = 300;
  std::string output_path;  // empty: no file
  std::string api_key_path;
  bool chat = false;
  bool even_if_busy = false;
  // For the file, since no measurement over HTTP finds them; absent if 0.
  std::string architecture, quantisation;
  uint32_t tp = 1;
  std::string weights, activations;  // sizes as the user wrote them
  uint32_t kv_token_bytes = 0;
};

// `fsctl profile URL`: measures an engine, prints its points and the fit, and
// writes the profile file. Exit codes: 0; 1 if the engine could not be
// measured, which standard error explains in a line; 2 for wrong usage.
int RunProfile(const Globals& globals, const ProfileOptions& options);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_PROFILE_PROFILE_COMMAND_H_
