// Any bytes as a PyTorch checkpoint: an error, or tensors that can be read.
#include <vector>

#include "engine/model/tensor_file.h"
#include "tests/fuzz/model/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace draftscope;
    const testing::MemoryFile bytes(data, size);
    const auto opened = open_torch_file(bytes.path());
    if (!opened.ok()) {
        if (opened.error().message.find('\n') != std::string::npos) std::abort();
        return 0;
    }
    const WeightSource& file = **opened;
    for (const std::string& name : file.names()) {
        const TensorInfo& info = *file.find(name);
        if (info.bytes == 0) continue;
        std::vector<float> row(static_cast<std::size_t>(info.cols()));
        for (std::int64_t r = 0; r < info.rows(); ++r) file.read_row(info, r, row.data());
        (void)file.read_integers(name);
    }
    return 0;
}
