// SPDX-License-Identifier: Apache-2.0
// What this library knows of XLA's foreign function interface, a C interface in which fields are only ever added behind
// others: own declarations of those that it reads and writes, under own names. No header of XLA's is needed, whose
// version would be built in and refused by older runtimes. tests/test_jax_handler.py compares the places of all fields
// with the header of the jaxlib that is installed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baracuda::xla {

struct Error;             // XLA_FFI_Error
struct ExecutionContext;  // XLA_FFI_ExecutionContext

// The minor versions of the interface (0.1, 0.2, ...) that were looked at. A handler that answers a newer one than the
// runtime's is refused, and with it every program of the process.
constexpr int kOldestMinor = 1;
constexpr int kNewestMinor = 5;

constexpr int kMetadataExtension = 1;  // XLA_FFI_Extension_Metadata
constexpr int kExecuteStage = 3;       // XLA_FFI_ExecutionStage_EXECUTE
constexpr int kBuffer = 1;             // XLA_FFI_ArgType_BUFFER, XLA_FFI_RetType_BUFFER
constexpr int kArrayAttribute = 1;              // XLA_FFI_AttrType_ARRAY
constexpr int kStringAttribute = 4;             // XLA_FFI_AttrType_STRING
// XLA_FFI_HANDLER_TRAITS_COMMAND_BUFFER_COMPATIBLE: the same launches whenever the attributes are the same.
constexpr uint32_t kCommandBufferCompatible = 1;

// XLA_FFI_DataType
enum DataType : int {
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kC64 = 15,
  kBF16 = 16,
  kC128 = 18,
  kF8E5M2 = 19,
  kF8E4M3FN = 20,
};

// XLA_FFI_Error_Code
enum Code : int {
  kInvalidArgument = 3,
  kNotFound = 5,
  kUnimplemented = 12,
  kInternal = 13,
};

struct Extension {  // XLA_FFI_Extension_Base, from 0.4 on XLA_FFI_InternalExtension
  size_t struct_size;
  int type;
  Extension* next;
};

struct Version {  // XLA_FFI_Api_Version
  size_t struct_size;
  Extension* extension_start;
  int major_version;
  int minor_version;
};

// Versions from 0.2 on have a field more, which an older runtime's memory does not.
struct Metadata {  // XLA_FFI_Metadata
  size_t struct_size;
  Version api_version;
  uint32_t traits;
};

struct MetadataExtension {  // XLA_FFI_Metadata_Extension
  Extension extension_base;
  Metadata* metadata;
};

struct ErrorCreateArguments {  // XLA_FFI_Error_Create_Args
  size_t struct_size;
  Extension* extension_start;
  const char* message;
  int errc;
};

struct StreamGetArguments {  // XLA_FFI_Stream_Get_Args
  size_t struct_size;
  Extension* extension_start;
  ExecutionContext* ctx;
  void* stream;
};

struct Api {  // XLA_FFI_Api
  size_t struct_size;
  Extension* extension_start;
  Version api_version;
  const void* internal_api;
  Error* (*create_error)(ErrorCreateArguments*);  // XLA_FFI_Error_Create
  void* unread[3];
  Error* (*get_stream)(StreamGetArguments*);  // XLA_FFI_Stream_Get
};

struct Buffer {  // XLA_FFI_Buffer
  size_t struct_size;
  Extension* extension_start;
  int dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
};

struct Bytes {  // XLA_FFI_ByteSpan
  const char* ptr;
  size_t len;
};

struct Array {  // XLA_FFI_Array
  int dtype;
  size_t size;
  void* data;
};

struct Buffers {  // XLA_FFI_Args, XLA_FFI_Rets
  size_t struct_size;
  Extension* extension_start;
  int64_t size;
  int* types;
  Buffer** buffers;
};

struct Attributes {  // XLA_FFI_Attrs
  size_t struct_size;
  Extension* extension_start;
  int64_t size;
  int* types;
  Bytes** names;
  void** attrs;
};

struct CallFrame {  // XLA_FFI_CallFrame
  size_t struct_size;
  Extension* extension_start;
  const Api* api;
  ExecutionContext* ctx;
  int stage;
  Buffers args;
  Buffers rets;
  Attributes attrs;
};

}  // namespace baracuda::xla
