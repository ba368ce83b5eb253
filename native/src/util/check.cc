#include "util/check.h"

namespace hotbed {

void throwError(const char* code, const char* subject, const char* message) {
  throw Error(code, subject, message);
}

}  // namespace hotbed
