// SPDX-License-Identifier: Apache-2.0
// The choice among an operator's paths: the first that can do a call does it, the last does what no other can. Each
// thread is told which one has done its latest call.
#include "core/paths.h"

#include <cstdio>
#include <cstring>
#include <thread>

namespace {

using baracuda::Paths;
using baracuda::Status;

struct Request {
  int rows;
  const char** done_by;
};

struct FewRows {
  const Request& request;
  static const char* name() { return "few rows"; }
  bool can() const { return request.rows < 10; }
  Status enqueue() const {
    *request.done_by = name();
    return Status::kOk;
  }
};

// Plans when it is made, and is asked whether that went well.
struct EvenRows {
  const Request& request;
  int pairs;
  explicit EvenRows(const Request& made_from)
      : request(made_from), pairs(made_from.rows % 2 == 0 ? made_from.rows / 2 : 0) {}
  static const char* name() { return "even rows"; }
  bool can() const { return pairs > 0; }
  Status enqueue() const {
    *request.done_by = name();
    return Status::kUnsupported;
  }
};

struct AnyRows {
  const Request& request;
  static const char* name() { return "any rows"; }
  Status enqueue() const {
    *request.done_by = name();
    return Status::kOk;
  }
};

using Choice = Paths<FewRows, EvenRows, AnyRows>;

int faults = 0;

void expect(int rows, const char* path, Status status, const char* noted) {
  const char* done_by = "nobody";
  const Request request{rows, &done_by};
  if (Choice::enqueue(request) != status || std::strcmp(done_by, path) != 0) {
    std::printf("%d rows: done by %s; wanted %s and its status\n", rows, done_by, path);
    ++faults;
  }
  if (std::strcmp(baracuda::last_path(), noted) != 0) {
    std::printf("%d rows: the latest path is \"%s\"; wanted \"%s\"\n", rows, baracuda::last_path(), noted);
    ++faults;
  }
}

}  // namespace

int main() {
  if (std::strcmp(baracuda::last_path(), "") != 0) ++faults;
  expect(4, "few rows", Status::kOk, "few rows");                 // although the others can, too
  expect(12, "even rows", Status::kUnsupported, "few rows");      // a call that fails has taken none
  std::thread([] { expect(13, "any rows", Status::kOk, "any rows"); }).join();
  expect(12, "even rows", Status::kUnsupported, "few rows");
  expect(13, "any rows", Status::kOk, "any rows");
  return faults == 0 ? 0 : 1;
}
