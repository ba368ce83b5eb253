// Errors of the native side, and the checks that raise them.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace hotbed {

// Thrown across every layer. `code` is stable (callers branch on it), `subject` is the offending
// path, field or shape, empty when there is none.
class Error : public std::runtime_error {
 public:
  Error(std::string code, std::string subject, const std::string& message)
      : std::runtime_error(message), code_(std::move(code)), subject_(std::move(subject)) {}
  const std::string& code() const { return code_; }
  const std::string& subject() const { return subject_; }

 private:
  std::string code_;
  std::string subject_;
};

// Kept out of line so that translation units built for one instruction set instantiate nothing.
[[noreturn]] void throwError(const char* code, const char* subject, const char* message);

}  // namespace hotbed

// An argument that a caller got wrong: code "invalid_argument".
#define HOTBED_REQUIRE(condition, subject, message)                                   \
  do {                                                                                \
    if (!(condition)) ::hotbed::throwError("invalid_argument", (subject), (message)); \
  } while (0)
