// A test runner in one header: TEST(name) { ... } registers itself, CHECK and CHECK_EQ count.
// Run with words as arguments to run only the tests whose name contains one of them.
#pragma once

#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

namespace hotbed::test {

struct Case {
  std::string name;
  void (*body)();
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

// Raised by a failed check: the test stops there.
struct Failure {
  std::string message;
};

// Raised by skip(reason): a test that this machine cannot run.
struct Skipped {
  std::string reason;
};

[[noreturn]] inline void skip(const std::string& reason) { throw Skipped{reason}; }

[[noreturn]] inline void fail(const char* file, int line, const std::string& message) {
  std::ostringstream text;
  text << file << ':' << line << ": " << message;
  throw Failure{text.str()};
}

struct Registration {
  Registration(const char* name, void (*body)()) { cases().push_back({name, body}); }
};

template <class A, class B>
void checkEqual(const char* file, int line, const char* text, const A& actual, const B& expected) {
  if (actual == expected) return;
  std::ostringstream message;
  message << text << ": expected " << expected << ", actual " << actual;
  fail(file, line, message.str());
}

}  // namespace hotbed::test

#define HOTBED_TEST_JOIN2(a, b) a##b
#define HOTBED_TEST_JOIN(a, b) HOTBED_TEST_JOIN2(a, b)

#define TEST(name)                                                             \
  static void HOTBED_TEST_JOIN(test_, name)();                                 \
  static const ::hotbed::test::Registration HOTBED_TEST_JOIN(register_, name)( \
      #name, HOTBED_TEST_JOIN(test_, name));                                   \
  static void HOTBED_TEST_JOIN(test_, name)()

#define CHECK(condition)                                                                 \
  do {                                                                                   \
    if (!(condition)) ::hotbed::test::fail(__FILE__, __LINE__, "not true: " #condition); \
  } while (0)

#define CHECK_EQ(actual, expected) \
  ::hotbed::test::checkEqual(__FILE__, __LINE__, #actual " == " #expected, (actual), (expected))

#define CHECK_MESSAGE(condition, message)                         \
  do {                                                            \
    if (!(condition)) {                                           \
      std::ostringstream hotbedText;                              \
      hotbedText << #condition << ": " << message;                \
      ::hotbed::test::fail(__FILE__, __LINE__, hotbedText.str()); \
    }                                                             \
  } while (0)

// The expression must throw Error with this code.
#define CHECK_THROWS(expression, expectedCode)                                                \
  do {                                                                                        \
    bool hotbedThrew = false;                                                                 \
    try {                                                                                     \
      (void)(expression);                                                                     \
    } catch (const ::hotbed::Error& error) {                                                  \
      hotbedThrew = true;                                                                     \
      ::hotbed::test::checkEqual(__FILE__, __LINE__, #expression, error.code(),               \
                                 std::string(expectedCode));                                  \
    }                                                                                         \
    if (!hotbedThrew) ::hotbed::test::fail(__FILE__, __LINE__, #expression " did not throw"); \
  } while (0)
