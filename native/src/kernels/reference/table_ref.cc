#include "kernels/reference/reference.h"

namespace hotbed::kernels::reference {

const KernelTable& table() {
  static const KernelTable instance = {
      Path::reference,
      "reference",
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

}  // namespace hotbed::kernels::reference
