// SPDX-License-Identifier: Apache-2.0
// Puts the kernels into PyTorch's table: takes the calls that an operator's attempt takes, counts them, and hands every
// other call on.
#include "pytorch/bridge.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

#include "pytorch/operators.h"
#include "pytorch/shim.h"
#include "pytorch/steps.h"
#include "pytorch/tensor.h"

// PyTorch's own class of exceptions that become a Python exception of any type. Exceptions are caught by their class's
// name, so this declaration is enough, as long as the two virtual functions are these. Where that has changed, what is
// raised is a RuntimeError with the same text.
namespace torch {
struct PyTorchError : std::exception {
  virtual void* python_type() = 0;
};
}  // namespace torch

namespace baracuda::pytorch {
namespace {

constexpr int32_t kMostOperators = 32;

// What belongs to one operator.
struct Entry {
  FunctionTable functions;
  std::atomic<bool> is_held[kDevices];
  std::atomic<int64_t> calls[kDevices];
  // Written once, before the kernel is entered.
  std::string fallback;
};

Entry entries[kMostOperators];

class PythonException : public torch::PyTorchError {
 public:
  PythonException(void* type, std::string text) : type_(type), text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  void* python_type() override { return type_; }

 private:
  void* type_;
  std::string text_;
};

// What the fallback that this thread has called wants to be raised.
struct Raised {
  bool is_set = false;
  void* type = nullptr;
  std::string text;
};
thread_local Raised raised;

// The device of an operator's first tensor, which is its first argument.
int32_t device_of(Argument argument) {
  int32_t type = 0;
  if (shim.aoti_torch_get_device_type(pointer_of(argument), &type) != 0) return kOther;
  return type == shim.aoti_torch_device_type_cpu() ? kCpu : kCuda;
}

// A kernel owns its arguments: they end here.
void take(const char* kinds, Argument* arguments) {
  for (int i = 0; kinds[i] != '\0'; ++i) {
    if (kinds[i] == 'T' && arguments[i] != 0) shim.aoti_torch_delete_tensor_object(pointer_of(arguments[i]));
    if (kinds[i] == 'L') shim.torch_delete_list(pointer_of(arguments[i]));
    if (kinds[i] == 'S') shim.torch_delete_string(pointer_of(arguments[i]));
  }
}

void hand_on(const Operator& op, const Entry& entry, Argument* stack) {
  raised.is_set = false;
  if (shim.torch_call_dispatcher(entry.fallback.c_str(), "", stack, kPyTorchVersion) != 0) {
    throw std::runtime_error(std::string(op.name) + ": PyTorch could not call " + entry.fallback);
  }
  if (!raised.is_set) return;
  raised.is_set = false;
  for (int32_t i = 0; i < op.results; ++i) shim.aoti_torch_delete_tensor_object(pointer_of(stack[i]));
  throw PythonException(raised.type, std::move(raised.text));
}

template <int32_t kNumber>
void kernel(Argument* stack, uint64_t, uint64_t) {
  const Operator& op = kOperators[kNumber];
  Entry& entry = entries[kNumber];
  const int32_t device = device_of(stack[0]);
  Argument results[kMostResults];
  if (device == kOther || !entry.is_held[device].load(std::memory_order_acquire) ||
      !op.attempt(entry.functions, stack, results)) {
    hand_on(op, entry, stack);
    return;
  }
  take(op.arguments, stack);
  for (int32_t i = 0; i < op.results; ++i) stack[i] = results[i];
  entry.calls[device].fetch_add(1, std::memory_order_relaxed);
}

template <int32_t... kNumbers>
constexpr std::array<Kernel, sizeof...(kNumbers)> kernels_of(std::integer_sequence<int32_t, kNumbers...>) {
  return {kernel<kNumbers>...};
}

// One function for each operator, since PyTorch passes no other word of which it calls.
constexpr auto kKernels = kernels_of(std::make_integer_sequence<int32_t, kMostOperators>());

bool is_number(int32_t number) { return number >= 0 && number < kOperatorCount && number < kMostOperators; }

}  // namespace
}  // namespace baracuda::pytorch

using namespace baracuda::pytorch;

const char* baracuda_torch_start(void) { return find_shim(); }

