#include "daemon/fleet/config/toml_keys.h"

#include <errno.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/optional.h"
#include "daemon/base/errno_status.h"
#include "daemon/contract/abi/byte_size.h"
#include "daemon/fleet/config/size_text.h"

namespace fineserve::config {
namespace {

// Returns the file's text; null, with errno, if it cannot be read.
absl::optional<std::string> ReadAll(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::nullopt;
  std::string text;
  char chunk[4096];
  while (file.read(chunk, sizeof(chunk)) || file.gcount() > 0) {
    text.append(chunk, static_cast<size_t>(file.gcount()));
  }
  if (file.bad()) return absl::nullopt;  // it may be a folder
  return text;
}

absl::Status Apply(const std::string& path, const toml::table& table,
                   const Setters& setters) {
  for (const auto& [key, node] : table) {
    const std::string name(key.str());
    const auto setter = setters.find(name);
    if (setter == setters.end()) {
      std::vector<std::string> known;
      for (const auto& [k, unused] : setters) known.push_back(k);
      return At(path, key.source(),
                absl::StrCat("unknown key \"", name,
                             "\"; known here: ", absl::StrJoin(known, ", ")));
    }
    absl::Status s = setter->second(node);
    // An error from a nested section already names file and line.
    if (!s.ok() && absl::StrContains(s.message(), path)) return s;
    if (!s.ok()) {
      return At(path, node.source(), absl::StrCat(name, ": ", s.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WrongType(absl::string_view wanted) {
  return absl::InvalidArgumentError(absl::StrCat("must be ", wanted));
}

Setter Text(std::string* out) {
  return [out](const toml::node& node) {
    const auto value = node.value<std::string>();
    if (!value.has_value() || !node.is_string()) {
      return WrongType("a string in quotes");
    }
    *out = *value;
    return absl::OkStatus();
  };
}

Setter OneOf(std::string* out, std::vector<std::string> choices) {
  return [out, choices = std::move(choices)](const toml::node& node) {
    const auto value = node.value<std::string>();
    if (!node.is_string() ||
        std::find(choices.begin(), choices.end(), *value) == choices.end()) {
      return WrongType(absl::StrCat("one of ", absl::StrJoin(choices, ", ")));
    }
    *out = *value;
    return absl::OkStatus();
  };
}

Setter ByteSize(uint64_t* out) {
  return [out](const toml::node& node) {
    const auto value = node.value<std::string>();
    if (!node.is_string() || !value.has_value()) {
      return WrongType("a size in quotes, like \"16GiB\"");
    }
    return SetByteSize(*value, out);
  };
}

Setter Flag(bool* out) {
  return [out](const toml::node& node) {
    const auto value = node.value<bool>();
    if (!node.is_boolean()) return WrongType("true or false");
    *out = *value;
    return absl::OkStatus();
  };
}

Setter Count(uint32_t* out, uint32_t least, uint32_t most) {
  return [=](const toml::node& node) {
    const auto value = node.value<int64_t>();
    if (!node.is_integer() || *value < least || *value > most) {
      return WrongType(absl::StrCat("a number from ", least, " to ", most));
    }
    *out = static_cast<uint32_t>(*value);
    return absl::OkStatus();
  };
}

Setter Amount(double* out) {
  return [out](const toml::node& node) {
    const auto value = node.value<double>();
    if (!value.has_value() || !node.is_number() || !std::isfinite(*value) ||
        *value < 0) {
      return WrongType("a number, not negative");
    }
    *out = *value;
    return absl::OkStatus();
  };
}

Setter AmountIn(double* out, double least, double most) {
  return [=](const toml::node& node) {
    double value = 0;
    if (!Amount(&value)(node).ok() || value < least || value > most) {
      return WrongType(absl::StrCat("a number from ", least, " to ", most));
    }
    *out = value;
    return absl::OkStatus();
  };
}

Setter List(const char* what, Setter element) {
  return [what, element = std::move(element)](const toml::node& node) {
    const toml::array* array = node.as_array();
    if (array == nullptr) return WrongType(what);
    for (const toml::node& one : *array) {
      absl::Status s = element(one);
      if (!s.ok()) return s;
    }
    return absl::OkStatus();
  };
}

Setter Texts(std::vector<std::string>* out) {
  return List("a list of strings, like [\"a::b\"]",
              [out](const toml::node& node) {
                out->emplace_back();
                return Text(&out->back())(node);
              });
}

Setter Variables(std::map<std::string, std::string>* out) {
  return [out](const toml::node& node) {
    const absl::Status wrong =
        WrongType("a table of variables, like { HF_HUB_OFFLINE = \"1\" }");
    const toml::table* table = node.as_table();
    if (table == nullptr) return wrong;
    for (const auto& [key, value] : *table) {
      const std::string name(key.str());
      const bool is_name = !name.empty() && name.find('=') == std::string::npos;
      std::string text;
      if (!is_name || !Text(&text)(value).ok()) return wrong;
      (*out)[name] = std::move(text);
    }
    return absl::OkStatus();
  };
}

absl::Status CheckShare(uint64_t floor_bytes, uint64_t cap_bytes) {
  if (cap_bytes == 0 || cap_bytes >= floor_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cap ", abi::SizeText(cap_bytes), " is less than floor ",
                   abi::SizeText(floor_bytes)));
}

absl::Status At(const std::string& path, const toml::source_region& source,
                absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(path, ":", source.begin.line, ": ", what));
}

Setter Section(const std::string& path, Setters setters) {
  return [path, setters = std::move(setters)](const toml::node& node) {
    const toml::table* table = node.as_table();
    if (table == nullptr) return WrongType("a section");
    return Apply(path, *table, setters);
  };
}

Setter Sections(const std::string& name, Setter element) {
  return [name, element = std::move(element)](const toml::node& node) {
    const std::string written = absl::StrCat("written as [[", name, "]]");
    return List(written.c_str(), element)(node);
  };
}

absl::Status ReadToml(const std::string& path, const Setters& setters) {
  const absl::optional<std::string> text = ReadAll(path);
  if (!text) {
    return base::ErrnoStatus(path + ": cannot be read",
                             absl::StatusCode::kNotFound);
  }
  const toml::parse_result parsed = toml::parse(*text, path);
  if (!parsed) {
    return At(path, parsed.error().source(),
              std::string(parsed.error().description()));
  }
  return Apply(path, parsed.table(), setters);
}

}  // namespace fineserve::config
