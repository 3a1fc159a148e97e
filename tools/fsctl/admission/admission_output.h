#ifndef TOOLS_FSCTL_ADMISSION_ADMISSION_OUTPUT_H_
#define TOOLS_FSCTL_ADMISSION_ADMISSION_OUTPUT_H_

#include <string>

#include "daemon/wire/message.h"

namespace fineserve::fsctl {

// What `fsctl models` and `fsctl requests` print.
std::string ModelsText(const wire::ModelsT& models, bool color);
std::string ModelsJson(const wire::ModelsT& models);
std::string RequestsText(const wire::RequestsT& requests, bool color);
std::string RequestsJson(const wire::RequestsT& requests);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_ADMISSION_ADMISSION_OUTPUT_H_
