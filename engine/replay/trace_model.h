#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "engine/model/target.h"
#include "engine/replay/trace.h"

namespace draftscope {

/// The ends of a trace's target, its embedding and LM head: all that drafters and heads read of a target.
/// They come from the trace's weights.safetensors, else from `model`: a GGUF file, or a folder with
/// safetensors of any architecture ("" = none given). Packed at `precision`. Its config is what the trace
/// says.
Result<std::unique_ptr<Target>> make_trace_target(const Trace& trace, const std::string& model,
                                                  kernels::Exec& exec, kernels::Precision precision);

}  // namespace draftscope
