#ifndef TOOLS_FSCTL_ADMISSION_MERGED_ANSWERS_H_
#define TOOLS_FSCTL_ADMISSION_MERGED_ANSWERS_H_

#include <vector>

#include "daemon/contract/wire/message.h"

namespace fineserve::fsctl {

// Merges the answers of several daemons, at least one, into a single one. Pure.

// Counts are added up, engines are listed one after the other. An engine that
// several daemons name is listed once.
wire::ModelsT Merged(std::vector<wire::ModelsT> answers);
// The most urgent first.
wire::RequestsT Merged(std::vector<wire::RequestsT> answers);
wire::DoneT Merged(std::vector<wire::DoneT> answers);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_ADMISSION_MERGED_ANSWERS_H_
