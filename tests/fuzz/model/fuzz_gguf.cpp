// Opens arbitrary bytes as a GGUF file. The result is an error, or a model whose every row can be read and
// whose tokenizer works.
#include "engine/formats/model_file.h"
#include "tests/fuzz/model/memory_file.h"
#include "tests/fuzz/model/read_everything.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace draftscope;
    const testing::MemoryFile bytes(data, size);
    const auto file = open_model_file(bytes.path());
    if (!file.ok()) {
        testing::check_message(file.error());
        return 0;
    }
    testing::read_everything(*file->weights);
    const std::string text(reinterpret_cast<const char*>(data), std::min<std::size_t>(size, 512));
    file->tokenizer->decode(file->tokenizer->encode(text, true), true);
    if (const auto prompt = file->chat.render({{"user", text}}); !prompt.ok())
        testing::check_message(prompt.error());
    return 0;
}
