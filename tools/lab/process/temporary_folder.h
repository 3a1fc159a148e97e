#ifndef TOOLS_LAB_PROCESS_TEMPORARY_FOLDER_H_
#define TOOLS_LAB_PROCESS_TEMPORARY_FOLDER_H_

#include <string>

namespace fineserve::process {

// A new empty folder, mode 0700, which the destructor removes with all that is
// in it. Exits if the folder cannot be made. Not thread-safe.
class TemporaryFolder {
 public:
  // `parent` should be in a memory file system if many bytes will be written to
  // the folder.
  explicit TemporaryFolder(const std::string& parent = "/tmp");
  TemporaryFolder(TemporaryFolder&& other) noexcept;
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder();

  const std::string& path() const { return path_; }

 private:
  std::string path_;  // empty: moved from
};

}  // namespace fineserve::process

#endif  // TOOLS_LAB_PROCESS_TEMPORARY_FOLDER_H_
