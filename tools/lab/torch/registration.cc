// Replaces PyTorch's CUDA kernels by the host's kernels when the library is
// loaded.

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <memory>
#include <string_view>

#include "tools/lab/torch/host_kernel.h"
#include "tools/lab/torch/latent_attention.h"
#include "tools/lab/torch/paged_attention.h"

namespace fineserve::host_device {
namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

// Operators that remain with the device: its allocator provides memory, views
// do no work, and a scalar is read by a copy.
constexpr std::string_view kDevices[] = {"empty",
                                         "empty_strided",
                                         "resize_",
                                         "set_",
                                         "zero_",
                                         "_local_scalar_dense",
                                         "record_stream",
                                         "is_pinned",
                                         "_pin_memory",
                                         "is_set_to",
                                         "_efficientzerotensor"};

bool IsDevices(std::string_view name) {
  for (const std::string_view devices : kDevices) {
    if (name == devices) return true;
  }
  return false;
}

// True if a result aliases an argument that the operator does not write.
bool IsView(const c10::FunctionSchema& schema) {
  for (const c10::Argument& result : schema.returns()) {
    const auto* const alias = result.alias_info();
    if (alias != nullptr && !alias->isWrite()) return true;
  }
  return false;
}

bool HasHostKernel(const c10::OperatorHandle& op) {
  for (const c10::DispatchKey key :
       {c10::DispatchKey::CPU, c10::DispatchKey::CompositeExplicitAutograd,
        c10::DispatchKey::CompositeExplicitAutogradNonFunctional}) {
    if (op.hasKernelForDispatchKey(key)) return true;
  }
  return false;
}

// True for a fill of a tensor without gaps, for which the device has a kernel.
bool IsPlainFill(Arguments arguments) {
  return arguments[0].toTensor().is_non_overlapping_and_dense();
}

// True for a copy to or from the host, or one without conversion.
bool IsPlainCopy(Arguments arguments) {
  const at::Tensor& to = arguments[0].toTensor();
  const at::Tensor& from = arguments[1].toTensor();
  if (!to.is_cuda() || !from.is_cuda()) return true;
  return to.dtype() == from.dtype() && to.sizes() == from.sizes() &&
         to.is_contiguous() && from.is_contiguous() &&
         to.is_conj() == from.is_conj() && to.is_neg() == from.is_neg();
}

void RegisterPartly(torch::Library& library, const char* name,
                    const char* overload, HostKernel::IsDevices is_devices) {
  const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
  const std::string full = toString(op.operator_name());
  auto cuda = op.getComputedKernelForDispatchKey(c10::DispatchKey::CUDA);
  library.impl(full.c_str(),
               torch::CppFunction::makeFromBoxedFunctor(
                   std::make_unique<HostKernel>(is_devices, std::move(cuda))));
}

void Register(torch::Library& library) {
  RegisterPartly(library, "aten::copy_", "", IsPlainCopy);
  RegisterPartly(library, "aten::fill_", "Scalar", IsPlainFill);
  for (const c10::OperatorName& name :
       c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || name.getNamespace() != std::string_view("aten")) continue;
    const std::string_view plain =
        std::string_view(name.name).substr(sizeof("aten::") - 1);
    if (plain == "copy_" || toString(name) == "aten::fill_.Scalar" ||
        IsDevices(plain) || IsView(op->schema()) ||
        !op->hasKernelForDispatchKey(c10::DispatchKey::CUDA) ||
        !HasHostKernel(*op)) {
      continue;
    }
    library.impl(toString(name).c_str(),
                 torch::CppFunction::makeFromBoxedFunctor(
                     std::make_unique<HostKernel>()));
  }
}

int64_t Enqueued() { return Counts().enqueued; }

c10::Dict<std::string, int64_t> Waited() {
  c10::Dict<std::string, int64_t> waited;
  for (const auto& [name, count] : Counts().waited) waited.insert(name, count);
  return waited;
}

}  // namespace

TORCH_LIBRARY(host_device, library) {
  library.def(
      "store_kv(Tensor key, Tensor value, Tensor(a!) kv_cache, "
      "Tensor slot_mapping, Tensor k_scale, Tensor v_scale) -> ()");
  library.def(
      "paged_attention(Tensor query, Tensor kv_cache, Tensor block_table, "
      "Tensor seq_lens, Tensor query_start, Tensor k_scale, Tensor v_scale, "
      "float scale, int window, Tensor(a!) out) -> ()");
  library.def(
      "store_latent(Tensor latent, Tensor key, Tensor(a!) kv_cache, "
      "Tensor slot_mapping, Tensor scale) -> ()");
  library.def(
      "gather_latent(Tensor kv_cache, Tensor block_table, Tensor rows, "
      "Tensor starts, Tensor scale, Tensor(a!) out) -> ()");
  library.def(
      "latent_attention(Tensor query, Tensor kv_cache, Tensor block_table, "
      "Tensor seq_lens, Tensor scale, float softmax_scale, Tensor(a!) out) "
      "-> ()");
  library.def(
      "ragged_attention(Tensor query, Tensor keys, Tensor values, "
      "Tensor query_rows, Tensor key_rows, float softmax_scale, bool causal, "
      "Tensor(a!) out, Tensor(b!) log_sums) -> ()");
  library.def("enqueued() -> int", &Enqueued);
  library.def("waited() -> Dict(str, int)", &Waited);
}

TORCH_LIBRARY_IMPL(host_device, CPU, library) {
  library.impl("store_kv", &StoreKv);
  library.impl("paged_attention", &PagedAttention);
  library.impl("store_latent", &StoreLatent);
  library.impl("gather_latent", &GatherLatent);
  library.impl("latent_attention", &LatentAttention);
  library.impl("ragged_attention", &RaggedAttention);
}

TORCH_LIBRARY_IMPL(host_device, CUDA, library) {
  for (const char* const name :
       {"store_kv", "paged_attention", "store_latent", "gather_latent",
        "latent_attention", "ragged_attention"}) {
    library.impl(name, torch::CppFunction::makeFromBoxedFunctor(
                           std::make_unique<HostKernel>()));
  }
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) { Register(library); }

}  // namespace fineserve::host_device
