#ifndef TOOLS_FSCTL_MODELS_MODELS_OUTPUT_H_
#define TOOLS_FSCTL_MODELS_MODELS_OUTPUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "daemon/contract/abi/old_pool.h"
#include "daemon/contract/wire/message.h"
#include "tools/fsctl/terminal/globals.h"

namespace fineserve::fsctl {

// Output of `fsctl models` and `fsctl requests`. `former` are the orphans of
// the daemon's GPU.
using FormerPools = std::vector<abi::OldPool>;
std::string ModelsText(const wire::ModelsT& models, bool color,
                       const FormerPools& former = {});
std::string ModelsJson(const wire::ModelsT& models,
                       const FormerPools& former = {});
// Texts for an engine that has dropped its own weights. ReadsText: how many
// bytes it reads, from which process and for how long: "chat-a reads 15 GiB of
// weights from pid 4711 for 12 s". AddedText: "adds 1.2 ms to a step", or "" if
// that is not known.
std::string ReadsText(const wire::EngineFiguresT& engine);
std::string AddedText(const wire::EngineFiguresT& engine);

// Prints at most `most` requests that are waiting or running. Returns the exit
// code.
int PrintRequests(const Globals& globals, uint32_t most);
std::string RequestsText(const wire::RequestsT& requests, bool color);
std::string RequestsJson(const wire::RequestsT& requests);

// Merge the answers of several daemons (at least one) into one answer. Pure.

// Adds up the counts and lists the engines one after the other. An engine that
// several daemons name is listed once.
wire::ModelsT Merged(std::vector<wire::ModelsT> answers);
// The most urgent first.
wire::RequestsT Merged(std::vector<wire::RequestsT> answers);
wire::DoneT Merged(std::vector<wire::DoneT> answers);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_MODELS_MODELS_OUTPUT_H_
