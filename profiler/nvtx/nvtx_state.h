#pragma once

namespace draftscope {

/// Returns whether the NVTX loader of this executable attached our static injection. The mirror's call also
/// keeps the injection's object file in the link; the linker drops archive members without references.
bool nvtx_injection_attached();

}  // namespace draftscope
