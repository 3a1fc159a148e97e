#ifndef SHIM_HOOKS_PYTHON_PATH_H_
#define SHIM_HOOKS_PYTHON_PATH_H_

// Lets a Python engine find its plugin: before main, the folders "vllm" and
// "sglang" beside the preload library are put in front of $PYTHONPATH, so that
// LD_PRELOAD alone suffices. Child processes inherit the path, which is
// harmless: a plugin does nothing in a process without the shim.

namespace fineserve::shim {

// True if the program at this path is a Python interpreter.
bool IsPython(const char* program);

// True if an interpreter with these arguments (argv[0] first, null last)
// ignores $PYTHONPATH because of -E or -I, alone or within a cluster such as
// -sE.
bool IgnoresPythonPath(const char* const* argv);

// Writes $PYTHONPATH, preceded by `folder`, to `out`, which has `capacity`
// bytes. False if there is nothing to change or the result does not fit.
bool PrependToPath(const char* folder, const char* path, char* out,
                   unsigned long capacity);

}  // namespace fineserve::shim

#endif  // SHIM_HOOKS_PYTHON_PATH_H_
