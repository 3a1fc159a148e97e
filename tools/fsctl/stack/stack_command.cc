#include "tools/fsctl/stack/stack_command.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tools/fsctl/daemons/find_engine.h"
#include "tools/fsctl/processes/inspected_process.h"
#include "tools/fsctl/stack/process_stacks.h"
#include "tools/fsctl/terminal/commands.h"
#include "tools/fsctl/terminal/exit_code.h"
#include "tools/fsctl/terminal/json_text.h"
#include "tools/fsctl/terminal/quantities.h"
#include "tools/fsctl/terminal/text_table.h"

namespace fineserve::fsctl {
namespace {

using Json = nlohmann::ordered_json;
// Threads that are at the same place.
using Group = std::vector<const ThreadStack*>;

struct StackOptions {
  std::string engine;  // a name or a process id
};

bool IsSame(const ThreadStack& a, const ThreadStack& b) {
  if (a.frames.empty() || a.frames.size() != b.frames.size()) return false;
  if (a.thread.state != b.thread.state || a.python != b.python) return false;
  for (size_t i = 0; i < a.frames.size(); ++i) {
    if (a.frames[i].address != b.frames[i].address) return false;
  }
  return true;
}

std::vector<Group> GroupsOf(const ProcessStacks& process) {
  std::vector<Group> groups;
  for (const ThreadStack& t : process.threads) {
    Group* same = nullptr;
    for (Group& group : groups) {
      if (IsSame(*group.front(), t)) same = &group;
    }
    if (same == nullptr) same = &groups.emplace_back();
    same->push_back(&t);
  }
  return groups;
}

Line Heading(const Group& group) {
  const ThreadStack& first = *group.front();
  std::string more;
  if (group.size() > 1) {
    more =
        absl::StrCat("; the same: ",
                     absl::StrJoin(group.begin() + 1, group.end(), ", ",
                                   [](std::string* out, const ThreadStack* t) {
                                     absl::StrAppend(out, t->thread.tid);
                                   }));
  }
  return {{Sentence(first), Color::kBold},
          {absl::StrCat(" (", first.thread.name, ")", more), Color::kDim}};
}

Line FrameLine(const Frame& frame) {
  const AddressMap::Place& at = frame.place;
  if (at.module.empty()) return {"    " + Hex(frame.address)};
  const std::string module = absl::StrCat(at.module, "+", Hex(at.offset));
  if (at.function.empty()) return {"    " + module};
  return {"    " + at.function, {absl::StrCat("  ", module), Color::kDim}};
}

Line PythonFrameLine(const PythonFrame& frame) {
  return {"    Python: " + frame.function,
          {absl::StrCat("  ", frame.file, ":", frame.line), Color::kDim}};
}

Line Warning(const std::string& text) {
  return {{absl::StrCat("    ", text), Color::kYellow}};
}

void AddThread(const ThreadStack& stack, std::vector<Line>* lines) {
  if (!stack.thread.trouble.empty()) {
    lines->push_back(Warning("no stack: " + stack.thread.trouble));
  }
  for (const Frame& f : stack.frames) lines->push_back(FrameLine(f));
  for (const PythonFrame& f : stack.python)
    lines->push_back(PythonFrameLine(f));
  if (!stack.python_trouble.empty()) {
    lines->push_back(Warning(stack.python_trouble));
  }
}

Json FrameJson(const Frame& frame) {
  const AddressMap::Place& at = frame.place;
  const auto or_null = [](const std::string& text) {
    return text.empty() ? Json() : Json(text);
  };
  return {{"address", Hex(frame.address)},
          {"function", or_null(at.function)},
          {"module", or_null(at.module)},
          {"offset", at.module.empty() ? Json() : Json(Hex(at.offset))}};
}

Json ThreadJson(const ThreadStack& stack) {
  const ThreadSnapshot& t = stack.thread;
  Json frames = Json::array();
  for (const Frame& frame : stack.frames) frames.push_back(FrameJson(frame));
  Json python = Json::array();
  for (const PythonFrame& f : stack.python) {
    python.push_back({{"function", f.function},
                      {"file", f.file},
                      {"line", f.line == 0 ? Json() : Json(f.line)}});
  }
  const std::string telling = TellingFunction(stack);
  return {{"tid", t.tid},
          {"name", t.name},
          {"state", std::string(1, t.state)},
          {"in", telling.empty() ? Json() : Json(telling)},
          {"kernel_wait", t.kernel_wait.empty() ? Json() : Json(t.kernel_wait)},
          {"idle_s", t.idle_s < 0 ? Json() : Json(t.idle_s)},
          {"stopped_ms", 1000 * t.stopped_s},
          {"trouble", t.trouble.empty() ? Json() : Json(t.trouble)},
          {"frames", frames},
          {"python", python},
          {"python_trouble",
           stack.python_trouble.empty() ? Json() : Json(stack.python_trouble)}};
}

}  // namespace

std::string StacksText(const std::vector<ProcessStacks>& processes,
                       bool color) {
  std::vector<Line> lines;
  for (const ProcessStacks& process : processes) {
    if (!lines.empty()) lines.push_back({});
    lines.push_back({absl::StrFormat(
        "pid %d: %d thread%s, each stopped for at most %.1f ms", process.pid,
        process.threads.size(), process.threads.size() == 1 ? "" : "s",
        1000 * process.LongestStop())});
    if (!process.python_trouble.empty()) {
      lines.push_back(Warning(process.python_trouble));
    }
    for (const Group& group : GroupsOf(process)) {
      lines.push_back({});
      lines.push_back(Heading(group));
      AddThread(*group.front(), &lines);
    }
  }
  return Render(lines, color);
}

std::string StacksJson(const std::vector<ProcessStacks>& processes) {
  Json all = Json::array();
  for (const ProcessStacks& process : processes) {
    Json threads = Json::array();
    for (const ThreadStack& t : process.threads) {
      threads.push_back(ThreadJson(t));
    }
    all.push_back({{"pid", process.pid},
                   {"summary", Summary(process)},
                   {"longest_stop_ms", 1000 * process.LongestStop()},
                   {"python_trouble", process.python_trouble.empty()
                                          ? Json()
                                          : Json(process.python_trouble)},
                   {"threads", threads}});
  }
  return JsonText({{"processes", all}});
}

namespace {

int RunStack(const Globals& globals, const StackOptions& options) {
  const auto pids = ProcessesOf(globals.gpu, options.engine);
  if (!pids.ok()) return FailWithoutProcess(pids.status());
  std::vector<ProcessStacks> processes;
  for (const pid_t pid : *pids) {
    absl::StatusOr<ProcessStacks> stacks = StacksOf(pid);
    if (!stacks.ok()) return Fail(kExitBadAnswer, stacks.status());
    processes.push_back(*std::move(stacks));
  }
  return Print(globals.json ? StacksJson(processes)
                            : StacksText(processes, globals.color));
}

}  // namespace

void AddStack(Commands& c) {
  const auto [command, o] =
      c.Add("stack", "Show where each thread of an engine is",
            "  fsctl stack llama-a\n"
            "  fsctl stack 4711\n"
            "  fsctl stack llama-a --json | jq '.processes[].summary'\n"
            "Native frames, and Python's functions (CPython 3.11 to 3.13), "
            "read from\n"
            "outside: each thread is stopped for the time that a copy takes, "
            "some 0.1 ms.\n",
            RunStack);
  command
      ->add_option("ENGINE", o->engine,
                   "Its name (fsctl engines), or a process id")
      ->required();
}

}  // namespace fineserve::fsctl
