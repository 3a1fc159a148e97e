#ifndef DAEMON_PROXY_ADMISSION_SERVED_MODELS_H_
#define DAEMON_PROXY_ADMISSION_SERVED_MODELS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace fineserve::proxy {

// Says what is wrong with an engine whose GET /v1/models has this body, though
// the fleet says that it serves `model`. Empty if the model is listed, or if
// the body is no list of models, which says nothing.
std::string TroubleOfModels(absl::string_view body, const std::string& model);

}  // namespace fineserve::proxy

#endif  // DAEMON_PROXY_ADMISSION_SERVED_MODELS_H_
