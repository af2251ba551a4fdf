#pragma once

namespace draftscope {

/// Did the NVTX loader of this executable attach our static injection? Calling it from the mirror also keeps
/// the injection's object file in the link: an archive member that nothing names is dropped without a word.
bool nvtx_injection_attached();

}  // namespace draftscope
