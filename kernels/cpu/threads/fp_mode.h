#pragma once

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace draftscope::kernels {

/// Sets default rounding and flushes denormals to zero for the lifetime of the object. Denormal operands cost
/// 10 to 100 times as much as normal ones. Every thread must round alike, or results would depend on the
/// split.
class FlushDenormals {
  public:
#if defined(__SSE2__)
    FlushDenormals() : saved_(_mm_getcsr()) {
        _mm_setcsr(masked_exceptions | flush_results | flush_inputs);
    }
    ~FlushDenormals() {
        _mm_setcsr(saved_);
    }
#else
    FlushDenormals() = default;
    ~FlushDenormals() {}
#endif
    FlushDenormals(const FlushDenormals&) = delete;
    FlushDenormals& operator=(const FlushDenormals&) = delete;

  private:
    static constexpr unsigned masked_exceptions = 0x1f80;
    static constexpr unsigned flush_results = 0x8000;
    static constexpr unsigned flush_inputs = 0x0040;
    [[maybe_unused]] unsigned saved_ = 0;
};

}  // namespace draftscope::kernels
