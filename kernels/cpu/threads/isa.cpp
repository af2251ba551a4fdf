#include "kernels/thread_pool.h"

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#endif
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace draftscope::kernels {
namespace {

/// Requests the kernel's permission for AMX tiles. Their state is large, so Linux grants it only on request,
/// once per process.
bool amx_allowed() {
#if defined(__x86_64__) && defined(__linux__)
    constexpr unsigned bf16 = 1u << 22, tile = 1u << 24, int8 = 1u << 25;
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
    if ((edx & (bf16 | tile | int8)) != (bf16 | tile | int8)) return false;
    constexpr long arch_req_xcomp_perm = 0x1023;
    constexpr long xfeature_tiledata = 18;
    return syscall(SYS_arch_prctl, arch_req_xcomp_perm, xfeature_tiledata) == 0;
#else
    return false;
#endif
}

#if defined(__x86_64__) && defined(__GNUC__)
// Clang 16's __builtin_cpu_supports() does not know these two, which use the registers of AVX2.
bool has_f16c() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & (1u << 29)) != 0;
}

bool has_avx_vnni() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & (1u << 4)) != 0;
}
#endif

}  // namespace

std::string_view to_text(Isa isa) {
    switch (isa) {
        case Isa::portable:
            return "portable";
        case Isa::avx2:
            return "avx2";
        case Isa::avx_vnni:
            return "avx_vnni";
        case Isa::avx512:
            return "avx512";
        case Isa::avx512_vnni:
            return "avx512_vnni";
        case Isa::avx512_bf16:
            return "avx512_bf16";
        case Isa::amx:
            return "amx";
    }
    return "unknown";
}

Isa supported_isa() {
#if defined(__x86_64__) && defined(__GNUC__)
    // These compiler checks include whether the operating system saves the wide registers.
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c())
        return Isa::portable;
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl")) {
        return has_avx_vnni() ? Isa::avx_vnni : Isa::avx2;
    }
    if (!__builtin_cpu_supports("avx512vnni")) return Isa::avx512;
    if (!__builtin_cpu_supports("avx512bf16")) return Isa::avx512_vnni;
    static const bool amx = amx_allowed();
    return amx ? Isa::amx : Isa::avx512_bf16;
#else
    return Isa::portable;
#endif
}

bool can_run(Isa isa) {
#if defined(__x86_64__) && defined(__GNUC__)
    // The only level that higher levels need not include.
    if (isa == Isa::avx_vnni && !has_avx_vnni()) return false;
#endif
    return isa <= supported_isa();
}

Isa best_isa() {
    const Isa supported = supported_isa();
#if defined(__x86_64__) && defined(__GNUC__)
    if (supported == Isa::avx512_bf16 && __builtin_cpu_is("intel")) return Isa::avx512_vnni;
#endif
    return supported;
}

}  // namespace draftscope::kernels
