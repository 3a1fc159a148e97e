#ifndef TOOLS_FSCTL_SUPPORT_REDACTOR_H_
#define TOOLS_FSCTL_SUPPORT_REDACTOR_H_

#include <cstddef>
#include <string>
#include <vector>

namespace fineserve::fsctl {

// Removes from text the parts that must not leave a machine. Pure.
class Redactor {
 public:
  // `secrets` are removed wherever they are. So is everything that looks like a
  // key: values of flags and settings called key, token, secret or password,
  // bearer tokens, users in URLs, and words that begin like the keys of known
  // services.
  explicit Redactor(std::vector<std::string> secrets);

  std::string Redacted(const std::string& text) const;

 private:
  std::string RedactedLine(std::string line) const;

  std::vector<std::string> secrets_;
};

// The last lines of a log that cannot contain a client's text. Engines may
// write requests at any level and in any form, so of their lines only those of
// warnings, errors and Python tracebacks are kept, and none that mentions a
// prompt or the like. Lines of our own programs are kept. The others are
// counted. Long lines are cut.
std::string LogTail(const std::string& log, size_t most_lines);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_SUPPORT_REDACTOR_H_
