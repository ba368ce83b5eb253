// numericsOffers(): Promise of what this machine offers, [{id, refusal}].
#ifndef HOTBED_BINDINGS_NUMERICS_BINDING_H_
#define HOTBED_BINDINGS_NUMERICS_BINDING_H_

#include <napi.h>

namespace hotbed {

Napi::Value NumericsOffersToJs(const Napi::CallbackInfo& info);

}  // namespace hotbed

#endif  // HOTBED_BINDINGS_NUMERICS_BINDING_H_
