#include "tools/fsctl/stack/process_stacks.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tools/fsctl/processes/inspected_process.h"
#include "tools/fsctl/stack/unwinder.h"
#include "tools/fsctl/terminal/quantities.h"

namespace fineserve::fsctl {
namespace {

// Every wait ends in these libraries, so their functions tell nothing.
constexpr const char* kLibraries[] = {"libc.so",      "libc-",
                                      "libpthread",   "ld-linux",
                                      "libstdc++.so", "libgcc_s.so"};
// Prefixes of the names of CUDA's and NCCL's functions, which a capital letter
// follows.
constexpr const char* kDeviceApis[] = {"cu", "cuda", "nccl"};
// Shorter times are not mentioned.
constexpr double kLongIdle = 1;

bool IsOfLibrary(const std::string& module) {
  return std::any_of(
      std::begin(kLibraries), std::end(kLibraries),
      [&](const char* library) { return absl::StartsWith(module, library); });
}

bool IsOfDevice(const std::string& function) {
  return std::any_of(
      std::begin(kDeviceApis), std::end(kDeviceApis), [&](const char* api) {
        const size_t length = std::char_traits<char>::length(api);
        return absl::StartsWith(function, api) && function.size() > length &&
               isupper(static_cast<unsigned char>(function[length])) != 0;
      });
}

// Without "+0x12".
std::string NameOf(const Frame& frame) {
  const std::string& function = frame.place.function;
  return function.substr(0, function.rfind("+0x"));
}

bool IsInDevice(const ThreadStack& stack) {
  return IsOfDevice(TellingFunction(stack));
}

Frame FrameAt(const AddressMap& map, uint64_t address, bool is_return) {
  // The map expects return addresses, which follow the call.
  return {address, map.PlaceOf(is_return ? address : address + 1)};
}

// Returns the process and all its descendants.
std::vector<pid_t> ProcessTree(pid_t pid) {
  std::vector<pid_t> tree = {pid};
  for (size_t i = 0; i < tree.size(); ++i) {
    for (const pid_t child : ChildrenOf(tree[i])) tree.push_back(child);
  }
  return tree;
}

// " for Python's Engine.step (engine.py:12)"; empty without Python.
std::string InnermostPython(const ThreadStack& stack) {
  if (stack.python.empty()) return "";
  const PythonFrame& frame = stack.python.front();
  return absl::StrCat(" for Python's ", frame.function, " (",
                      frame.file.substr(frame.file.rfind('/') + 1), ":",
                      frame.line, ")");
}

}  // namespace

double ProcessStacks::LongestStop() const {
  double longest = 0;
  for (const ThreadStack& t : threads) {
    longest = std::max(longest, t.thread.stopped_s);
  }
  return longest;
}

absl::StatusOr<ProcessStacks> StacksOf(pid_t pid) {
  const AddressMap map = ReadMap(pid);
  const PythonReader python(pid, map);
  absl::StatusOr<std::vector<ThreadSnapshot>> threads =
      SnapshotThreads(pid, &python);
  if (!threads.ok()) return threads.status();
  Unwinder unwinder(pid, &map);
  ProcessStacks stacks{pid, {}, python.trouble()};
  for (ThreadSnapshot& thread : *threads) {
    ThreadStack stack;
    for (const uint64_t address : unwinder.Frames(thread)) {
      stack.frames.push_back(FrameAt(map, address, !stack.frames.empty()));
    }
    stack.python = python.Name(thread.python, &stack.python_trouble);
    thread.stack.clear();
    stack.thread = std::move(thread);
    stacks.threads.push_back(std::move(stack));
  }
  return stacks;
}

std::string TellingFunction(const ThreadStack& stack) {
  std::string outside;
  for (const Frame& frame : stack.frames) {
    const std::string name = NameOf(frame);
    if (IsOfDevice(name)) return name;
    if (outside.empty() && !IsOfLibrary(frame.place.module)) outside = name;
  }
  return outside.empty() ? stack.thread.kernel_wait : outside;
}

std::string Sentence(const ThreadStack& stack) {
  const ThreadSnapshot& t = stack.thread;
  const std::string who = absl::StrCat("thread ", t.tid);
  if (t.state == 'T') return who + " is stopped by a signal (SIGSTOP)";
  if (t.state == 't') return who + " is stopped by a debugger";
  const std::string where = TellingFunction(stack);
  const std::string ran =
      t.idle_s >= kLongIdle
          ? absl::StrCat(", last ran ",
                         Age(static_cast<uint64_t>(1e9 * t.idle_s) + 1, 1),
                         " ago")
          : "";
  return absl::StrCat(who, t.state == 'R' ? " runs" : " waits",
                      where.empty() ? "" : " in " + where,
                      InnermostPython(stack), ran);
}

std::string Summary(const ProcessStacks& stacks) {
  if (stacks.threads.empty()) return "";
  const auto in_device =
      std::find_if(stacks.threads.begin(), stacks.threads.end(), IsInDevice);
  return Sentence(in_device == stacks.threads.end() ? stacks.threads.front()
                                                    : *in_device);
}

std::string SummaryOfTree(pid_t pid) {
  ProcessStacks all{pid, {}, {}};
  absl::Status trouble;
  for (const pid_t process : ProcessTree(pid)) {
    absl::StatusOr<ProcessStacks> stacks = StacksOf(process);
    trouble.Update(stacks.status());
    if (!stacks.ok()) continue;
    std::move(stacks->threads.begin(), stacks->threads.end(),
              std::back_inserter(all.threads));
  }
  return all.threads.empty() ? std::string(trouble.message()) : Summary(all);
}

}  // namespace fineserve::fsctl
