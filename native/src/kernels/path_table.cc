#include "kernels/path.h"
//
#include "kernels/path_table.h"

#define HOTBED_STRINGIFY2(x) #x
#define HOTBED_STRINGIFY(x) HOTBED_STRINGIFY2(x)

namespace hotbed::kernels::HOTBED_PATH {

const KernelTable& table() {
  static constexpr KernelTable instance = {
      Path::HOTBED_PATH,
      HOTBED_STRINGIFY(HOTBED_PATH),
      packLinear,
      packLinearTransposed,
      narrowPanels,
      pairPanels,
      linear,
      loraForward,
      loraForwardMany,
      loraBackward,
      loraInit,
      transpose,
      transposeMany,
      rmsNorm,
      rmsNormBackward,
      ropeFrequencies,
      ropeTable,
      rope,
      swiglu,
      swigluBackward,
      add,
      writeKv,
      attention,
      attentionBackward,
      attentionBackwardGroups,
      head,
      headBackward,
      sample,
      topTokens,
      loss,
      sumSquares,
      adamWScalars,
      clipFactor,
      adamW,
      expArray,
      logArray,
      uniform,
      fmaBurst,
  };
  return instance;
}

}  // namespace hotbed::kernels::HOTBED_PATH
