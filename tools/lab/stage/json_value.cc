#include "tools/lab/stage/json_value.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace fineserve::stage {
namespace {

using nlohmann::json;

// Returns a discarded value if there is no such place.
json At(const std::string& document, const std::string& pointer) {
  const json whole = json::parse(document, nullptr, /*allow_exceptions=*/false);
  const json::json_pointer place(pointer);
  if (whole.is_discarded() || !whole.contains(place)) {
    return json(json::value_t::discarded);
  }
  return whole[place];
}

}  // namespace

std::string JsonAt(const std::string& document, const std::string& pointer) {
  const json value = At(document, pointer);
  return value.is_discarded() ? "" : value.dump();
}

std::string JsonText(const std::string& document, const std::string& pointer) {
  const json value = At(document, pointer);
  return value.is_string() ? value.get<std::string>() : "";
}

int JsonInt(const std::string& document, const std::string& pointer) {
  const json value = At(document, pointer);
  EXPECT_TRUE(value.is_number()) << pointer << " of " << document;
  return value.is_number() ? value.get<int>() : -1;
}

bool IsJson(const std::string& document) { return json::accept(document); }

}  // namespace fineserve::stage
