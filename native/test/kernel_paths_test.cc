#include "kernel_support.h"
#include "kernels/kernel_table.h"
#include "util/check.h"

using namespace hotbed;
using kernels::Path;

TEST(kernel_path_words_are_parsed) {
  CHECK(kernels::parsePath("scalar") == Path::scalar);
  CHECK(kernels::parsePath("avx2") == Path::avx2);
  CHECK(kernels::parsePath("avx512") == Path::avx512);
  CHECK(kernels::parsePath("avx512bf16") == Path::avx512bf16);
  CHECK(kernels::parsePath("reference") == Path::reference);
  CHECK(kernels::parsePath("") == kernels::bestPath());
  CHECK(kernels::parsePath(nullptr) == kernels::bestPath());
  CHECK_THROWS(kernels::parsePath("sse"), "invalid_argument");
}

TEST(kernel_tables_name_their_path) {
  for (Path path : {Path::scalar, Path::avx2, Path::avx512, Path::avx512bf16, Path::reference}) {
    if (!kernels::supports(path)) {
      CHECK_THROWS(kernels::kernels(path), "unsupported_cpu");
      continue;
    }
    CHECK(kernels::kernels(path).path == path);
    CHECK(kernels::parsePath(kernels::kernels(path).name) == path);
  }
}

TEST(kernel_comparison_notices_one_bit) {
  test::Floats a(100, 1.0f);
  test::Floats b = a;
  checkSame("equal", a, b);
  b[77] = test::fromBits(test::bitsOf(1.0f) + 1);
  bool noticed = false;
  try {
    checkSame("one bit off", b, a);
  } catch (const test::Failure& failure) {
    noticed = failure.message.find("first at 77") != std::string::npos;
  }
  CHECK(noticed);
}
