// Parses arbitrary bytes as a chat template. The result is an error or a prompt.
#include "engine/chat_template/chat_template.h"
#include "tests/fuzz/model/read_everything.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace draftscope;
    const auto chat = ChatTemplate::from_source({reinterpret_cast<const char*>(data), size}, "template");
    (void)chat.render({{"system", "a"}, {"user", "b"}, {"assistant", "c"}, {"user", "d"}});
    return 0;
}
