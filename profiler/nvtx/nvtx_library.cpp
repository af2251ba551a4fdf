// libdraftscope_nvtx.so, the target of NVTX_INJECTION64_PATH. Through it, the NVTX loaders of shared
// libraries find our injection, which stays in the program. In other programs' processes it attaches no
// listener.
#define NVTX_NO_IMPL
#include <dlfcn.h>
#include <nvtx3/nvToolsExt.h>

extern "C" __attribute__((visibility("default"))) int InitializeInjectionNvtx2(
    NvtxGetExportTableFunc_t export_table) {
    using Initialize = int (*)(NvtxGetExportTableFunc_t);
    const auto initialize = reinterpret_cast<Initialize>(dlsym(RTLD_DEFAULT, "draftscope_nvtx_initialize"));
    return initialize != nullptr ? initialize(export_table) : 0;
}
