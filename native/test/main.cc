// Runs every registered test; the last line is the tally, alone on its line.
#include <cstring>
#include <exception>
#include <iostream>

#include "harness.h"

int main(int argc, char** argv) {
  using namespace hotbed::test;
  size_t passed = 0;
  size_t failed = 0;
  size_t skipped = 0;
  for (const Case& test : cases()) {
    bool wanted = argc == 1;
    for (int i = 1; i < argc; ++i) wanted |= std::strstr(test.name.c_str(), argv[i]) != nullptr;
    if (!wanted) continue;
    try {
      test.body();
      ++passed;
    } catch (const Skipped& skip) {
      ++skipped;
      std::cout << "skipped " << test.name << ": " << skip.reason << '\n';
    } catch (const Failure& failure) {
      ++failed;
      std::cout << "FAILED " << test.name << "\n  " << failure.message << '\n';
    } catch (const std::exception& error) {
      ++failed;
      std::cout << "FAILED " << test.name << "\n  threw: " << error.what() << '\n';
    }
    std::cout.flush();
  }
  std::cout << passed << " passed, " << failed << " failed";
  if (skipped) std::cout << ", " << skipped << " skipped";
  std::cout << std::endl;
  return failed == 0 ? 0 : 1;
}
