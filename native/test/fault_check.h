// CHECK_FAULT(expression, code, words): the expression throws an EngineFault of that code whose
// message holds `words`.
#pragma once

#include <string>

#include "engine/fault.h"
#include "harness.h"

#define CHECK_FAULT(expression, expectedCode, words)                                              \
  do {                                                                                            \
    std::string hotbedSeen = "nothing was thrown";                                                \
    try {                                                                                         \
      (void)(expression);                                                                         \
    } catch (const ::hotbed::EngineFault& fault) {                                                \
      hotbedSeen = std::string(::hotbed::FaultCodeName(fault.code())) + ": " + fault.what();      \
    }                                                                                             \
    const std::string hotbedCode = std::string(::hotbed::FaultCodeName(expectedCode)) + ": ";     \
    CHECK_MESSAGE(hotbedSeen.compare(0, hotbedCode.size(), hotbedCode) == 0 &&                    \
                      hotbedSeen.find(words) != std::string::npos,                                \
                  #expression " should fail with " << hotbedCode << words << "; " << hotbedSeen); \
  } while (0)
