#include "kernels/exec.h"

namespace draftscope::kernels {

std::string_view to_text(Isa isa) {
    switch (isa) {
        case Isa::portable:
            return "portable";
        case Isa::avx2:
            return "avx2";
        case Isa::avx512:
            return "avx512";
        case Isa::avx512_vnni:
            return "avx512_vnni";
        case Isa::avx512_bf16:
            return "avx512_bf16";
    }
    return "unknown";
}

Isa supported_isa() {
#if defined(__x86_64__) && defined(__GNUC__)
    // The compiler's run-time checks also ask whether the operating system saves the wide registers.
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Isa::portable;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
        return Isa::avx2;
    }
    if (!__builtin_cpu_supports("avx512vnni")) return Isa::avx512;
    if (!__builtin_cpu_supports("avx512bf16")) return Isa::avx512_vnni;
    return Isa::avx512_bf16;
#else
    return Isa::portable;
#endif
}

Isa best_isa() {
    const Isa supported = supported_isa();
#if defined(__x86_64__) && defined(__GNUC__)
    if (supported == Isa::avx512_bf16 && __builtin_cpu_is("intel")) return Isa::avx512_vnni;
#endif
    return supported;
}

}  // namespace draftscope::kernels
