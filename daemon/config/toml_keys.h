#ifndef DAEMON_CONFIG_TOML_KEYS_H_
#define DAEMON_CONFIG_TOML_KEYS_H_

// How our TOML files are read: a table of setters by key, so that an unknown
// key, a wrong type or a bad value is an error that names file and line. For
// this folder's .cc files: toml++ is expensive to compile.

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

// A file is a user's word. toml++ 3.3 asserts some of what malformed input can
// break (a control character where a key begins); without the assertion its
// parser reports the error with its line.
#define TOML_ASSERT(condition) static_cast<void>(0)
#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace fineserve::config {

// Reads the value of one key; errors come without their place.
using Setter = std::function<absl::Status(const toml::node&)>;
using Setters = std::map<std::string, Setter>;

absl::Status WrongType(absl::string_view wanted);

Setter Text(std::string* out);
Setter OneOf(std::string* out, std::vector<std::string> choices);
Setter ByteSize(uint64_t* out);
Setter Flag(bool* out);
Setter Count(uint32_t* out, uint32_t least, uint32_t most);
// A number ≥ 0, with or without a fraction.
Setter Amount(double* out);
// A list whose elements `element` reads; `what` says how to write it.
Setter List(const char* what, Setter element);
Setter Texts(std::vector<std::string>* out);
// A table: [name] or { … }.
Setter Section(const std::string& path, Setters setters);
// [[name]]: `element` reads each; its errors have their place.
Setter Sections(const std::string& name, Setter element);

// InvalidArgument "PATH:LINE: what".
absl::Status At(const std::string& path, const toml::source_region& source,
                absl::string_view what);

// Reads a file. NotFound if it cannot be read; otherwise as At.
absl::Status ReadToml(const std::string& path, const Setters& setters);

}  // namespace fineserve::config

#endif  // DAEMON_CONFIG_TOML_KEYS_H_
