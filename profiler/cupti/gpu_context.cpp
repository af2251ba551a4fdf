#include "profiler/cupti/gpu_context.h"

#include <algorithm>
#include <array>

namespace draftscope {

namespace {

// Deeper nesting than the phase table has is a bug in the engine; the outer phases stay correct.
constexpr int max_nested = 16;

struct Stack {
    std::array<GpuContext, max_nested> open{};
    int depth = 0;
};
thread_local Stack stack;

}  // namespace

GpuContext current_gpu_context() {
    if (stack.depth == 0) return {};
    return stack.open[std::min(stack.depth, max_nested) - 1];
}

void GpuPhaseStack::open(const SpanEvent& opening) {
    if (stack.depth < max_nested) stack.open[stack.depth] = {opening.phase, opening.round, opening.level};
    ++stack.depth;
}

void GpuPhaseStack::close(const SpanEvent&) {
    if (stack.depth > 0) --stack.depth;
}

}  // namespace draftscope
