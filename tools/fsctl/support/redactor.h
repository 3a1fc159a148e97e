#ifndef TOOLS_FSCTL_SUPPORT_REDACTOR_H_
#define TOOLS_FSCTL_SUPPORT_REDACTOR_H_

#include <cstddef>
#include <string>
#include <vector>

namespace fineserve::fsctl {

// Removes from a text everything that must not leave a machine. Pure.
class Redactor {
 public:
  // `secrets` are removed everywhere. So is everything that looks like a key:
  // values of flags and settings called key, token, secret or password, bearer
  // tokens, users in URLs, and words that begin like the keys of known
  // services.
  explicit Redactor(std::vector<std::string> secrets);

  std::string Redacted(const std::string& text) const;

 private:
  std::string RedactedLine(std::string line) const;

  std::vector<std::string> secrets_;
};

// Returns the last lines of a log that cannot contain a client's text. Engines
// may write requests at any level and in any form, so of their lines it keeps
// only warnings, errors and Python tracebacks, and none that mentions a prompt
// or the like. It keeps lines of our own programs and counts the others. Long
// lines are cut.
std::string LogTail(const std::string& log, size_t most_lines);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_SUPPORT_REDACTOR_H_
