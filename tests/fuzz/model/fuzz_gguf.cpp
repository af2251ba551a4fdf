// Any bytes as a GGUF file: an error, or a model whose every row can be read and whose tokenizer works.
#include <algorithm>
#include <vector>

#include "engine/model/model_file.h"
#include "tests/fuzz/model/memory_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace draftscope;
    const testing::MemoryFile bytes(data, size);
    const auto file = open_model_file(bytes.path());
    if (!file.ok()) {
        if (file.error().message.find('\n') != std::string::npos) std::abort();
        return 0;
    }
    std::vector<float> row;
    for (const std::string& name : file->weights->names()) {
        const TensorInfo& info = *file->weights->find(name);
        row.resize(static_cast<std::size_t>(info.cols()));
        for (std::int64_t r = 0; r < info.rows(); ++r) file->weights->read_row(info, r, row.data());
    }
    const std::string text(reinterpret_cast<const char*>(data), std::min<std::size_t>(size, 512));
    file->tokenizer->decode(file->tokenizer->encode(text, true), true);
    file->chat.render({{"user", text}});
    return 0;
}
