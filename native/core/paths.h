// SPDX-License-Identifier: Apache-2.0
// How an operator chooses among its ways of doing a call, its paths: they stand in an ordered list, the first that can
// do the call does it, and the last can do every call.
//
// A path is a class that is made from a request, mostly a Request or what a family derives from it, and has
//   static const char* name()   what users read of it (baracuda_kernels_last_path)
//   bool can() const            whether it can do the call; the last path of a list needs none
//   Status enqueue() const      does the call
#pragma once

#include "core/backend.h"
#include "core/status.h"

namespace baracuda {

// Notes down, in static storage, which path the calling thread's call has taken; the last one noted counts.
void record_path(const char* name);

// The path of the calling thread's most recent successful call; "" where it had nothing to do, or before any.
const char* last_path();

// What a backend is asked to do.
template <class Problem, class Buffers>
struct Request {
  const Problem& p;
  const Buffers& b;
  void* workspace;
  Stream stream = nullptr;  // the CPU knows NULL alone
};

namespace {

template <class First, class... Others>
struct Paths {
  // Answers use(path) for the first path that can.
  template <class Request, class Use>
  static auto choose(const Request& request, const Use& use) {
    const First path{request};
    if constexpr (sizeof...(Others) > 0) {
      if (!path.can()) return Paths<Others...>::choose(request, use);
    }
    return use(path);
  }

  template <class Request>
  static Status enqueue(const Request& request) {
    return choose(request, [](const auto& path) {
      const Status status = path.enqueue();
      if (status == Status::kOk) record_path(path.name());
      return status;
    });
  }
};

}  // namespace
}  // namespace baracuda
