#ifndef TOOLS_FSCTL_STACK_PYTHON_FRAMES_H_
#define TOOLS_FSCTL_STACK_PYTHON_FRAMES_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/fsctl/processes/address_map.h"

namespace fineserve::fsctl {

// A Python function that has been called and has not returned.
struct PythonFrame {
  std::string function;  // qualified: "Engine.step"
  std::string file;
  uint32_t line = 0;  // 0: unknown
  bool operator==(const PythonFrame&) const = default;
};

// The same function as addresses in the process: its code object, and the
// current instruction.
struct PythonCall {
  uint64_t code = 0;
  uint64_t instruction = 0;
};

struct PythonCalls {
  std::vector<PythonCall> calls;  // innermost first
  std::string trouble;            // why outer ones are missing; empty: none is
};

// The path that leads to a thread's frames in CPython: offsets in bytes from
// the beginning of each structure.
struct PythonLayout {
  uint64_t interpreters_head, interpreter_next, threads_head;
  uint64_t thread_next, thread_id, thread_frame;
  // True if thread_frame points to a structure that has the frame at
  // `frame_behind`; otherwise it points to the frame.
  bool is_frame_behind;
  uint64_t frame_behind;
  uint64_t frame_previous, frame_code, frame_instruction, frame_owner;
  uint64_t code_file, code_name, code_lines, code_first_line, code_begin;
  uint64_t type, bytes_size, bytes_data;
  uint64_t text_length, text_state, text_ascii, text_wide;
};

// Reads the Python frames of another process's threads, for CPython 3.11 to
// 3.13. Trusts nothing in that process's memory: it bounds chains, checks
// lengths and makes names printable. Confined to one thread.
class PythonReader {
 public:
  static constexpr size_t kMostFrames = 256;

  // Finds the interpreter and its threads.
  PythonReader(pid_t pid, const AddressMap& map);

  // Says why a Python process shows no frames; empty if it does, or if the
  // process runs no Python.
  const std::string& trouble() const { return trouble_; }

  // Returns the calls of a thread that does not run now; none if it runs no
  // Python. `thread_pointer` is the thread's pthread_self.
  PythonCalls CallsOf(uint64_t thread_pointer) const;

  // Returns the names and lines of the calls. Stops at the first call whose
  // code object no longer is one, and says so in `trouble`.
  std::vector<PythonFrame> Name(const PythonCalls& calls,
                                std::string* trouble) const;

 private:
  template <typename T>
  bool Read(uint64_t address, T* value) const;
  std::string ReadBytes(uint64_t address, uint64_t bytes) const;
  std::string Text(uint64_t object) const;
  bool ChooseLayout(uint64_t version, uint64_t runtime);
  void FindThreads(uint64_t runtime);

  const pid_t pid_;
  PythonLayout layout_ = {};
  uint64_t code_type_ = 0;
  std::map<uint64_t, uint64_t> threads_;  // their states, by thread pointer
  std::string trouble_;
};

// Returns the line of an instruction, given in code units after the first, by a
// code object's location table (CPython's Objects/locations.md); 0 if it has
// none.
uint32_t PythonLine(const std::string& table, uint32_t first_line,
                    int64_t units);

}  // namespace fineserve::fsctl

#endif  // TOOLS_FSCTL_STACK_PYTHON_FRAMES_H_
