#ifndef TOOLS_FSCTL_SUPPORT_REDACTOR_H_
#define TOOLS_FSCTL_SUPPORT_REDACTOR_H_

#include <cstddef>
#include <string>
#include <vector>

namespace fineserve::fsctl {

// Takes out of text what must not leave a machine. Pure.
class Redactor {
 public:
  // `secrets` are taken out wherever they are, besides what looks like a key:
  // values of flags and settings called key, token, secret or password, bearer
  // tokens, users in URLs, and words that begin as the keys of known services.
  explicit Redactor(std::vector<std::string> secrets);

  std::string Redacted(const std::string& text) const;

 private:
  std::string RedactedLine(std::string line) const;

  std::vector<std::string> secrets_;
};

// The last lines of a log that can hold no client's text. Engines may write
// requests at any level and in any form, so of theirs only what a warning, an
// error or a Python traceback is made of is kept, and none that speaks of a
// prompt or the like; lines of our own programs are. The rest is counted. Long
// lines are cut.
std::string LogTail(const std::string& log, size_t most_lines);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_SUPPORT_REDACTOR_H_
