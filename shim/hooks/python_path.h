#ifndef SHIM_HOOKS_PYTHON_PATH_H_
#define SHIM_HOOKS_PYTHON_PATH_H_

// An engine of Python finds its plugin beside the preload library: before main
// the folder "vllm" there is put in front of $PYTHONPATH, so that LD_PRELOAD
// alone suffices. Children inherit it, which is harmless: the plugin does
// nothing in a process without the shim.

namespace fineserve::shim {

// Whether a program of this path is a Python interpreter.
bool IsPython(const char* program);

// Whether these arguments of one (argv[0] first, null last) make it ignore
// $PYTHONPATH: -E or -I, also within a cluster such as -sE.
bool IgnoresPythonPath(const char* const* argv);

// $PYTHONPATH with `folder` in front, into `out` of `capacity` bytes. False if
// there is nothing to change or it does not fit.
bool PrependToPath(const char* folder, const char* path, char* out,
                   unsigned long capacity);

}  // namespace fineserve::shim

#endif  // SHIM_HOOKS_PYTHON_PATH_H_
