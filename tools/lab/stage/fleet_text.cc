#include "tools/lab/stage/fleet_text.h"

#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/str_join.h"

namespace fineserve::stage {
namespace {

TomlKeys With(TomlKeys keys, const TomlKeys& more) {
  keys.insert(keys.end(), more.begin(), more.end());
  return keys;
}

std::string Lines(const TomlKeys& keys, const char* separator) {
  return absl::StrJoin(keys, separator, [](std::string* out, const auto& key) {
    absl::StrAppend(out, key.first, " = ", key.second.text());
  });
}

template <typename Element>
std::string ListOf(const std::vector<Element>& elements) {
  const auto append = [](std::string* out, const Element& element) {
    out->append(TomlValue(element).text());
  };
  return absl::StrCat("[", absl::StrJoin(elements, ", ", append), "]");
}

std::string Local(uint16_t port) { return absl::StrCat("127.0.0.1:", port); }

}  // namespace

TomlValue::TomlValue(const std::vector<std::string>& texts)
    : text_(ListOf(texts)) {}

TomlValue::TomlValue(const std::vector<std::vector<std::string>>& lists)
    : text_(ListOf(lists)) {}

TomlValue TomlValue::InlineTable(const TomlKeys& keys) {
  TomlValue table(0);
  table.text_ = absl::StrCat("{ ", Lines(keys, ", "), " }");
  return table;
}

TomlValue TomlValue::Profile(double base_us, double per_token_us,
                             double per_sequence_us) {
  return InlineTable({{"base_us", base_us},
                      {"per_token_us", per_token_us},
                      {"per_sequence_us", per_sequence_us}});
}

FleetText& FleetText::Table(const std::string& header, const TomlKeys& keys) {
  absl::StrAppend(&text_, header, "\n", Lines(keys, "\n"), "\n");
  return *this;
}

FleetText& FleetText::Proxy(const TomlKeys& keys, uint16_t port) {
  return Table("[proxy]",
               With({{"listen", Local(port)}, {"admin", Local(0)}}, keys));
}

FleetText& FleetText::Model(const std::string& name, const TomlKeys& keys) {
  return Table("[[model]]", With({{"name", name}}, keys));
}

FleetText& FleetText::Engine(const std::string& name, const std::string& model,
                             uint16_t port, const TomlKeys& keys) {
  return Table(
      "[[engine]]",
      With({{"name", name}, {"model", model}, {"url", "http://" + Local(port)}},
           keys));
}

FleetText& FleetText::Append(const std::string& text) {
  text_ += text;
  return *this;
}

void FleetText::WriteTo(const std::string& path) const {
  std::ofstream file(path);
  EXPECT_TRUE((file << text_).flush()) << "cannot write " << path;
}

}  // namespace fineserve::stage
