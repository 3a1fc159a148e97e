#include "tools/fsctl/terminal/json_text.h"

#include <nlohmann/json.hpp>

namespace fineserve::fsctl {

std::string JsonText(const nlohmann::ordered_json& json) {
  return json.dump(2) + "\n";
}

std::string JsonLine(const nlohmann::ordered_json& json) {
  return json.dump() + "\n";
}

}  // namespace fineserve::fsctl
