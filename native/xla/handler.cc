// SPDX-License-Identifier: Apache-2.0
// XLA's custom calls of this library's operators: finds the C function, completes its block of arguments, calls it.
// Nothing here computes, allocates or waits. A program may come from a file that anybody wrote: what it says is
// believed only where a wrong word could do no harm, and every buffer must be as large as the problem says.
#include "xla/handler.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "baracuda_kernels.h"
#include "xla/ffi.h"
#include "xla/layout.h"
#include "xla/symbols.h"

namespace baracuda::xla {
namespace {

constexpr int32_t kProtocol = 1;
constexpr int kNumBackends = 2;
constexpr int kCpu = 0;
constexpr int kCuda = 1;
constexpr const char* kBackendNames[kNumBackends] = {"cpu", "cuda"};
constexpr int kNumSymbols = sizeof(kSymbols) / sizeof(kSymbols[0]);
// The operators' own limit on ranks, for which host arrays have room.
constexpr int kMostEntries = 8;
constexpr size_t kWord = 8;
// Room for the value that an options struct points to: an element of at most 16 bytes.
constexpr size_t kValueBytes = 16;
constexpr size_t kMostBytes = 1024;

using RunPacked = int32_t (*)(const void*);
using LastError = const char* (*)();

std::atomic<void*> libraries[kNumBackends];
std::atomic<RunPacked> functions[kNumBackends][kNumSymbols];
std::atomic<LastError> last_errors[kNumBackends];

template <typename Function>
Function find(void* library, const char* name) {
  void* const address = dlsym(library, name);
  Function function;
  memcpy(&function, &address, sizeof function);
  return function;
}

// What went wrong with a call. `code` 0 is nothing.
struct Failure {
  int code = 0;
  char text[512];
};

__attribute__((format(printf, 3, 4))) bool fail(Failure* failure, int code, const char* format, ...) {
  failure->code = code;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(failure->text, sizeof failure->text, format, arguments);
  va_end(arguments);
  return false;
}

size_t rounded(size_t bytes) { return (bytes + kWord - 1) / kWord * kWord; }

int item_bytes(int dtype) {
  switch (dtype) {
    case kPred: case kS8: case kU8: case kF8E5M2: case kF8E4M3FN: return 1;
    case kS16: case kU16: case kF16: case kBF16: return 2;
    case kS32: case kU32: case kF32: return 4;
    case kS64: case kU64: case kF64: case kC64: return 8;
    case kC128: return 16;
    default: return 0;
  }
}

// The number of a symbol, -1 for a name that is none. They are sorted.
int symbol_number(Bytes name) {
  if (memchr(name.ptr, '\0', name.len) != nullptr) return -1;
  int low = 0;
  int high = kNumSymbols;
  while (low < high) {
    const int middle = (low + high) / 2;
    const char* const other = kSymbols[middle].name;
    int order = strncmp(name.ptr, other, name.len);
    if (order == 0) order = other[name.len] == '\0' ? 0 : -1;
    if (order == 0) return middle;
    if (order < 0) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return -1;
}

// The attributes: "arguments", the block with all that it points to, and "symbol".
bool read_attributes(const Attributes& given, Bytes* symbol, Bytes* arguments, Failure* failure) {
  bool has_symbol = false;
  bool has_arguments = false;
  for (int64_t i = 0; i < given.size; ++i) {
    const Bytes name = *given.names[i];
    if (name.len == 6 && memcmp(name.ptr, "symbol", 6) == 0 && given.types[i] == kStringAttribute) {
      *symbol = *static_cast<const Bytes*>(given.attrs[i]);
      has_symbol = true;
    } else if (name.len == 9 && memcmp(name.ptr, "arguments", 9) == 0 && given.types[i] == kArrayAttribute) {
      const Array& array = *static_cast<const Array*>(given.attrs[i]);
      if (array.dtype != kU8) break;
      *arguments = {static_cast<const char*>(array.data), array.size};
      has_arguments = true;
    } else {
      break;
    }
  }
  if (has_symbol && has_arguments && given.size == 2) return true;
  return fail(failure, kInvalidArgument, "pybaracuda: wanted the attributes symbol (text) and arguments (uint8)");
}

// A call's own copy of its block and of what that points to, in the order: block, host arrays, options, their value;
// each begins at a multiple of 8.
class Problem {
 public:
  Problem(const Symbol& symbol, Failure* failure) : symbol_(symbol), layout_(*symbol.layout), failure_(failure) {}

  // Copies the attribute, which must be as long as it says itself, and sets all pointers to host memory.
  bool copy(Bytes given) {
    const size_t block_bytes = static_cast<size_t>(layout_.bytes);
    if (given.len < block_bytes || given.len > kMostBytes) return wrong_size(given.len);
    memcpy(memory_, given.ptr, given.len);
    size_t end = rounded(block_bytes);
    for (int i = 0; i < layout_.num_arrays; ++i) {
      const HostArray& array = layout_.arrays[i];
      const int32_t length = array.is_length_at ? read<int32_t>(array.length) : array.length;
      if (length < 0 || length > kMostEntries) {
        return fail(failure_, kInvalidArgument, "%s: a host array has %d entries; wanted 0..%d", symbol_.name, length,
                    kMostEntries);
      }
      lengths_[i] = length;
      starts_[i] = end;
      write(array.at, memory_ + end);
      end += rounded(static_cast<size_t>(length) * static_cast<size_t>(array.bytes));
      if (end > given.len) return wrong_size(given.len);
    }
    if (layout_.options.at >= 0 && !link_options(&end, given.len)) return false;
    return end == given.len || wrong_size(given.len);
  }

  // Puts the buffers' addresses in, each of which must have as many elements as the problem says.
  bool place(const Buffers& operands, const Buffers& results) {
    int64_t next_operand = 0;
    int64_t next_result = 0;
    for (int i = 0; i < layout_.num_tensors; ++i) {
      const Tensor& tensor = layout_.tensors[i];
      void* address = nullptr;
      if (is_passed(tensor)) {
        const Buffers& buffers = tensor.is_output ? results : operands;
        int64_t* const next = tensor.is_output ? &next_result : &next_operand;
        if (*next == buffers.size || buffers.types[*next] != kBuffer) return wrong_number(operands, results);
        if (!check(i, *buffers.buffers[*next])) return false;
        address = buffers.buffers[(*next)++]->data;
        // The C functions refuse a NULL even where there is nothing behind it.
        if (address == nullptr) address = nothing_;
      }
      write(tensor.at, address);
    }
    void* workspace = nullptr;
    size_t workspace_bytes = 0;
    if (next_result < results.size && results.types[next_result] == kBuffer) {
      const Buffer& buffer = *results.buffers[next_result++];
      int64_t count;
      if (buffer.dtype != kU8 || !count_of(buffer, &count)) {
        return fail(failure_, kInvalidArgument, "%s: the workspace is no uint8", symbol_.name);
      }
      workspace = buffer.data;
      workspace_bytes = static_cast<size_t>(count);
    }
    if (next_operand != operands.size || next_result != results.size) return wrong_number(operands, results);
    write(layout_.workspace_at, workspace);
    write(layout_.workspace_at + kWord, workspace_bytes);
    return true;
  }

  void set_stream(void* stream) { write(layout_.workspace_at + 2 * kWord, stream); }

  const void* block() const { return memory_; }

 private:
  template <typename T>
  T read(size_t at) const {
    T value;
    memcpy(&value, memory_ + at, sizeof value);
    return value;
  }

  template <typename T>
  void write(size_t at, T value) {
    memcpy(memory_ + at, &value, sizeof value);
  }

  bool wrong_size(size_t got) {
    return fail(failure_, kInvalidArgument, "%s: %zu bytes are not the arguments of a problem", symbol_.name, got);
  }

  bool wrong_number(const Buffers& operands, const Buffers& results) {
    return fail(failure_, kInvalidArgument, "%s: %lld operands and %lld results are not what the operator has",
                symbol_.name, static_cast<long long>(operands.size), static_cast<long long>(results.size));
  }

  bool link_options(size_t* end, size_t most) {
    const Options& options = layout_.options;
    const size_t bytes = static_cast<size_t>(options.bytes);
    options_ = *end;
    *end += rounded(bytes) + kValueBytes;
    // A larger size than the struct's would have the C function look behind it.
    if (*end > most || read<size_t>(options_) != bytes) return wrong_size(most);
    write(options.at, memory_ + options_);
    if (options.value_at < 0) return true;
    const size_t value_at = options_ + static_cast<size_t>(options.value_at);
    if (read<uintptr_t>(value_at) != 0) write(value_at, memory_ + options_ + rounded(bytes));
    return true;
  }

  // segment_ex's options, behind their size: the reduction, of which the last two have an arg, and the form.
  int32_t reduction() const { return read<int32_t>(options_ + 8); }
  int32_t form() const { return read<int32_t>(options_ + 12); }

  bool is_passed(const Tensor& tensor) const {
    for (int32_t axis = 0; axis < tensor.rank; ++axis) {
      if (tensor.extents[axis].kind == kWhether && read<int32_t>(tensor.extents[axis].at) == 0) return false;
    }
    const Extent& last = tensor.extents[tensor.rank > 0 ? tensor.rank - 1 : 0];
    if (last.kind == kIfEntry && last.other >= lengths_[last.at]) return false;
    return tensor.extents[0].kind != kRowsOfArg || reduction() >= 6;
  }

  int64_t entry(int array, int32_t number) const {
    const size_t at = starts_[array] + static_cast<size_t>(number) * static_cast<size_t>(layout_.arrays[array].bytes);
    return layout_.arrays[array].bytes == 4 ? read<int32_t>(at) : read<int64_t>(at);
  }

  // One axis of a tensor, or `number` of those that an array names; -1 where there is no such.
  int64_t extent(const Extent& given, int32_t number) const {
    switch (given.kind) {
      case kNumber: return given.at;
      case kInt32: return int64_t{read<int32_t>(given.at)} + given.other;
      case kInt64: return read<int64_t>(given.at);
      case kWhether: return read<int32_t>(given.at);
      case kProduct: return int64_t{read<int32_t>(given.at)} * read<int32_t>(given.other);
      case kBySquare: {
        const int64_t factor = read<int32_t>(given.other);
        int64_t product;
        return __builtin_mul_overflow(factor * factor, read<int32_t>(given.at), &product) ? -1 : product;
      }
      case kEntry: {
        const int32_t named = read<int32_t>(given.other);
        return named >= 0 && named < lengths_[given.at] ? entry(given.at, named) : -1;
      }
      case kIfEntry: return given.other < lengths_[given.at] ? entry(given.at, given.other) : 0;
      case kArray:
        // Both are of int32, whose sum is no larger than an int64 holds.
        return entry(given.at, number) + (given.other >= 0 ? entry(given.other, number) : 0);
      case kIndex:
        return form() == 2 ? int64_t{read<int32_t>(given.at)} + 1 : read<int64_t>(given.other);
      case kRowsOfArg: return read<int32_t>(given.at);
      case kUnlessReduced: return read<int32_t>(given.other) == 0 ? read<int32_t>(given.at) : 1;
    }
    return -1;
  }

  // How many elements a tensor spans, -1 where its extents or strides are no such thing.
  int64_t span(const Tensor& tensor) const {
    const bool is_array = tensor.extents[0].kind == kArray;
    const int32_t rank = is_array ? lengths_[tensor.extents[0].at] : tensor.rank;
    int64_t dense = 1;
    int64_t last = 0;
    bool is_empty = false;
    for (int32_t axis = 0; axis < rank; ++axis) {
      const int64_t size = extent(tensor.extents[is_array ? 0 : axis], axis);
      if (size < 0) return -1;
      if (size == 0) is_empty = true;
      if (is_empty) continue;
      int64_t reach;
      if (tensor.strides >= 0) {
        const int64_t stride = entry(tensor.strides, axis);
        if (stride < 0 || __builtin_mul_overflow(size - 1, stride, &reach)) return -1;
        if (__builtin_add_overflow(last, reach, &last)) return -1;
      } else if (__builtin_mul_overflow(dense, size, &dense)) {
        return -1;
      }
    }
    if (is_empty) return 0;
    return tensor.strides >= 0 ? last + 1 : dense;
  }

  static bool count_of(const Buffer& buffer, int64_t* count) {
    *count = 1;
    for (int64_t axis = 0; axis < buffer.rank; ++axis) {
      if (__builtin_mul_overflow(*count, buffer.dims[axis], count)) return false;
    }
    return *count >= 0;
  }

  bool check(int number, const Buffer& buffer) {
    const Tensor& tensor = layout_.tensors[number];
    const Element element = element_of(symbol_, tensor);
    if (element.dtype != 0 ? buffer.dtype != element.dtype : item_bytes(buffer.dtype) != element.bytes) {
      return fail(failure_, kInvalidArgument, "%s: tensor %d has XLA's dtype %d", symbol_.name, number, buffer.dtype);
    }
    int64_t count;
    const int64_t wanted = span(tensor);
    if (wanted < 0 || !count_of(buffer, &count) || count < wanted) {
      return fail(failure_, kInvalidArgument, "%s: the shape of tensor %d is not the problem's", symbol_.name, number);
    }
    return true;
  }

  const Symbol& symbol_;
  const Layout& layout_;
  Failure* const failure_;
  alignas(16) char memory_[kMostBytes];
  alignas(16) char nothing_[kValueBytes];
  int32_t lengths_[5];
  size_t starts_[5];
  size_t options_ = 0;
};

int code_of(int32_t status) {
  switch (status) {
    case BARACUDA_KERNELS_MISALIGNED_OPERAND:
    case BARACUDA_KERNELS_INVALID_PROBLEM:
    case BARACUDA_KERNELS_WORKSPACE_TOO_SMALL: return kInvalidArgument;
    case BARACUDA_KERNELS_UNSUPPORTED: return kUnimplemented;
    default: return kInternal;
  }
}

RunPacked function_of(int backend, int number) {
  RunPacked function = functions[backend][number].load(std::memory_order_acquire);
  if (function != nullptr) return function;
  void* const library = libraries[backend].load(std::memory_order_acquire);
  if (library == nullptr) return nullptr;
  char name[128];
  snprintf(name, sizeof name, "baracuda_kernels_%s_run_packed", kSymbols[number].name);
  function = find<RunPacked>(library, name);
  functions[backend][number].store(function, std::memory_order_release);
  return function;
}

bool run(const CallFrame& frame, int backend, Failure* failure, Error** error) {
  if (frame.stage != kExecuteStage) return fail(failure, kUnimplemented, "pybaracuda: stage %d", frame.stage);
  Bytes name{};
  Bytes arguments{};
  if (!read_attributes(frame.attrs, &name, &arguments, failure)) return false;
  const int number = symbol_number(name);
  if (number < 0) {
    const int length = name.len < 100 ? static_cast<int>(name.len) : 100;
    return fail(failure, kNotFound, "pybaracuda: there is no operator %.*s", length, name.ptr);
  }
  Problem problem(kSymbols[number], failure);
  if (!problem.copy(arguments) || !problem.place(frame.args, frame.rets)) return false;
  void* stream = nullptr;
  if (backend != kCpu) {
    StreamGetArguments get = {sizeof(StreamGetArguments), nullptr, frame.ctx, nullptr};
    *error = frame.api->get_stream(&get);
    if (*error != nullptr) return false;
    stream = get.stream;
  }
  problem.set_stream(stream);
  const RunPacked function = function_of(backend, number);
  if (function == nullptr) {
    return fail(failure, kNotFound, "%s: the %s library is not loaded, or lacks it", kSymbols[number].name,
                kBackendNames[backend]);
  }
  const int32_t status = function(problem.block());
  if (status == BARACUDA_KERNELS_OK) return true;
  return fail(failure, code_of(status), "%s", last_errors[backend].load(std::memory_order_acquire)());
}

// The answer to the question that a runtime asks when a handler is registered.
bool answered_metadata(const CallFrame& frame, uint32_t traits) {
  if (frame.extension_start == nullptr || frame.extension_start->type != kMetadataExtension) return false;
  Metadata* const metadata = reinterpret_cast<MetadataExtension*>(frame.extension_start)->metadata;
  // The runtimes of 0.1 do not say their version here.
  const int minor = frame.api == nullptr ? kOldestMinor : frame.api->api_version.minor_version;
  metadata->api_version.major_version = 0;
  metadata->api_version.minor_version = minor < kNewestMinor ? minor : kNewestMinor;
  metadata->traits = traits;
  return true;
}

void* handle(void* call_frame, int backend, uint32_t traits) {
  const CallFrame& frame = *static_cast<const CallFrame*>(call_frame);
  if (answered_metadata(frame, traits)) return nullptr;
  Failure failure;
  Error* error = nullptr;
  if (run(frame, backend, &failure, &error) || error != nullptr) return error;
  ErrorCreateArguments create = {sizeof(ErrorCreateArguments), nullptr, failure.text, failure.code};
  return frame.api->create_error(&create);
}

}  // namespace
}  // namespace baracuda::xla

extern "C" {

__attribute__((visibility("default"))) int32_t baracuda_xla_protocol(void) { return baracuda::xla::kProtocol; }

__attribute__((visibility("default"))) const char* baracuda_xla_attach(int32_t backend, void* library) {
  using namespace baracuda::xla;
  if (backend < 0 || backend >= kNumBackends || library == nullptr) return "there is no such backend";
  const auto name = find<const char* (*)()>(library, "baracuda_kernels_backend_name");
  const auto hash = find<uint64_t (*)()>(library, "baracuda_kernels_abi_hash");
  const auto last_error = find<LastError>(library, "baracuda_kernels_last_error");
  if (name == nullptr || hash == nullptr || last_error == nullptr) return "it is no baracuda_kernels library";
  if (strcmp(name(), kBackendNames[backend]) != 0) return "it is another backend's library";
  if (hash() != BARACUDA_KERNELS_ABI_HASH) return "its ABI hash is another one than the handlers were built with";
  last_errors[backend].store(last_error, std::memory_order_release);
  libraries[backend].store(library, std::memory_order_release);
  return nullptr;
}

__attribute__((visibility("default"))) void* baracuda_xla_cpu(void* call_frame) {
  return baracuda::xla::handle(call_frame, baracuda::xla::kCpu, 0);
}

__attribute__((visibility("default"))) void* baracuda_xla_cuda(void* call_frame) {
  // What the C functions do on a stream follows from their scalars alone, given a workspace.
  return baracuda::xla::handle(call_frame, baracuda::xla::kCuda, baracuda::xla::kCommandBufferCompatible);
}

__attribute__((visibility("default"))) void* baracuda_xla_cuda_own_scratch(void* call_frame) {
  // A graph that XLA captures becomes a part of another, in which CUDA allows no allocation.
  return baracuda::xla::handle(call_frame, baracuda::xla::kCuda, 0);
}
}