int32_t baracuda_torch_operators(void) { return kOperatorCount; }

const char* baracuda_torch_name(int32_t number) { return is_number(number) ? kOperators[number].name : nullptr; }

const char* baracuda_torch_symbol(int32_t number, int32_t place) {
  return is_number(number) && place >= 0 && place < kMostSymbols ? kOperators[number].symbols[place] : nullptr;
}

void baracuda_torch_set_kernel(int32_t number, int32_t place, int32_t device, int32_t dtype, void* run,
                               void* workspace_size) {
  if (!is_number(number) || place < 0 || place >= kMostSymbols || device < 0 || device >= kDevices || dtype < 0 ||
      dtype >= kDtypes) {
    return;
  }
  entries[number].functions[place][device][dtype] = {run, workspace_size};
}

void* baracuda_torch_enter(int32_t number, int32_t device, const char* fallback) {
  if (!is_number(number) || device < 0 || device >= kDevices || find_shim() != nullptr) return nullptr;
  const std::string name = kOperators[number].name;
  const size_t colons = name.find("::");
  if (entries[number].fallback.empty()) entries[number].fallback = fallback;
  TableHandle table = nullptr;
  const char* const key = device == kCuda ? "CUDA" : "CPU";
  if (shim.aoti_torch_library_init_impl(name.substr(0, colons).c_str(), key, __FILE__, __LINE__, &table) != 0) {
    return nullptr;
  }
  if (shim.torch_library_impl(table, name.c_str() + colons + 2, kKernels[static_cast<size_t>(number)],
                              kPyTorchVersion) != 0) {
    shim.aoti_torch_delete_library_object(table);
    return nullptr;
  }
  return table;
}

void baracuda_torch_remove(void* entry) { shim.aoti_torch_delete_library_object(entry); }

void baracuda_torch_hold(int32_t number, int32_t device, int32_t is_held) {
  if (!is_number(number) || device < 0 || device >= kDevices) return;
  entries[number].is_held[device].store(is_held != 0, std::memory_order_release);
}

int64_t baracuda_torch_calls(int32_t number, int32_t device) {
  if (!is_number(number) || device < 0 || device >= kDevices) return 0;
  return entries[number].calls[device].load(std::memory_order_relaxed);
}

void baracuda_torch_raise(void* type, const char* text) {
  raised.is_set = true;
  raised.type = type;
  raised.text = text;
}

int32_t baracuda_torch_screen(const void* entries, int64_t count, int64_t extent, int32_t index, void* stream) {
  return cuda::is_ready(index, stream) &&
         cuda::screen(Index{static_cast<const int64_t*>(entries), count, extent, -1, nullptr}, stream);
}

int32_t baracuda_torch_place(const void* entries, int64_t count, int64_t rows, int64_t columns, int64_t extent,
                             int32_t wraps, void* places, int32_t index, void* stream) {
  const ElementIndex elements{static_cast<const int64_t*>(entries), count, rows, columns, extent, wraps != 0};
  return cuda::is_ready(index, stream) && cuda::place(elements, static_cast<int32_t*>(places), stream);
}

int32_t baracuda_torch_put_last(const void* entries, int64_t count, int64_t rows, int64_t columns, int64_t extent,
                                int32_t wraps, int32_t element_bytes, const void* source, void* output, void* winners,
                                int32_t index, void* stream) {
  const ElementIndex elements{static_cast<const int64_t*>(entries), count, rows, columns, extent, wraps != 0};
  return cuda::is_ready(index, stream) && cuda::put_last(elements, element_bytes, source, output,
                                                         static_cast<unsigned long long*>(winners), stream);
}

int32_t baracuda_torch_put_in_lines(const void* entries, int64_t count, int64_t columns, int64_t extent,
                                    int32_t element_bytes, const void* source, void* output, int32_t index,
                                    void* stream) {
  const LineIndex lines{static_cast<const int64_t*>(entries), count, columns, extent};
  return cuda::is_ready(index, stream) && cuda::put_in_lines(lines, element_bytes, source, output, stream);
}

int32_t baracuda_torch_has_counted(int32_t index) { return cuda::has_counted(index); }

int64_t baracuda_torch_take_dropped(int32_t index) { return cuda::take_dropped(index); }
