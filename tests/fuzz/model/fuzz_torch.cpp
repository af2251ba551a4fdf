// Opens arbitrary bytes as a PyTorch checkpoint. The result is an error, or tensors that can be read.
#include "engine/formats/model_file.h"
#include "tests/fuzz/model/memory_file.h"
#include "tests/fuzz/model/read_everything.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace draftscope;
    const testing::MemoryFile bytes(data, size);
    testing::read_everything(open_torch_file(bytes.path()));
    return 0;
}
